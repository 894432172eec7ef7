"""Devices and a mailbox on one virtual clock, brought together for as long as a test says."""

from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import Mode, stream_terms
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.limits import DEFAULT_LIMITS
from waystation.protocols.bsp.mailbox.commands import AnswerStatus, Done, Host, decode, encode
from waystation.protocols.bsp.mailbox.host import Mailbox, control_group
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.wire import RecordReader
from waystation.store.memory import MemoryStore

WALL_US = 1_760_000_000_000_000
TERMS = stream_terms("plain")
DAY_MS = 86_400_000
CLIENT_ID = b"c" * 32


def key_pair(number):
    """Return the key pair of a small number."""
    return KeyPair.from_seed(bytes([number]) * 32)


class Clock:
    """One clock for all."""

    def __init__(self):
        self.now = Instant(1_000_000)

    def advance(self, ms):
        """Let time pass."""
        self.now = after_ms(self.now, ms)


class Party:
    """A device with its store; ``events`` has what it told."""

    def __init__(self, clock, number, store=None, profile=SEED, **options):
        self.clock, self.keys, self.profile = clock, key_pair(number), profile
        self.key = self.keys.public
        self.store = store or MemoryStore()
        self.device = BspDevice(profile, self.store, mode=Mode.BATCH, **options)
        self.device.set_wall(clock.now, WALL_US + clock.now)
        self.events = []

    def commit(self):
        """Make everything durable, and hear what that lets out."""
        while self.device.must_commit:
            self.store.commit(self.device.changes())
            self.device.committed(self.clock.now)
            self.hear_events()
        self.hear_events()

    def hear_events(self):
        """Keep what the device tells."""
        self.events += self.device.take_events()

    def join(self, group, *members):
        """Be a member of a group, and share it."""
        self.device.join(group, self.clock.now)
        for member in members:
            self.device.meet(member)
            self.device.share(group.group_id, member, self.clock.now)

    def add(self, group, body, timestamp=0):
        """Create a message and return its identifier."""
        found = self.device.add(group.group_id, timestamp, body, self.clock.now)
        self.commit()
        return found

    def bodies(self, group):
        """Return the bodies that are here, in delivery order."""
        found = [self.device.body(group.group_id, vertex.message_id) for vertex in self.device.messages(group.group_id)]
        return [body for body in found if body is not None]


class MailboxParty(Party):
    """A device with a mailbox."""

    def __init__(
        self,
        clock,
        number,
        owners,
        store=None,
        *,
        allows=lambda owner: True,
        stays=(),
        groups=(),
        limits=DEFAULT_LIMITS,
        **settings,
    ):
        super().__init__(clock, number, store, admits=self._admits)
        for group in groups:
            self.device.join(group, clock.now)
        self.limits = InForce(limits)
        self.mailbox = Mailbox(
            self.device,
            self.keys,
            owners,
            BspSettings(**settings),
            self.store,
            allows=allows,
            stays=stays,
            limits=self.limits,
        )
        self.mailbox.set_wall(clock.now, WALL_US + clock.now)
        self.mailbox.load(clock.now)
        self.commit()

    def hear_events(self):
        """Keep what the device tells, and pass it on."""
        fresh = self.device.take_events()
        self.events += fresh
        for event in fresh:
            self.mailbox.on_event(event, self.clock.now)

    def _admits(self, group_id, size_bytes):
        return self.mailbox.admits(group_id, size_bytes)

    def sweep(self, ms=60_000):
        """Let time pass until the mailbox has looked at every body."""
        self.clock.advance(ms)
        self.mailbox.wake(self.clock.now)
        self.commit()

    def catch_up(self):
        """Let time pass until no command waits, and the mailbox be woken when it wants to be."""
        while self.mailbox.sizes()["commands_waiting"]:
            self.clock.now = max(self.clock.now, self.mailbox.deadline())
            self.mailbox.wake(self.clock.now)
            self.commit()

    def live(self, group):
        """Return how many bodies of a group are kept."""
        return self.device.usage(group.group_id).live_count


class Owner(Party):
    """A device that commands a mailbox."""

    def __init__(self, clock, number, mailbox_key, profile=SEED):
        super().__init__(clock, number, profile=profile)
        self.control = control_group(profile, self.key, mailbox_key)
        self.join(self.control, mailbox_key)
        self.last = ()

    def say(self, command):
        """Leave a command or raw content for the mailbox, and return its identifier."""
        content = command if isinstance(command, bytes) else encode(command)
        found = self.add(self.control, deps_v1_body(self.last, content), self.clock.now)
        self.last = (found,)
        return found

    def ask(self, mailbox, command):
        """Say something, meet the mailbox, and return its answer; None when there is none."""
        said = self.say(command)
        meet(self, mailbox)
        return self.answer_to(said)

    def answer_to(self, said):
        """Return the answer that depends on a command."""
        for vertex in self.device.messages(self.control.group_id):
            if vertex.dependencies == (said,) and vertex.body_present:
                body = self.device.body(self.control.group_id, vertex.message_id)
                content = deps_v1_content(body)
                if content[1] >= 0x80:
                    return decode(content)
        return None


M, A, B, C = (key_pair(number).public for number in (1, 2, 3, 4))
DONE = Done(AnswerStatus.DONE)
FRIENDS = SEED.group(CLIENT_ID, b"friends", "opaque")


def host(group=FRIENDS, *members, keep_ms=0):
    """Return the command that hosts a group."""
    return Host(group.group_id, group.client_id, group.descriptor, members or (A, B), group.format, keep_ms)


def meet(one, other):
    """Connect two parties, let them say everything, and cut the connection; who is unknown is not let in."""
    if not (one.device.knows(other.key) and other.device.knows(one.key)):
        return
    pairs = [(one, other), (other, one)]
    for party in (one, other):
        party.commit()
    links = [(party, party.device.link_up(peer.key, TERMS, party.clock.now)) for party, peer in pairs]
    is_busy = True
    while is_busy:
        is_busy = False
        for party, peer in pairs:
            party.commit()
            if not peer.device.knows(party.key) or not party.device.knows(peer.key):
                continue
            data = b"".join(party.device.send_due(peer.key, party.clock.now))
            for record in RecordReader(party.profile).feed(data):
                peer.device.receive(party.key, record, party.clock.now)
            is_busy = is_busy or bool(data)
            peer.commit()
    for party, link in links:
        party.device.link_down(link, party.clock.now)
