"""A mesh of relays in memory, and connections to them whose other side a test plays.

Every relay is the real one. Bytes travel in order on each connection; between connections they travel in the order in
which they were sent, or in one that a seed draws. ``Line`` is a connection that a test speaks on.
"""

import random
from collections import deque

from tests.protocols.merk.build import forwards_in
from tests.protocols.refusing import commit_to
from waystation.core.effects import Close, Commit, Dial, Peer, Send, SendMany
from waystation.core.facts import MeshLinkEnded, MeshLookup, Refused
from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import DEFAULT_LIMITS, MerkLimits
from waystation.protocols.merk.messages import (
    Auth,
    ClientAbsent,
    Deliveries,
    Delivery,
    DeliveryCode,
    Feature,
    Forward,
    Hello,
    MessageType,
    PresenceKind,
    QueryClient,
    Role,
)
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.store.memory import MemoryStore

START = Instant(1_000_000)
WALL_MS = 1_700_000_000_000
ALL_FEATURES = authentication.FEATURES
GATHERING = ALL_FEATURES | Feature.DELIVERIES
"""What a node says that gets one notice for many frames."""
TURNS_MAX = 20_000
LEFT_WHEN_ALL_HAVE_GONE = (
    *("addresses", "learnt_addresses", "connect_addresses"),
    *("adverts", "places", "seen_forwards"),
)
"""What a relay may remember of those who have left."""


def in_force(**limits):
    """Return the limits that parts of a relay hold to: the defaults but for what is named."""
    return InForce(MerkLimits(**limits))


def key_of(name):
    """Return the key pair that goes with a name."""
    return KeyPair.from_seed(random.Random(f"key {name}").randbytes(32))


def ordered_keys(count):
    """Return so many key pairs, the smallest public key first."""
    return sorted((key_of(f"ordered {number}") for number in range(count)), key=lambda pair: pair.public)


def data_to(target, sender, content=b"hello"):
    """Return a DATA frame, its header signed by the sender."""
    payload = target.public + content
    header56 = wire.encode_header(MessageType.DATA, len(payload), sender.public)
    return header56 + sign(sender, wire.header_message(header56, payload)) + payload


