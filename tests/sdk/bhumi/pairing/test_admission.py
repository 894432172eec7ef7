import random

import pytest

from tests.sdk.build import BOB, issue
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.pairing import admission
from waystation.sdk.bhumi.pairing.admission import INVITE_DAYS, role_of, role_text
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts
from waystation.sdk.errors import UnknownPeerError

EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
P = [bytes([number]) * 32 for number in range(16)]
DAY_S = 86_400


class Clock:
    """Unix seconds that a test sets."""

    now_s = 1_000_000.5

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(tmp_path, clock):
    opened = BhumiState(tmp_path / "home", clock=clock)
    yield opened
    opened.close()


def meet(state, peer=BOB.public, issued=(P[1], P[2]), **facts):
    """Make a peer that has used an invite, with two preimages."""
    state.answered(P[0], peer, b"hello", issued, HandshakeFacts("bob", "tcp://bob:1", **facts))


def test_secrets_come_from_the_system(state):
    """Preimage and pairing secret are the system's, whatever generator a program has; each invite has its own."""
    random.seed(1)
    first = state.make_invite()
    random.seed(1)
    second = state.make_invite()

    assert len({first.preimage, first.secret, second.preimage, second.secret}) == 4


def test_invite_says_what_was_asked(state, clock):
    """An invite is good for 7 days and for everything unless told; the folder keeps secret and role."""
    usual = state.make_invite("bob")
    told = state.make_invite("eve", expires_s=60, allow={"led", "text"}, suite=PairedSuite.AES_CTR)
    endless = state.make_invite("zoe", expires_s=0)

    assert usual.expires_s == int(clock.now_s) + INVITE_DAYS * DAY_S
    assert (usual.suite, usual.identity) == (PairedSuite.CHACHA, state.identity)
    assert (told.suite, told.expires_s, endless.expires_s) == (PairedSuite.AES_CTR, int(clock.now_s) + 60, 0)
    grant = state.grant_of(told.preimage)
    assert (grant.secret, grant.allow, grant.alias) == (told.secret, {"led", "text"}, "eve")
    assert state.grant_of(usual.preimage).allow is None


@pytest.mark.parametrize("expires_s", [-1, 2**32])
def test_impossible_ends(state, expires_s):
    """An end before now, or beyond what an invitation can say, is refused."""
    with pytest.raises(LocalError, match="good for 1 s or more"):
        state.make_invite(expires_s=expires_s)


def test_invite_ends(state, clock):
    """An invite that has ended is registered no more, listed no more, and known as expired until the next is made."""
    invite = state.make_invite("bob", expires_s=10)
    before = state.preimages()
    clock.now_s += 10

    assert (before, state.preimages(), state.invites()) == ([invite.preimage], [], [])
    assert state.grant_of(invite.preimage).is_expired
    state.make_invite()
    assert state.grant_of(invite.preimage) is None


def test_invites_are_listed_and_cancelled(state, clock):
    """Each waiting invite has an alias and a name, and either cancels it; its preimage is in no list."""
    state.make_invite("bob", allow={"led"})
    clock.now_s += 1
    state.make_invite("eve", expires_s=0, suite=None)
    eve, bob = state.invites()

    assert (eve.alias, eve.is_legacy, eve.expires_s, bob.alias, bob.allow) == ("eve", True, 0, "bob", {"led"})
    assert repr(bob.preimage) not in repr(bob)
    assert state.cancel_invites("bob") == [bob]
    assert state.cancel_invites(eve.name) == [eve]
    assert state.preimages() == []
    for unknown in ("bob", ""):
        with pytest.raises(LocalError, match="no invite is called"):
            state.cancel_invites(unknown)


def test_peer_keeps_the_role_of_its_invite(state):
    """What the invite allowed is the peer's role until it is changed or lifted."""
    meet(state, allow=frozenset({"led"}))
    first = state.allowed(BOB.public)
    state.allow(BOB.public, ["reading", "text"])
    changed = state.peer(BOB.public).allow
    state.allow(BOB.public, [])
    nothing = state.allowed(BOB.public)
    state.allow(BOB.public, None)

    assert (first, changed, nothing, state.allowed(BOB.public)) == ({"led"}, {"reading", "text"}, frozenset(), None)
    assert state.allowed(EVE.public) is None


@pytest.mark.parametrize("names", ["led", [""], ["a,b"], ["a\n"], ["x" * 1_025]])
def test_role_that_cannot_be_kept(names):
    """A name with a comma, an empty one, and a text in place of a list are refused."""
    with pytest.raises(LocalError):
        role_text(names)


