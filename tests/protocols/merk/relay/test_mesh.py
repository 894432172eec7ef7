"""Laws of protocols.merk.mesh: which addresses may be dialled, and when."""

import pytest

from tests.protocols.merk.build_relay import NODE, PUBLIC, SECOND, X, Y, later, learn, link, mesh_of, number_url, urls
from tests.protocols.merk.net import START, key_of
from waystation.core.effects import Dial
from waystation.core.records import Record
from waystation.protocols.merk.messages import ServerEntry
from waystation.protocols.merk.relay.mesh import TABLE
from waystation.rules.twins import Twin
from waystation.store.memory import MemoryStore

# Learning


def test_a_learnt_address_is_dialled_at_once_and_only_in_public():
    """The dialler must judge again what the name resolves to."""
    known = mesh_of()

    assert learn(known, PUBLIC, X)
    assert list(known.dials(START)) == [Dial(PUBLIC, PUBLIC, only_public=True)]
    assert urls(known) == []


def test_private_addresses_are_dialled_where_the_operator_allows():
    """The dialler then judges nothing."""
    known = mesh_of(allow_private_peers=True)

    assert learn(known, "ws://10.0.0.1", X)
    assert list(known.dials(START)) == [Dial("ws://10.0.0.1", "ws://10.0.0.1", only_public=False)]


def test_a_private_address_is_not_learnt():
    """It is refused in words, and takes no room."""
    known = mesh_of()

    assert not learn(known, "ws://127.0.0.1")
    assert (known.addresses_count, urls(known)) == (0, [])


@pytest.mark.parametrize("what", ["own url", "own key", "twice", "known key", "linked key"])
def test_what_is_known_already_is_not_learnt_again(what):
    """Neither ourselves nor a second way to the same node."""
    known = mesh_of(public_url="ws://me.example")
    learn(known, PUBLIC, X)
    known.stands(link(Y), START)
    url, key = {
        "own url": ("ws://me.example", None),
        "own key": ("ws://9.9.9.9", NODE),
        "twice": (PUBLIC, None),
        "known key": ("ws://9.9.9.9", X),
        "linked key": ("ws://9.9.9.9", Y),
    }[what]

    assert learn(known, url, key)
    assert known.addresses_count == 1


def test_learnt_addresses_are_bounded():
    """64, besides those of the operator, and 16 unproved ones of one node that names them."""
    known = mesh_of(peers=["ws://mine"])
    counts = []
    for source in range(6):
        for number in range(20):
            assert learn(known, number_url(100 * source + number), source=key_of(source))
        counts.append(known.addresses_count - 1)

    assert counts == [16, 32, 48, 64, 64, 64]


