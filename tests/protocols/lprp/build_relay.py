"""A host without a network: gives it datagrams, carries out what it asks for, and keeps what it sent.

``Host`` plays the server around one ``LprpRelay``. A ``Person`` is a key with an address that talks to it. Everything a
host sends is counted against what it was sent, after every step, by a second bookkeeping of LPRP-D17 and LPRP-D18.
"""

from collections import Counter

from tests.protocols.lprp.build import BIG, HOST, NOW_MS, SENDER, TENANT
from tests.protocols.refusing import commit_to
from waystation.core.effects import Commit, SendTo, Verify
from waystation.core.facts import Refused
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.lprp.limits import DEFAULT_LIMITS
from waystation.protocols.lprp.messages import STALE_ADDRESS_MS, Command
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.relay.sources import prefix_key
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.lprp.whitelist import ZERO_KEY, toggled, whitelist_hash
from waystation.protocols.lprp.work import is_enough, leading_zero_bits, search, solution_of, work_hash
from waystation.store.memory import MemoryStore

START = Instant(5_000_000)
BITS = 4
AT_HOME, ELSEWHERE, AFAR = ("192.0.2.10", 1000), ("192.0.2.10", 2000), ("198.51.100.7", 3000)
HOUR_MS = 3_600_000
TURNS_MAX = 10_000


def key_of(number):
    """Return the key pair that goes with a number."""
    return KeyPair.from_seed(number.to_bytes(32, "little"))


def address_of(number):
    """Return an address in a prefix of its own."""
    return (f"10.{number >> 8 & 255}.{number & 255}.9", 4000)


def settings_of(**changes):
    """Return settings under which work is a matter of a few hashes, unless ``changes`` say otherwise."""
    little = {f"pow_base_bits_{kind}": BITS for kind in ("relay", "lease", "whitelist")}
    return LprpSettings(**{"pow_adaptive": False, **little, **changes})


class Accountant:
    """Knows what may be sent where, from the datagrams alone; forgives nothing."""

    def __init__(self, codec):
        self.codec, self.bytes_in, self.bytes_out, self.credit = codec, Counter(), Counter(), Counter()
        self.proved, self.went_to, self.heard_at = {}, {}, {}

    def came(self, data, address, host, wall_ms, now):
        """A datagram arrived."""
        if self.codec.screen(data, wall_ms) is not None:
            return
        if now - self.heard_at.get(address, now) > STALE_ADDRESS_MS * 1_000:
            self.proved.pop(address, None)
            self.bytes_in[address] = self.bytes_out[address] = 0
        self.heard_at[address] = now
        self.bytes_in[address] += len(data)
        self.credit[prefix_key(address[0])] += len(data)
        packet = self.codec.read(data)
        if packet.command is Command.WORK and self.went_to.get(packet.reference) == {address}:
            self.proved[address] = packet.sender

    def left(self, data, address, tenant_at):
        """A datagram leaves; ``tenant_at`` is the address on file of whom it is for, if that is a tenant."""
        packet = self.codec.read(data)
        if packet.command & 0x600 == 0x600:
            self.went_to.setdefault(packet.signature, set()).add(address)
        if self.proved.get(address) != packet.recipient:
            self.bytes_out[address] += len(data)
        if tenant_at != address:
            self.credit[prefix_key(address[0])] -= len(data)
        assert self.credit[prefix_key(address[0])] >= 0, "strangers were sent more than came from their prefix"
        assert self.bytes_out[address] <= 4 * self.bytes_in[address], "unproved places were sent more than four times"