def test_role_is_its_text():
    """A role survives its text."""
    assert role_of(role_text({"led", "text"})) == {"led", "text"}
    assert role_of("") == frozenset()


def test_blocked_peer_keeps_its_permissions(state):
    """Nothing of a blocked peer is registered or granted; unblocking gives all of it back."""
    meet(state)
    state.block(BOB.public)
    blocked = (state.preimages(), state.grant_of(P[1]), state.peer(BOB.public).is_blocked)
    state.unblock(BOB.public)

    assert blocked == ([], None, True)
    assert state.preimages() == [P[1], P[2]]
    assert state.grant_of(P[1]).peer == BOB.public


def test_unpaired_peer_is_forgotten(state):
    """Permissions both ways, answers, places, requests under way: nothing is left of an unpaired peer."""
    meet(state, right=P[5], root=bytes([1]) * 32, dialect=Dialect.SUITE_3)
    state.begin_message(P[5], BOB.public, b"request")
    state.remember_place(BOB.public, "tcp://bob:1")
    state.remember_relays(BOB.public, ["tcp://bob:1"])
    state.unpair(BOB.public)

    left = [state.all(f"SELECT * FROM {table}") for table in ("peers", "issued", "theirs", "pending", "last_response")]
    assert left == [[]] * 5
    assert (state.preimages(), state.relays_of(), state.roots_of(BOB.public)) == ([], [], [])


@pytest.mark.parametrize("change", ["unpair", "block", "unblock"])
def test_unknown_peer_is_named(state, change):
    """Nobody can be unpaired or blocked who is not known."""
    with pytest.raises(UnknownPeerError, match="no peer has the key"):
        getattr(state, change)(EVE.public)


def test_roots_are_tried_newest_first(state):
    """After a second pairing the root before counts too, and a handshake without an outcome may be known already."""
    roots = [bytes([number]) * 32 for number in (0xA, 0xB, 0xC)]
    for root in roots[:2]:
        meet(state, issued=[], root=root, dialect=Dialect.SUITE_3)
    state.begin_handshake(P[9], BOB.public, b"", "", P[10], roots[2])

    assert state.roots_of(BOB.public) == [roots[1], roots[0], roots[2]]
    assert state.peer(BOB.public).root == roots[1]
    assert state.roots_of(EVE.public) == []


def test_legacy_handshake_weakens_no_pairing(state):
    """A peer that has a root keeps it, and its dialect, whatever handshake comes in its name."""
    meet(state, root=bytes([1]) * 32, dialect=Dialect.SUITE_3)
    meet(state, issued=[], dialect=Dialect.E2E)

    assert (state.peer(BOB.public).dialect, state.peer(BOB.public).root) == (Dialect.SUITE_3, bytes([1]) * 32)


def test_relays_and_authorities_are_kept(state):
    """What invitations named is there later: relays in their order, for one peer or all, authorities once each."""
    state.remember_relays(BOB.public, ["tls://a:1", "tls://b:1"])
    state.remember_relays(EVE.public, ["tls://b:1", "tls://c:1"])
    state.remember_relays(EVE.public, ["tls://c:1"])
    for der in (b"one", b"two", b"one"):
        state.keep_authority(der)

    assert state.relays_of(BOB.public) == ["tls://a:1", "tls://b:1"]
    assert set(state.relays_of()) == {"tls://a:1", "tls://b:1", "tls://c:1"}
    assert sorted(state.authorities()) == [b"one", b"two"]


def test_authorities_are_bounded(state, clock, monkeypatch):
    """The authority kept longest leaves when there are too many."""
    monkeypatch.setattr(admission, "_AUTHORITIES_MAX", 2)
    for der in (b"one", b"two", b"three"):
        clock.now_s += 1
        state.keep_authority(der)

    assert state.authorities() == [b"two", b"three"]


def test_own_place_is_the_last_one(state):
    """Where we listened last, and under which authority; nothing before the first time."""
    first = state.own_place()
    state.remember_own_place("tls://a:1", bytes(32))
    state.remember_own_place("tls://b:1", b"")

    assert (first, state.own_place()) == (("", b""), ("tls://b:1", b""))


def test_issued_preimages_of_a_blocked_peer_are_not_found_by_others(state):
    """Blocking one peer leaves the permissions of another alone."""
    meet(state)
    issue(state, EVE.public, [P[7]])
    state.block(BOB.public)

    assert state.preimages() == [P[7]]