def test_a_full_table_lets_go_of_what_has_failed():
    """The unproved address that failed most makes room; what is proved, or has not been tried, stays."""
    known = mesh_of()
    for number in range(64):
        learn(known, number_url(number), source=key_of(number // 16))
    known.stands(link(key_of("proved"), url=number_url(0)), START)
    for number, failures in ((0, 3), (1, 1), (2, 2)):
        for _ in range(failures):
            known.failed(number_url(number), START)
    for number in (100, 101, 102):
        learn(known, number_url(number), source=key_of("late"))

    kept = set(known._addresses)
    assert len(kept) == 64
    assert {number_url(number) for number in (0, 3, 100, 101)} <= kept
    assert not {number_url(number) for number in (1, 2, 102)} & kept


def test_learnt_addresses_are_dialled_eight_a_minute():
    """In any minute; the operator's are not counted."""
    known = mesh_of(peers=[f"ws://mine{number}" for number in range(12)])
    for number in range(30):
        learn(known, number_url(number), source=key_of(number // 16))
    at_once = urls(known)
    waits = known.deadline()
    next_ones = [len(urls(known, later(duration_ms))) for duration_ms in (59_999, 60_000, 60_001, 119_999, 120_000)]

    assert len(at_once) == 12 + 8
    assert waits == later(60_000)
    assert next_ones == [0, 8, 0, 0, 8]


def test_dials_prefer_what_has_worked():
    """The operator's, then what has proved itself, then what has failed least: dead rumours starve nobody."""
    store = MemoryStore()
    store.commit([Record(TABLE, b"ws://9.9.9.9", Y.public)])
    known = mesh_of(store, peers=["ws://mine"])
    for number in range(10):
        learn(known, number_url(number))
    for number in range(4):
        known.failed(number_url(number), START)

    fresh = [number_url(number) for number in range(4, 10)]
    assert urls(known, later(10_000))[:8] == ["ws://mine", "ws://9.9.9.9", *fresh]


def test_rumours_of_one_peer_take_no_dials_of_another():
    """What an honest peer has named is dialled again, although it failed, while a liar names ever more that did not."""
    known = mesh_of()
    learn(known, PUBLIC, source=key_of(1))
    assert urls(known) == [PUBLIC]
    for _ in range(3):
        known.unreachable(PUBLIC, START)
    for number in range(16):
        learn(known, number_url(number), source=key_of(2))

    dialled = urls(known, later(60_000))
    assert len(dialled) == 8
    assert PUBLIC in dialled


def test_a_full_node_dials_only_whom_the_operator_named():
    """Half of the places are for strangers."""
    known = mesh_of(peers=["ws://mine"])
    for number in range(32):
        known.stands(link(key_of(number), number, stranger=True), START)
    learn(known, PUBLIC)

    assert urls(known) == ["ws://mine"]
    assert known.deadline() == later(120_000)


# Retrying


def test_the_operators_addresses_are_dialled_for_ever():
    """Waits of half a second doubling to thirty, each drawn between its half and its whole."""
    known, now, waits = mesh_of(peers=["ws://mine"]), START, []
    for _ in range(40):
        assert urls(known, now) == ["ws://mine"]
        assert list(known.dials(now)) == []
        known.failed("ws://mine", now)
        waits.append(known.deadline() - now)
        now = known.deadline()

    longest = [min(500_000 << number, 30 * SECOND) for number in range(40)]
    assert all(most // 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len(set(waits)) > 20


def test_an_operators_address_that_cannot_be_reached_is_dialled_within_6_s():
    """NODE-REDIAL: the waits of half a minute are for who answers and ends the link."""
    known, now = mesh_of(peers=["ws://mine"]), START
    for _ in range(12):
        assert urls(known, now) == ["ws://mine"]
        known.unreachable("ws://mine", now)
        assert known.deadline() - now <= 6 * SECOND
        now = known.deadline()


def test_a_learnt_address_that_cannot_be_reached_is_dialled_less_and_less():
    """Nobody vouches for it: after four failures in a row it waits longer than an address of the operator."""
    known, now = mesh_of(), START
    learn(known, PUBLIC)
    for _ in range(7):
        now = max(now, known.deadline())
        assert urls(known, now) == [PUBLIC]
        known.unreachable(PUBLIC, now)

    assert known.deadline() - now > 6 * SECOND


def test_a_learnt_address_is_given_up_after_eight_failures():
    """It takes no room any more, and may be learnt anew."""
    known, now = mesh_of(), START
    learn(known, PUBLIC)
    for _ in range(8):
        assert known.addresses_count == 1
        now = max(now, known.deadline())
        assert urls(known, now) == [PUBLIC]
        known.failed(PUBLIC, now)

    assert known.addresses_count == 0
    assert known.deadline() is None
    assert learn(known, PUBLIC, now=now)
    assert known.addresses_count == 1


@pytest.mark.parametrize(("stood_ms", "most_ms"), [(29_999, 8_000), (30_000, 500)])
def test_a_link_that_stood_starts_the_waits_anew(stood_ms, most_ms):
    """Half a minute is long enough to call it a success."""
    known = mesh_of(peers=["ws://mine"])
    for _ in range(4):
        known.failed("ws://mine", START)
    known.failed("ws://mine", START, stood_ms=stood_ms)

    assert most_ms * 500 <= known.deadline() - START <= most_ms * 1_000


def test_failures_of_unknown_addresses_mean_nothing():
    """An answer may come for an address that was forgotten meanwhile."""
    known = mesh_of()
    known.failed("ws://gone", START)
    known.forget("ws://gone")

    assert (known.addresses_count, known.take_changes()) == (0, ())


def test_an_address_of_ours_is_never_dialled_again():
    """Nor learnt again."""
    known = mesh_of(peers=["ws://mine"])
    known.twins.sign(b"challenge")
    known.twins.proved_ours(b"challenge", Twin(NODE.public, ()), START)
    known.has_our_key("ws://mine", b"challenge", START)

    assert urls(known, later(10**6)) == []
    assert learn(known, "ws://mine")
    assert known.addresses_count == 0


def test_an_address_of_a_twin_is_dialled_again():
    """NODE-TWIN: another node answers there under our key; it may get a key of its own. A learnt one is forgotten."""
    known = mesh_of(peers=["ws://mine"])
    learn(known, PUBLIC, X)
    for url in ("ws://mine", PUBLIC):
        known.has_our_key(url, b"challenge", START)

    assert known.addresses_count == 1
    assert known.twins.since(START) == [Twin(NODE.public, ("ws://mine",))]


def test_a_learnt_key_is_expected_and_an_operators_is_not():
    """An operator's address may get a new key; a rumour must be right."""
    known = mesh_of(peers=["ws://mine"])
    learn(known, PUBLIC, X)
    known.stands(link(Y, url="ws://mine"), START)

    assert known.contact(PUBLIC) == (PUBLIC, X.public)
    assert known.contact("ws://mine") == ("ws://mine", None)
    assert known.contact("ws://forgotten") == ("ws://forgotten", None)


# Claims of linked nodes, and of others about them


def test_a_false_address_of_a_node_keeps_no_true_one_out():
    """Until one of them is proved, each teller may name its own; then nobody names another."""
    known = mesh_of()
    learn(known, "ws://8.8.8.1", Y, source=X)
    learn(known, "ws://8.8.8.2", Y, source=key_of("honest"))
    learn(known, "ws://8.8.8.3", Y, source=X)
    dialled = urls(known)
    known.stands(link(Y, url="ws://8.8.8.2"), START)
    known.lost(known.links[Y.public])
    learn(known, "ws://8.8.8.4", Y, source=key_of("late"))

    assert dialled == ["ws://8.8.8.1", "ws://8.8.8.2"]
    assert known.addresses_count == 2


def test_what_a_stranger_says_of_itself_is_dialled_once():
    """Though it is linked: so that it is known to be true before clients are given it (finding 2)."""
    known = mesh_of()
    stranger = link(X, address=PUBLIC, stranger=True)
    known.stands(stranger, START)
    known.claims(stranger, START)
    before, dialled = known.servers(for_clients=True), urls(known)
    goes_on = not known.confirmed(PUBLIC, X.public, START)
    known.stands(link(X, 2, url=PUBLIC, stranger=True), START)
    known.failed(PUBLIC, START)

    assert before == ()
    assert (dialled, goes_on) == ([PUBLIC], True)
    assert known.servers(for_clients=True) == (ServerEntry(X.public, PUBLIC),)
    assert urls(known, later(60_000)) == []


def test_a_claim_that_another_key_answers_is_given_to_no_client():
    """Whoever names somebody else's address, or one where nobody is, has named none for clients."""
    known = mesh_of()
    stranger = link(X, address=PUBLIC, stranger=True)
    known.stands(stranger, START)
    known.claims(stranger, START)
    urls(known)
    known.stands(link(Y, 2, url=PUBLIC, stranger=True), START)

    assert known.servers(for_clients=True) == (ServerEntry(Y.public, PUBLIC),)


def test_nodes_are_still_given_what_a_stranger_says():
    """They dial under the same guards, and believe what is proved to them."""
    known = mesh_of()
    known.stands(link(X, address=PUBLIC, stranger=True), START)

    assert known.servers() == (ServerEntry(X.public, PUBLIC),)