class Host:
    """One relay with its store, its clock, and all it ever sent."""

    def __init__(
        self,
        *,
        store=None,
        wall_ms=NOW_MS,
        codec=BIG,
        rate_limits=True,
        admits=lambda _key: True,
        limits=DEFAULT_LIMITS,
        **settings,
    ):
        self.store = store if store is not None else MemoryStore()
        self.codec, self.now, self.offset_ms = codec, START, wall_ms - START // 1_000
        self.key = HOST
        self.made_with = {"rate_limits": rate_limits, "admits": admits, "limits": limits}
        self.settings = settings_of(**settings)
        self.facts, self.sent, self.refused, self.commits = [], [], Counter(), []
        self.holds_commits = self.holds_checks = self.believes_all = False
        self.held, self.checks_held, self.checks_count = [], [], 0
        self.met = []
        """Refusals as facts."""
        self.start()

    def start(self):
        """Begin a life on what the store has."""
        self.relay = LprpRelay(self.settings, self.key, self.store, **self.made_with)
        self.relay.set_wall(self.now, self.wall_ms * 1_000)
        self.books = Accountant(self.codec)
        self.held, self.checks_held = [], []

    def restart(self):
        """Lose everything but the store."""
        self.start()
        self.relay.wake(self.now)
        return self.run()

    @property
    def wall_ms(self):
        """The host's clock, Unix milliseconds."""
        return self.now // 1_000 + self.offset_ms

    @property
    def sizes(self):
        """How much of everything it holds."""
        return self.relay.sizes()

    def view(self, person):
        """What an operator sees of a tenant, None when there is no such tenant."""
        key = person.key.public.hex()
        return next((each for each in self.relay.tenants(self.now) if each["key"] == key), None)

    def give(self, *datagrams):
        """Let datagrams arrive in one batch; return what left, as (address, packet)."""
        for data, address in datagrams:
            self.books.came(data, address, self.key.public, self.wall_ms, self.now)
        self.relay.receive_datagrams(list(datagrams), self.now)
        return self.run()

    def run(self):
        """Carry out what the relay asks for until it asks no more; return what left."""
        before = len(self.sent)
        for _ in range(TURNS_MAX):
            effects = self.relay.take()
            if not effects:
                return self.sent[before:]
            for effect in effects:
                self._do(effect)
        raise AssertionError("the relay never comes to rest")

    def release(self):
        """Carry out the commits and checks that were held back, and hold none back any more."""
        self.holds_commits = self.holds_checks = False
        held, self.held = self.held, []
        checks, self.checks_held = self.checks_held, []
        for effect in (*held, *checks):
            self._do(effect)
        return self.run()

    def confirm_one(self):
        """Carry out the one commit that is held back; go on holding the next."""
        (commit,) = self.held
        self.held = []
        self.holds_commits = False
        self._do(commit)
        self.holds_commits = True
        return self.run()

    def pass_ms(self, duration_ms):
        """Let time pass, waking the relay when it wants to be; return what left as (ms since now, address, packet)."""
        begin, end, left = self.now, after_ms(self.now, duration_ms), []
        for _ in range(TURNS_MAX):
            due = self.relay.deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.relay.wake(self.now)
            left += [((self.now - begin) // 1_000, *each) for each in self.run()]
        else:
            raise AssertionError("the relay wants to be woken for ever")
        self.now = end
        return left

    def turn_clock(self, wall_ms):
        """Set the wall clock to this time, forward or back."""
        self.offset_ms += wall_ms - self.wall_ms
        self.relay.set_wall(self.now, self.wall_ms * 1_000)

    def facts_of(self, kind):
        """Return what it told the journal, of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def _do(self, effect):
        if isinstance(effect, SendTo):
            packet = self.codec.read(effect.data)
            self.books.left(effect.data, effect.address, self._on_file(packet))
            self.sent.append((effect.address, packet))
        elif isinstance(effect, Verify):
            if self.holds_checks:
                self.checks_held.append(effect)
                return
            self.checks_count += len(effect.checks)
            answers = [0 if self.believes_all else verify_any(*check) for check in effect.checks]
            self.relay.verified(effect.ticket, answers, self.now)
        elif isinstance(effect, Commit):
            if self.holds_commits:
                self.held.append(effect)
                return
            self.commits.append(effect.changes)
            commit_to(self.store, self.relay, effect, self.now)
        elif isinstance(effect, Refused):
            self.refused[effect.reason] += effect.times
            self.met.append(effect)
        else:
            self.facts.append(effect)

    def _on_file(self, packet):
        views = self.relay.tenants(self.now)
        place = next((each["address"] for each in views if each["key"] == packet.recipient.hex()), "")
        host, _, port = place.rpartition(":")
        return (host.strip("[]"), int(port)) if place else None


class Person:
    """A key at an address; its packets have strictly increasing times."""

    def __init__(self, host, key, address=AT_HOME):
        self.host, self.key, self.address, self.last_ms = host, key, address, 0

    @property
    def public(self):
        """Its key."""
        return self.key.public

    def packet(self, command, payload=b"", *, to=None, time_ms=None):
        """Sign a packet for the host, or for ``to``."""
        if time_ms is None:
            time_ms = self.last_ms = max(self.host.wall_ms, self.last_ms + 1)
        return self.host.codec.seal(self.key, (to or self.host.key).public, command, payload, time_ms)

    def say(self, command, payload=b"", *, to=None, time_ms=None, at=None):
        """Sign and send; return the packets that left to whomever."""
        packet = self.packet(command, payload, to=to, time_ms=time_ms)
        return self.repeat(packet, at=at)

    def repeat(self, packet, *, at=None):
        """Send these bytes; return the packets that left to whomever."""
        return [sent for _, sent in self.host.give((packet.data, at or self.address))]

    def beat(self, **options):
        """Send a heartbeat."""
        return self.say(Command.HEARTBEAT, **options)

    def solve(self, challenge, *, bits=BITS, **options):
        """Answer a challenge."""
        return self.repeat(self.solution(challenge, bits), **options)

    def solution(self, challenge, bits=BITS):
        """Return the 101 that answers a challenge."""
        counter = search(challenge.data, bits, 0, 1 << bits + 8)
        return self.packet(Command.WORK, challenge.signature + solution_of(counter))

    def lease(self):
        """Ask for a lease and do the work; return self."""
        (challenge,) = [p for p in self.say(Command.ASK_LEASE, bytes(64)) if p.command is Command.LEASE_DEMANDS_WORK]
        assert Command.LEASE_GRANTED in commands(self.solve(challenge, bits=self.host.settings.pow_base_bits_lease))
        return self

    def mail(self, to, payload=bytes(64), **options):
        """Send a 102; return the packets that left."""
        return self.say(Command.RELAY, payload, to=to.key, **options)

    def letter(self, to, payload=bytes(64), **options):
        """Return a 102 without sending it."""
        return self.packet(Command.RELAY, payload, to=to.key, **options)

    def confirm(self, *letters, **options):
        """Say that letters have arrived."""
        return [sent for letter in letters for sent in self.say(Command.DELIVERED, letter.signature, **options)]

    def toggle(self, *toggles, current=(), **options):
        """Ask for a whitelist update that turns ``toggles`` over in ``current``."""
        return self.repeat(self.update(*toggles, current=current), **options)

    def update(self, *toggles, current=(), time_ms=None):
        """Return that 108."""
        wanted = toggled(frozenset(current), toggles)
        return self.packet(Command.UPDATE_WHITELIST, whitelist_hash(wanted) + b"".join(toggles), time_ms=time_ms)

    def compare(self, *keys, **options):
        """Ask whether the whitelist has just these keys."""
        return self.say(Command.UPDATE_WHITELIST, whitelist_hash(keys) + ZERO_KEY, **options)

    def clear(self, **options):
        """Empty the whitelist."""
        return self.say(Command.CLEAR_WHITELIST, bytes(64), **options)


def at_time(packet, time_ms):
    """Return a big-endian packet with another time and a bad signature; many of them cost little."""
    return packet.data[:63] + b"\xff" + time_ms.to_bytes(8, "big") + packet.data[72:]


def world(*, at=AT_HOME, sender_at=AFAR, **options):
    """Return a host, a tenant that holds a lease and is reached, and a sender it does not know."""
    host = Host(**options)
    return host, Person(host, TENANT, at).lease(), Person(host, SENDER, sender_at)


def friends(*, at=AT_HOME, sender_at=AFAR, **options):
    """Return the same, with the sender on the tenant's whitelist."""
    host, tenant, sender = world(at=at, sender_at=sender_at, **options)
    assert commands(tenant.toggle(sender.public)) == [Command.WHITELIST_DONE]
    return host, tenant, sender


def commands(packets):
    """Return what packets say, without their contents."""
    return [packet.command for packet in packets]


def weak_solution(challenge, bits):
    """Return the smallest counter's solution that has exactly ``bits`` zero bits."""
    return next(
        solution_of(counter)
        for counter in range(1 << bits + 12)
        if leading_zero_bits(work_hash(challenge.data, solution_of(counter))) == bits
        and not is_enough(challenge.data, solution_of(counter), bits + 1)
    )
