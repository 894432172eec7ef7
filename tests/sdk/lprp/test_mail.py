"""Laws of what has arrived, on disk."""

import asyncio

import pytest

from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS
from waystation.protocols.lprp.payload.fragments import Fragment
from waystation.sdk.lprp import mail as lprp_mail
from waystation.sdk.lprp.mail import Mail
from waystation.sdk.lprp.state import LprpState

NOW_MS = 1_700_000_000_000
LIFE_MS = 1_000
BOB, ID = b"b" * 32, b"i" * 16


class Clock:
    """A time of day that tests move."""

    def __init__(self):
        self.now_ms = NOW_MS

    def __call__(self):
        return self.now_ms / 1_000


@pytest.fixture
def clock():
    """The time of day."""
    return Clock()


@pytest.fixture
def state(tmp_path, clock):
    """An open folder."""
    state = LprpState(tmp_path, clock=clock)
    yield state
    state.close()


def put(state, mail, message_id=ID, body=b"hello"):
    """Keep a message; return its position."""
    with state.transaction():
        return mail.put_message(BOB, message_id, NOW_MS, sealed=True, body=body)


def test_packet_is_known_until_the_clock_rule_keeps_it_out(state, clock):
    """A signature is remembered to its end over a restart, and then forgotten."""
    mail = Mail(state, life_ms=LIFE_MS)
    mail.add(b"s" * 64, NOW_MS + 50)
    known = (mail.has(b"s" * 64), mail.has(b"t" * 64))
    clock.now_ms += 50
    at_the_end = Mail(state, life_ms=LIFE_MS).has(b"s" * 64)
    clock.now_ms += 1

    assert known == (True, False)
    assert at_the_end
    assert not Mail(state, life_ms=LIFE_MS).has(b"s" * 64)


def test_message_waits_until_it_is_finished(state):
    """A message comes back whole after a restart until it is done, and never afterwards."""
    mail = Mail(state, life_ms=LIFE_MS)
    position = put(state, mail)
    again = Mail(state, life_ms=LIFE_MS)
    message = again.message(position)
    before = (again.positions(), again.waiting_count)
    asyncio.run(again.finish(message))

    assert before == ([position], 1)
    assert (message.sender, message.id, message.data) == (BOB, ID, b"hello")
    assert (message.sent_ms, message.received_ms, message.sealed) == (NOW_MS, NOW_MS, True)
    assert (again.positions(), again.waiting_count, Mail(state, life_ms=LIFE_MS).positions()) == ([], 0, [])


def test_same_message_is_kept_once_also_when_it_is_done(state, clock):
    """An id of one sender is one message for as long as its packets may be old; another sender's is another."""
    mail = Mail(state, life_ms=LIFE_MS)
    first = put(state, mail)
    twice = put(state, mail)
    asyncio.run(mail.finish(mail.message(first)))
    finished = mail.is_finished(BOB, ID)
    late = put(state, mail)
    clock.now_ms += LIFE_MS + CLOCK_WINDOW_MS + 1
    much_later = put(state, Mail(state, life_ms=LIFE_MS))

    assert (twice, late) == (None, None)
    assert finished and not mail.is_finished(b"c" * 32, ID)
    assert much_later > first


def test_whole_message_takes_its_parts_along(state):
    """Nothing of a message that is kept whole lies about in parts; those of another stay."""
    mail = Mail(state, life_ms=LIFE_MS)
    with state.transaction():
        mail.parts.put(BOB, Fragment(ID, 0, 2, b"one"))
        mail.parts.put(BOB, Fragment(b"j" * 16, 0, 2, b"other"))
    before = mail.parts.parts_count
    put(state, mail)

    assert (before, mail.parts.parts_count) == (2, 1)


def test_limits_drop_the_oldest_as_soon_as_much_is_new(state, monkeypatch):
    """Signatures beyond their limit go, oldest first, and not only every hour."""
    monkeypatch.setattr(lprp_mail, "SEEN_MAX", 2)
    monkeypatch.setattr(lprp_mail, "TIDY_AFTER", 4)
    mail, known = Mail(state, life_ms=LIFE_MS), []
    for number in range(4):
        mail.add(bytes([number]) * 64, NOW_MS + number)
        mail.tidy_if_much_is_new()
        known.append([mail.has(bytes([each]) * 64) for each in range(number + 1)])

    assert known[2:] == [[True] * 3, [False, False, True, True]]


@pytest.mark.parametrize(("name", "limit"), [("INBOX_COUNT_MAX", 2), ("INBOX_BYTES_MAX", 10)])
def test_full_by_count_and_by_bytes(state, monkeypatch, name, limit):
    """A mailbox that nobody reads is full at its limit, also after a restart, and open again when one is done."""
    monkeypatch.setattr(lprp_mail, name, limit)
    mail = Mail(state, life_ms=LIFE_MS)
    put(state, mail, b"1" * 16)
    before = mail.full
    position = put(state, mail, b"2" * 16)
    full = (mail.full, Mail(state, life_ms=LIFE_MS).full)
    asyncio.run(mail.finish(mail.message(position)))

    assert (before, full, mail.full) == (False, (True, True), False)