class Node:
    """A relay and what it has said to nobody in particular."""

    def __init__(self, net, name, key_pair, relay, store):
        self.net, self.name, self.key_pair, self.relay, self.store = net, name, key_pair, relay, store
        self.key = key_pair.public
        self.facts, self.dials, self.closed = [], [], {}

    @property
    def sizes(self):
        """How much of everything it holds."""
        return self.relay.sizes()

    @property
    def links(self):
        """Keys of the nodes that it trusts."""
        nodes = self.relay.mesh(self.net.now)["nodes"]
        return {bytes.fromhex(each["key"]) for each in nodes if each["trust"] == "mutual"}

    def refused(self, refusal):
        """Return how often it has turned something down for this reason."""
        return sum(fact.times for fact in self.facts if isinstance(fact, Refused) and fact.reason == refusal.value)

    def facts_of(self, kind):
        """Return what it told the journal, of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def searches(self):
        """Return how its searches ended."""
        return [fact.result for fact in self.facts_of(MeshLookup)]

    def link_ends(self):
        """Return the links that are over."""
        return self.facts_of(MeshLinkEnded)


class Line:
    """One connection to a relay, a test at its other end."""

    def __init__(self, net, node, peer, key):
        self.net, self.node, self.peer, self.key = net, node, peer, key
        self.heard = []
        self.close = None
        self.nonce = b""
        self.their_hello = None

    @property
    def closed(self):
        """Why the relay closed it, None while it stands."""
        return self.close.reason if self.close else None

    @property
    def session(self):
        """What the relay knows of it."""
        return self.node.relay._sessions.by_peer.get(self.peer)

    # Speaking

    def send(self, *frames):
        """Send frames and let the net come to rest."""
        for frame in frames:
            self.node.relay.receive(self.peer, frame, self.net.now)
        self.net.settle()
        return self

    def say(self, *infos):
        """Send what NODE_INFO frames say."""
        return self.send(*(wire.encode_info_frame(info, self.key.public) for info in infos))

    def write(self, target, content=b"hello"):
        """Send DATA; return the frame."""
        frame = data_to(target, self.key, content)
        self.send(frame)
        return frame

    def answer(self):
        """Answer the challenge that has been heard."""
        (challenge,) = self.hear()
        return self.send(authentication.answer_frame(wire.decode_frame(challenge).payload, self.key))

    def greet(self, role=Role.CLIENT, features=ALL_FEATURES, address=""):
        """Say HELLO."""
        self.nonce = random.Random(self.peer).randbytes(32)
        return self.say(Hello(features, role, self.key.public, self.nonce, address))

    def proof(self, hello, role=Role.NODE, key=None):
        """Return the proof that belongs to our HELLO and the relay's."""
        key = key or self.key
        message = wire.auth_message(key.public, hello.key, self.nonce, hello.nonce, role, hello.role)
        return Auth(sign(key, message))

    def prove(self):
        """Prove our key with what the relay has said."""
        self.their_hello = next(info for info in self.told() if isinstance(info, Hello))
        return self.say(self.proof(self.their_hello))

    def presence(self, client, kind=PresenceKind.CONNECTED, *, issued_ms=0, lasts_ms=600_000, node=None):
        """Return what ``client`` signs about being at the node that speaks here, some time after the start."""
        issued_ms += self.net.wall_ms
        return wire.make_presence(client, kind, node or self.key.public, issued_ms, issued_ms + lasts_ms)

    def is_here(self, **times):
        """Say AUTH and PRESENCE as a client of ours does."""
        self.their_hello = next(info for info in self.told() if isinstance(info, Hello))
        here = self.presence(self.key, node=self.node.key, **times)
        return self.say(self.proof(self.their_hello, Role.CLIENT), here)

    def forward(self, frame, message_id, hop=1, origin=None):
        """Forward a frame of a client as a node does."""
        return self.say(Forward(hop, message_id, origin or self.key.public, frame))

    # Hearing

    def hear(self):
        """Return and forget the frames that came."""
        heard, self.heard = self.heard, []
        return heard

    def told(self):
        """Return and forget what came, as far as NODE_INFO frames said it."""
        return [wire.decode_info_frame(frame) for frame in self.hear() if frame[2] == MessageType.NODE_INFO]

    def content(self):
        """Return and forget the frames of clients that came, without an envelope."""
        return [frame for frame in self.hear() if frame[2] in (2, 4, 5)]

    def notices(self):
        """Return and forget what came, as codes of frames by their hash."""
        return [(DeliveryCode(info.code), info.frame_hash) for info in self.told() if isinstance(info, Delivery)]

    def gathered(self):
        """Return and forget the notices of many frames that came, as codes and ids."""
        return [tuple(info) for info in self.told() if isinstance(info, Deliveries)]

    def codes(self):
        """Return and forget the codes that came."""
        return [code for code, _ in self.notices()]

    def questions(self):
        """Return and forget the clients that we were asked about."""
        return [info.key for info in self.told() if isinstance(info, QueryClient)]

    def deny(self):
        """Say of everybody whom we are asked about that they are not here."""
        return self.say(*(ClientAbsent(key) for key in self.questions()))

    def forwarded(self):
        """Return and forget the frames that came in envelopes, alone or together."""
        return [forward.frame for info in self.told() for forward in forwards_in(info)]

    # Ends

    def hang_up(self):
        """End it from our side."""
        self.net.lines.pop((self.node.name, self.peer), None)
        self.node.relay.disconnect(self.peer, self.net.now)
        self.net.settle()

    def stall(self):
        """Stop reading."""
        self.node.relay.congested(self.peer, self.net.now)
        self.net.settle()
        return self

    def drain(self):
        """Read everything."""
        self.node.relay.drained(self.peer, self.net.now)
        self.net.settle()
        return self


