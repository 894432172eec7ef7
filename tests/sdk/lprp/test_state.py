"""Laws of what an LPRP participant keeps about itself and its hosts."""

import pytest

from tests.sdk.lprp.build import HOST
from waystation.core.errors import HostError, LocalError
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Kind
from waystation.sdk.lprp.state import CLOCK_RESERVE_MS, Lease, LprpState, WhitelistWish

NOW_S = 1_700_000_000.0
NOW_MS = int(NOW_S * 1_000)
A, B = bytes([1]) * 32, bytes([2]) * 32


@pytest.fixture
def opened(tmp_path):
    """Open the folder as often as wanted; all are closed at the end."""
    states = []

    def open_state(now_s=NOW_S):
        states.append(LprpState(tmp_path / "me", clock=lambda: now_s))
        return states[-1]

    yield open_state
    for state in states:
        state.close()


def test_identity_is_made_once_and_private(opened, tmp_path):
    """The key stays the same, and only its owner can read key and database."""
    first, second = opened(), opened()

    assert first.identity == second.identity
    assert [(tmp_path / "me" / name).stat().st_mode & 0o777 for name in ("lprp.key", "lprp.db")] == [0o600, 0o600]
    assert (tmp_path / "me").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("other", [None, "11" * 32 + "\n"], ids=["no key", "another key"])
def test_database_of_another_key_is_not_taken_over(opened, tmp_path, other):
    """Leases and mail belong to the key that they came for; a home without it is refused, and no new key is made."""
    opened().set_lease(HOST.public, Lease(5, 9))
    key = tmp_path / "me" / "lprp.key"
    key.unlink()
    if other is not None:
        key.write_text(other)
        key.chmod(0o600)

    with pytest.raises(HostError, match="put that key back") as refused:
        opened()
    assert refused.value.exit_code == 5
    assert key.exists() == (other is not None)


def test_key_that_others_may_read_is_refused(opened, tmp_path):
    """A secret that is none is told, with the way to mend it."""
    opened()
    (tmp_path / "me" / "lprp.key").chmod(0o644)

    with pytest.raises(HostError, match="chmod 600"):
        opened()


@pytest.mark.parametrize("text", ["", "zz", "00" * 31])
def test_file_that_holds_no_key_is_refused(opened, tmp_path, text):
    """A damaged key file is an error, not a new identity."""
    opened()
    (tmp_path / "me" / "lprp.key").write_text(text)

    with pytest.raises(HostError, match="does not hold a key"):
        opened()


def test_folder_that_cannot_be_used_is_a_host_error(tmp_path):
    """A file in the way is told."""
    (tmp_path / "me").write_text("")

    with pytest.raises(HostError, match="cannot use"):
        LprpState(tmp_path / "me")


def test_clock_on_disk_is_never_behind_what_was_used(opened):
    """A restart begins above every time that was reserved, also by another program of the folder."""
    first, second = opened(), opened()
    taken = first.reserve_clock(NOW_MS)
    others = second.reserve_clock(NOW_MS - 1_000)

    assert taken == (NOW_MS, NOW_MS + CLOCK_RESERVE_MS)
    assert others == (taken[1] + 1, taken[1] + 1 + CLOCK_RESERVE_MS)
    assert opened().clock_ms() == others[1]


def test_clock_that_was_far_ahead_is_forgotten(opened):
    """A time written under a wrong clock does not keep a participant out for ever; one within the window counts."""
    opened().reserve_clock(NOW_MS + CLOCK_WINDOW_MS)
    inside = opened(NOW_S + CLOCK_RESERVE_MS / 1_000).clock_ms()
    outside = opened(NOW_S + CLOCK_RESERVE_MS / 1_000 - 0.001).clock_ms()

    assert inside == NOW_MS + CLOCK_WINDOW_MS + CLOCK_RESERVE_MS
    assert outside == 0


def test_host_lease_and_bits_survive(opened):
    """What one run has learnt about a host, the next one knows."""
    first = opened()
    before = (first.last_host(), first.lease(HOST.public), first.bits(HOST.public), first.leases())
    first.remember_host("lprp://x@h:1")
    first.set_lease(HOST.public, Lease(5, 9))
    first.set_bits(HOST.public, Kind.RELAY, 18)
    later = opened()
    after = (later.last_host(), later.lease(HOST.public), later.bits(HOST.public), later.leases())
    later.set_lease(HOST.public, None)

    assert before == (None, None, {}, {})
    assert after == ("lprp://x@h:1", Lease(5, 9), {Kind.RELAY: 18}, {HOST.public: Lease(5, 9)})
    assert first.lease(HOST.public) is None


def test_whitelist_wish_and_what_the_host_agreed_to(opened):
    """A wish is kept until the host agrees, a failure until the next wish."""
    state = opened()
    state.change_whitelist(HOST.public, [A, B])
    state.fail_whitelist(HOST.public, "silent")
    failed = state.whitelist(HOST.public)
    state.change_whitelist(HOST.public, remove=[B])
    state.agree_whitelist(HOST.public, frozenset({A}))
    cleared = state.change_whitelist(HOST.public, [B], clear=True)

    assert failed == WhitelistWish(frozenset({A, B}), None, "silent")
    assert cleared == WhitelistWish(frozenset({B}), frozenset({A}), "")
    assert opened().whitelist(HOST.public) == cleared
    assert opened().whitelist(A) == WhitelistWish(frozenset(), None, "")


def test_whitelist_no_host_would_take_is_refused_and_changes_nothing(opened):
    """257 keys and the key of zeros are the caller's mistake."""
    state = opened()
    many = [number.to_bytes(32, "big") for number in range(1, 257)]
    state.change_whitelist(HOST.public, many)

    with pytest.raises(LocalError, match="256 keys"):
        state.change_whitelist(HOST.public, [A])
    with pytest.raises(LocalError, match="zeros"):
        state.change_whitelist(HOST.public, [bytes(32)], clear=True)
    assert state.whitelist(HOST.public).wanted == frozenset(many)


def test_change_of_another_program_is_noticed(opened):
    """A listener sees that somebody else has written, and that it was nudged."""
    listener, other = opened(), opened()
    before = (listener.changes(), listener.nudges())
    listener.remember_host("own change")
    own = listener.changes()
    other.nudge()

    assert own == before[0]
    assert listener.changes() != before[0]
    assert listener.nudges() == before[1] + 1


def test_failed_transaction_changes_nothing(opened):
    """All of a transaction or none of it is on disk."""
    state = opened()

    def fail():
        with state.transaction():
            state.run("INSERT INTO facts VALUES ('x', 1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert state.first("SELECT * FROM facts WHERE name = 'x'") is None


def test_disk_that_says_no_is_a_host_error(opened):
    """An error of the database is told with the file's name."""
    state = opened()

    with pytest.raises(HostError, match=r"lprp\.db"), state.transaction():
        state.run("INSERT INTO nothing VALUES (1)")
    with pytest.raises(HostError, match=r"lprp\.db"):
        state.all("SELECT * FROM nothing")
