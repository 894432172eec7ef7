"""Small worlds around one relay, and what its neighbours say: what the tests of the relay and its parts share."""

import random

from tests.protocols.merk.net import START, Net, in_force, key_of
from waystation.core.effects import Peer
from waystation.core.instant import after_ms
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    ClientAbsent,
    ClientFound,
    Delivery,
    DeliveryCode,
    Hello,
    Role,
    ServerEntry,
    Servers,
)
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.session import Contact, Session, State, Traffic
from waystation.protocols.merk.settings import MerkSettings
from waystation.store.memory import MemoryStore

NODE, ALICE, BOB, CAROL, X, Y = (key_of(name) for name in ("node", "alice", "bob", "carol", "x", "y"))
DELIVERED, UNKNOWN, FULL = DeliveryCode.DELIVERED, DeliveryCode.UNKNOWN_TARGET, DeliveryCode.QUEUE_FULL
TIMEOUT, LARGE, RATE = DeliveryCode.LOOKUP_TIMEOUT, DeliveryCode.TOO_LARGE, DeliveryCode.RATE
ID = b"i" * 16
CHALLENGE = authentication.challenge_frame(b"\xff" * 32)
MIB = 1 << 20
SECOND = 1_000_000
PUBLIC = "ws://8.8.8.8/merk"


def world(*, peers=1, **settings):
    """Return a net, its node, Alice, and peers that a test plays (X, then Y)."""
    net = Net()
    node = net.node(**settings)
    lines = [net.peer(node, key) for key in (X, Y)[:peers]]
    for line in lines:
        line.hear()
    return net, node, net.client(node, ALICE), *lines


def world_of_two(*, peers=0, **settings):
    """Return a net, its node, Alice, Bob, and peers that a test plays (X, then Y)."""
    net, node, alice, *lines = world(peers=peers, **settings)
    return net, node, alice, net.client(node, BOB), *lines


# What a peer says


def presence_at(peer, target=BOB, **times):
    """Return what a client signs that is connected to a node, now or at other times."""
    return peer.presence(target, **times)


def found_at(peer, target=BOB, **times):
    """Let a peer show that it has a client."""
    return peer.say(presence_at(peer, target, **times))


def claimed_at(peer, target=BOB):
    """Let a peer say that it has a client, and show nothing."""
    return peer.say(ClientFound(target.public, peer.key.public))


def absent_at(peer, target=BOB):
    """Let a peer say that it has not."""
    return peer.say(ClientAbsent(target.public))


def tell(peer, code, frame, target=BOB):
    """Let a peer say what became of a frame."""
    return peer.say(Delivery(code, target.public, wire.frame_hash(frame)))


def notice(code, frame):
    """Return what a sender hears of a frame."""
    return [(code, wire.frame_hash(frame))]


# Nodes that are dialled


def dialled(net, key=X, *, learnt=False, **settings):
    """Return a node and the line of its one dial, on which nobody has spoken."""
    node = net.node(peers=[] if learnt else ["ws://test"], **settings)
    if learnt:
        net.peer(node, Y).say(Servers((ServerEntry(X.public, "ws://test"),)))
    (line,) = net.dialled()
    line.key = key
    return node, line


def confirmed(net, key=X, **settings):
    """Return the same, up to the relay's HELLO."""
    node, line = dialled(net, key, **settings)
    line.send(CHALLENGE, authentication.confirm_frame(key.public))
    return node, line


# What a node knows of others


def mesh_of(store=None, limits=None, **settings):
    """Return what a node knows of others at its start."""
    return Mesh(MerkSettings(**settings), NODE.public, store or MemoryStore(), random.Random(1), limits or in_force())


def link(key, number=1, *, url="", address="", stranger=False):
    """Return the proved connection of a node that we dialled at ``url``, or that came."""
    one = Session(Peer(number), State.PEER, START, contact=Contact(url, None) if url else None)
    one.identity = key.public
    one.hello = Hello(0, Role.NODE, key.public, bytes(32), address)
    one.link = Traffic(START)
    one.is_unnamed = stranger
    return one


def urls(known, now=START):
    """Return whom to dial now."""
    return [dial.url for dial in known.dials(now)]


def later(duration_ms):
    """Return a moment after the start."""
    return after_ms(START, duration_ms)


def learn(known, url, key=None, source=X, now=START):
    """Let a node name an address; return whether it may be dialled."""
    return known.learn(url, key and key.public, source.public, now)


def number_url(number):
    """Return one of many public addresses."""
    return f"ws://8.8.{number // 250}.{number % 250 + 1}"
