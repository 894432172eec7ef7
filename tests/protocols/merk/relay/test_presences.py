"""Laws of protocols.merk.relay.presences: what proves where a client is (findings 2 and 3)."""

from dataclasses import replace

import pytest

from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, NODE, X, absent_at, claimed_at, found_at, world
from tests.protocols.merk.net import WALL_MS, Net
from waystation.core.instant import Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Feature, PresenceKind, QueryClient, Role
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.presences import WallClock, is_presence_current, is_proof_of_presence

MINUTE_MS = 60_000


def presence(issued_ms=WALL_MS, lasts_ms=10 * MINUTE_MS, kind=PresenceKind.CONNECTED):
    """Return what Bob signs about the node."""
    return wire.make_presence(BOB, kind, NODE.public, issued_ms, issued_ms + lasts_ms)


def test_the_clock_is_an_offset():
    """Microseconds of the monotonic clock become Unix milliseconds."""
    clock = WallClock()
    clock.offset_us = WALL_MS * 1_000 - 5_000_000

    assert clock.ms(Instant(7_500_000)) == WALL_MS + 2_500


@pytest.mark.parametrize(
    ("shown", "is_current"),
    [
        (presence(), True),
        (presence(WALL_MS + MINUTE_MS), True),
        (presence(WALL_MS + MINUTE_MS + 1), False),
        (presence(WALL_MS - 10 * MINUTE_MS), False),
        (presence(WALL_MS - 10 * MINUTE_MS + 1), True),
        (presence(lasts_ms=10 * MINUTE_MS + 1), False),
        (presence(lasts_ms=0), False),
        (presence(lasts_ms=30 * 24 * 60 * MINUTE_MS, kind=PresenceKind.MAILBOX), True),
        (presence(lasts_ms=30 * 24 * 60 * MINUTE_MS + 1, kind=PresenceKind.MAILBOX), False),
    ],
)
def test_a_presence_holds_for_its_time(shown, is_current):
    """A minute ahead at most, not over, and for no longer than ten minutes, or thirty days for mail."""
    assert is_presence_current(shown, WALL_MS) is is_current
    assert is_proof_of_presence(shown, BOB.public, NODE.public, WALL_MS) is is_current


def test_a_presence_proves_one_client_at_one_node():
    """Neither another client, nor another node, nor with a changed byte."""
    shown = presence()

    assert not is_proof_of_presence(shown, CAROL.public, NODE.public, WALL_MS)
    assert not is_proof_of_presence(shown, BOB.public, X.public, WALL_MS)
    assert not is_proof_of_presence(replace(shown, until_ms=shown.until_ms - 1), BOB.public, NODE.public, WALL_MS)


# What clients say


def clients_word(line, **change):
    """Return Bob's presence at his node, with some of it changed and not signed anew."""
    return replace(line.presence(BOB, node=line.node.key), **change)


@pytest.mark.parametrize(
    "said",
    [
        lambda line: line.presence(CAROL, node=line.node.key),
        lambda line: line.presence(BOB, node=X.public),
        lambda line: line.presence(BOB, PresenceKind.MAILBOX, node=line.node.key),
        lambda line: line.presence(BOB, node=line.node.key, issued_ms=61_000),
        lambda line: line.presence(BOB, node=line.node.key, issued_ms=-600_000),
        lambda line: clients_word(line, issued_ms=line.presence(BOB, node=line.node.key).issued_ms + 1),
    ],
    ids=["other client", "other node", "mailbox", "future", "over", "newer and not signed anew"],
)
def test_a_client_says_only_where_it_is(said):
    """Anything else is a strike, and what it said before stays."""
    net, node, _ = world(peers=0)
    bob = net.client(node, BOB)
    held = bob.session.presence
    bob.say(said(bob))

    assert node.refused(Refusal.BAD_PRESENCE) == 1
    assert bob.session.presence is held
    assert bob.closed is None


def test_a_presence_that_is_no_newer_is_not_verified(monkeypatch):
    """Whoever repeats one costs the node no signature check, and gets no strike."""
    net, node, _ = world(peers=0)
    bob = net.client(node, BOB)
    held, checked = bob.session.presence, []
    monkeypatch.setattr(wire, "verify", lambda *words: checked.append(words))
    bob.say(held)

    assert checked == []
    assert (bob.session.presence, bob.session.strikes) == (held, 0)


