"""Laws of server.http.credentials (NODE-TRIES, NODE-SESSION)."""

from waystation.core.instant import Instant
from waystation.server.http import credentials
from waystation.server.http.credentials import SESSION_S, SESSIONS_MAX, FailedTries, Sessions, is_equal

SECOND = 1_000_000


def at(seconds):
    """Return an instant."""
    return Instant(int(seconds * SECOND))


def test_secrets_are_compared_whole():
    """Neither a beginning nor more of it is the secret."""
    assert [is_equal(given, "secret") for given in ("secret", "secre", "secrets", "", "sécret")] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_session_ends_after_its_time():
    """However much it is used; the secret of none and of another is none."""
    sessions = Sessions()
    secret = sessions.make(at(0))

    assert sessions.hold(secret, at(SESSION_S) - 1)
    assert not sessions.hold(secret, at(SESSION_S))
    assert len(sessions) == 0
    assert not sessions.hold("", at(0)) and not sessions.hold(secret, at(0))


def test_sessions_are_different_and_ended_one_by_one_or_all():
    """Each has 32 random bytes of its own."""
    sessions = Sessions()
    first, second, third = (sessions.make(at(0)) for _ in range(3))
    ended = sessions.end(first), sessions.end(first)
    left = [sessions.hold(secret, at(1)) for secret in (first, second, third)]
    sessions.end_all()

    assert len({first, second, third}) == 3 and min(map(len, (first, second))) >= 43
    assert (ended, left) == ((True, False), [False, True, True])
    assert not sessions.hold(second, at(1))


def test_table_of_sessions_is_bounded():
    """One more than there may be ends the oldest."""
    sessions = Sessions()
    secrets = [sessions.make(at(0)) for _ in range(SESSIONS_MAX + 1)]

    assert len(sessions) == SESSIONS_MAX
    assert [sessions.hold(secret, at(1)) for secret in (secrets[0], secrets[1], secrets[-1])] == [False, True, True]


def test_secret_itself_is_not_kept():
    """What memory holds is a hash."""
    sessions = Sessions()
    secret = sessions.make(at(0))

    assert secret not in str(vars(sessions))


def test_wrong_tokens_of_an_address_are_limited():
    """Ten at once, then as many a minute; another address is not touched."""
    tries = FailedTries(at(0))
    first = [tries.note("a", at(0)) for _ in range(11)]

    assert first == [0] * 10 + [6]
    assert tries.note("b", at(0)) == 0
    assert [tries.note("a", at(6)) for _ in range(2)] == [0, 6]


def test_wrong_tokens_of_all_addresses_are_limited():
    """A hundred a minute in all, from whatever number of addresses."""
    tries = FailedTries(at(0))
    waits = [tries.note(f"10.0.0.{number}", at(0)) for number in range(101)]

    assert waits == [0] * 100 + [1]


def test_table_of_addresses_is_bounded(monkeypatch):
    """A further address replaces the one that was wrong longest ago."""
    monkeypatch.setattr(credentials, "ADDRESSES_MAX", 3)
    tries = FailedTries(at(0))
    for address in ("a", *"b" * 10, "c", "a", "d"):
        tries.note(address, at(0))

    assert len(tries) == 3
    assert tries.note("b", at(0)) == 0