class Net:
    """Relays, the connections between them, and time."""

    def __init__(self, seed=None):
        self.now = START
        self.nodes, self.lines, self.pipes = {}, {}, {}
        self.queue = deque()
        self.order = None if seed is None else random.Random(seed)
        self.aliases = {}
        """Further names of relays."""
        self.unreachable = set()
        self.answered = []
        """Lines to which a relay has dialled, at addresses where a test listens."""
        self._peers = 0

    # Relays

    def node(
        self,
        name="a",
        *,
        key_pair=None,
        store=None,
        rate_limits=True,
        admits=lambda _key: True,
        is_unlimited=lambda _key: False,
        admits_unproved=lambda: True,
        settles=True,
        limits=DEFAULT_LIMITS,
        **settings,
    ):
        """Start a relay, whose address is ``ws://name``, and let it dial its peers unless others start with it."""
        rng = random.Random(f"node {name} {self._peers}")
        key_pair, store = key_pair or key_of(f"node {name}"), store or MemoryStore()
        relay = MerkRelay(
            MerkSettings(**settings),
            key_pair,
            store,
            rng,
            limits=limits,
            rate_limits=rate_limits,
            admits=admits,
            is_unlimited=is_unlimited,
            admits_unproved=admits_unproved,
        )
        relay.set_wall(self.now, self.wall_ms * 1_000)
        node = self.nodes[name] = Node(self, name, key_pair, relay, store)
        if settles:
            self.settle()
        return node

    def mesh(self, *names, **settings):
        """Start relays of which each dials all before it."""
        started = []
        for name in names:
            peers = [f"ws://{other.name}" for other in started]
            started.append(self.node(name, peers=peers, **settings))
        return started

    def kill(self, node):
        """End a relay as a crash does."""
        for at in [at for at in self.pipes if at[0] == node.name]:
            self._cut(at)
        for at in [at for at in self.lines if at[0] == node.name]:
            del self.lines[at]
        del self.nodes[node.name]
        self.settle()

    def cut(self, one, other):
        """End every connection between two relays."""
        for at, far in list(self.pipes.items()):
            if (at[0], far[0]) == (one.name, other.name):
                for end in (at, far):
                    self.pipes.pop(end, None)
                    self.nodes[end[0]].relay.disconnect(end[1], self.now)
        self.settle()

    def pipes_between(self, one, other):
        """Return the connections' numbers at ``one``."""
        return [at[1] for at, far in self.pipes.items() if (at[0], far[0]) == (one.name, other.name)]

    @property
    def wall_ms(self):
        """What the wall clock shows, as all relays know it."""
        return WALL_MS + (self.now - START) // 1_000

    # Connections of tests

    def connect(self, node, key=None, address="", door=""):
        """Connect, and hear what the relay says first."""
        line = Line(self, node, self._number(), key or key_of("stranger"))
        self.lines[node.name, line.peer] = line
        if door:
            node.relay.connect_by(line.peer, door, self.now, address)
        else:
            node.relay.connect(line.peer, self.now, address)
        self.settle()
        return line

    def client(self, node, key, *, hello=True):
        """Connect as a client, and forget all that was said about it."""
        line = self.connect(node, key).answer()
        if hello:
            line.greet().is_here()
        line.hear()
        return line

    def peer(self, node, key, address="", *, features=ALL_FEATURES):
        """Connect as a node that proves itself and that the operator has named."""
        line = self.stranger(node, key, address, features=features)
        if line.session is not None:  # there may be a better link already
            line.session.is_unnamed = False
            if line.session.frames_allowance is not None:
                line.session.give_allowances(node.relay._limits.now, self.now)
        return line

    def stranger(self, node, key, address="", *, host="", features=ALL_FEATURES):
        """Connect as a node that proves itself and that nobody has named."""
        line = self.connect(node, key, host).answer()
        line.greet(Role.NODE, features, address).prove()
        line.hear()
        return line

    def original(self, node, key):
        """Come through the door for original relays."""
        line = self.connect(node, key, door="mesh")
        line.send(authentication.challenge_frame(b"\xff" * 32))
        line.hear()
        return line.send(authentication.confirm_frame(key.public))

    def dialled(self):
        """Return and forget the connections that relays have opened to addresses where tests listen."""
        answered, self.answered = self.answered, []
        return answered

    # Time

    def settle(self):
        """Carry out everything that is due now."""
        for _ in range(TURNS_MAX):
            busy = [self._turn(node) for node in list(self.nodes.values())]
            if self.queue:
                self._deliver()
            elif not any(busy):
                return
        raise AssertionError("the net does not come to rest")

    def pass_ms(self, duration_ms):
        """Let time go by, from deadline to deadline."""
        end = after_ms(self.now, duration_ms)
        for _ in range(TURNS_MAX):
            due = [at for node in self.nodes.values() if (at := node.relay.deadline()) is not None]
            self.now = max(self.now, min([end, *due]))
            self.settle()
            if self.now >= end:
                return
        raise AssertionError("a deadline does not go by")

    def _number(self):
        self._peers += 1
        return Peer(self._peers)

    def _turn(self, node):
        due = node.relay.deadline()
        if due is not None and due <= self.now:
            node.relay.wake(self.now)
        effects = node.relay.take()
        for effect in effects:
            self._carry_out(node, effect)
        return bool(effects)

    def _carry_out(self, node, effect):
        if isinstance(effect, Send | SendMany):
            assert effect.peer not in node.closed, f"{node.name} sends behind a close to {effect.peer}"
            for data in [effect.data] if isinstance(effect, Send) else effect.messages:
                self._send(node, effect.peer, data)
        elif isinstance(effect, Close):
            assert effect.peer not in node.closed, f"{node.name} closes {effect.peer} twice"
            node.closed[effect.peer] = effect
            self._close(node, effect)
        elif isinstance(effect, Dial):
            node.dials.append(effect)
            self._dial(node, effect)
        elif isinstance(effect, Commit):
            commit_to(node.store, node.relay, effect, self.now)
        else:
            node.facts.append(effect)

    def _send(self, node, peer, data):
        line = self.lines.get((node.name, peer))
        if line is not None:
            line.heard.append(data)
            return
        far = self.pipes.get((node.name, peer))
        if far is not None:
            self.queue.append((far, data))

    def _close(self, node, effect):
        line = self.lines.pop((node.name, effect.peer), None)
        if line is not None:
            line.close = effect
        elif (node.name, effect.peer) in self.pipes:
            self._cut((node.name, effect.peer))

    def _cut(self, at):
        far = self.pipes.pop(at)
        self.queue.append((far, None))

    def _deliver(self):
        entry = self.queue[0] if self.order is None else self._draw()
        self.queue.remove(entry)
        (name, peer), data = entry
        node = self.nodes.get(name)
        if node is None:
            return
        if data is None:
            self.pipes.pop((name, peer), None)
            node.relay.disconnect(peer, self.now)
        else:
            node.relay.receive(peer, data, self.now)

    def _draw(self):
        ends = list(dict.fromkeys(end for end, _ in self.queue))
        chosen = self.order.choice(ends)
        return next(entry for entry in self.queue if entry[0] == chosen)

    def _dial(self, node, dial):
        name = dial.url.removeprefix("ws://").partition("/")[0]
        far = self.nodes.get(self.aliases.get(name, name))
        peer = self._number()
        if dial.url in self.unreachable or (far is None and not name.startswith("test")):
            node.relay.upstream_failed(dial.name, self.now)
        elif far is None:
            line = Line(self, node, peer, key_of(name))
            self.lines[node.name, peer] = line
            self.answered.append(line)
            node.relay.connect_upstream(peer, dial.name, self.now)
        else:
            there = self._number()
            self.pipes[node.name, peer] = (far.name, there)
            self.pipes[far.name, there] = (node.name, peer)
            far.relay.connect(there, self.now, "")
            node.relay.connect_upstream(peer, dial.name, self.now)


def assert_closed(line, refusal):
    """Assert that a relay closed a connection for a reason, with the status that goes with it."""
    assert line.closed is refusal
    assert line.close.status == refusal.status


def assert_nothing_left(node):
    """Assert that a relay holds nothing of those who have left."""
    assert {name: size for name, size in node.sizes.items() if size and name not in LEFT_WHEN_ALL_HAVE_GONE} == {}