def test_a_presence_counts_behind_auth_only():
    """Who has signed a challenge and no more says nothing about being here."""
    net, node, _ = world(peers=0)
    bob = net.client(node, BOB, hello=False).greet()
    bob.say(bob.presence(BOB, node=node.key))

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1
    assert bob.session.presence is None


def test_the_newest_presence_is_shown_while_it_holds():
    """A renewed one takes the place of the older; one that is over is shown to nobody."""
    net, node, _, x = world()
    bob = net.client(node, BOB)
    net.pass_ms(5 * MINUTE_MS)
    newer = bob.presence(BOB, node=node.key)
    bob.say(newer, bob.presence(BOB, node=node.key, issued_ms=-MINUTE_MS))
    x.hear()
    x.say(QueryClient(BOB.public))
    shown = x.told()
    net.pass_ms(10 * MINUTE_MS)
    x.hear()
    x.say(QueryClient(BOB.public))

    assert shown == [newer]
    assert [type(info).__name__ for info in x.told()] == ["ClientFound"]


def test_a_presence_goes_to_whoever_understands_it():
    """A node without the feature gets the answer of old."""
    net, node, _ = world(peers=0)
    net.client(node, BOB)
    old = net.connect(node, X).answer()
    old.greet(Role.NODE, features=Feature.MESH).prove().hear()
    old.say(QueryClient(BOB.public))

    assert [type(info).__name__ for info in old.told()] == ["ClientFound"]


# What nodes show


def test_a_node_that_shows_a_presence_gets_the_mail():
    """At once, whoever else claims the client or has not answered."""
    _, node, alice, liar, honest = world(peers=2)
    frame = alice.write(BOB)
    claimed_at(liar)
    before = liar.forwarded()
    found_at(honest)

    assert before == []
    assert honest.forwarded() == [frame]
    assert node.searches() == ["found"]


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        (lambda line: line.presence(BOB, node=CAROL.public), Refusal.LYING_PEER),
        (lambda line: replace(line.presence(BOB), signature=bytes(64)), Refusal.BAD_PRESENCE),
        (lambda line: replace(line.presence(CAROL), client=BOB.public), Refusal.BAD_PRESENCE),
        (lambda line: line.presence(BOB, issued_ms=-600_000), Refusal.BAD_PRESENCE),
    ],
    ids=["of another node", "unsigned", "of another client", "over"],
)
def test_a_false_presence_draws_no_mail(said, refusal):
    """It counts as a no, and the search ends with that (finding 3)."""
    _, node, alice, liar = world()
    alice.write(BOB)
    liar.say(said(liar))

    assert liar.forwarded() == []
    assert len(alice.codes()) == 1
    assert node.refused(refusal) == 1


def test_a_presence_that_nobody_asked_for_is_a_strike():
    """An answer counts from the node that was asked, once."""
    _, node, alice, x = world()
    alice.write(BOB)
    found_at(x)
    found_at(x)

    assert node.refused(Refusal.UNASKED_ANSWER) == 1


def test_a_presence_once_seen_makes_bare_claims_worthless():
    """The client signs its presence, so who shows none has not got it; for originals nothing changes."""
    net, _, alice, x = world()
    alice.write(BOB)
    found_at(x)
    x.hang_up()
    alice.hear()
    other = net.peer(alice.node, CAROL)
    alice.write(BOB, b"again")
    claimed_at(other)

    assert other.forwarded() == []
    assert alice.codes() == [1]


def test_two_nodes_of_ours_find_a_client_by_its_presence():
    """From end to end, between two relays."""
    net = Net()
    a, b = net.mesh("a", "b")
    alice, bob = net.client(a, ALICE), net.client(b, BOB)
    frame = alice.write(BOB)

    assert bob.content() == [frame]
    assert alice.codes() == [0]


def test_a_client_that_has_left_is_absent_with_or_without_a_presence():
    """A denial ends the search as before."""
    _, _, alice, x = world()
    alice.write(BOB)
    absent_at(x)

    assert alice.codes() == [1]
