"""Laws of protocols.bsp.mailbox_commands."""

import random

import pytest

from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.mailbox.commands import (
    HOSTED_DESCRIPTOR_BYTES_MAX,
    KEEP_MAX_MS,
    KEEP_MIN_MS,
    MEMBERS_MAX,
    ROWS_MAX,
    Amounts,
    AnswerStatus,
    ChangeMembers,
    Done,
    Drop,
    Host,
    HostedRow,
    State,
    Status,
    decode,
    encode,
    is_answer,
)
from waystation.protocols.bsp.messages import BODY_BYTES_MAX
from waystation.protocols.bsp.refusals import MalformedError, Refusal

GROUP = b"\x11" * 32
CLIENT = b"\x22" * 32
A, B = b"\xaa" * 32, b"\xbb" * 32
MANY = tuple(number.to_bytes(32, "big") for number in range(MEMBERS_MAX))
AMOUNTS = Amounts(1, 2, 3, 4)
ROW = HostedRow(GROUP, 2, 3_000, 4, 5, 6, 7, 8)

MESSAGES = [
    Host(GROUP, CLIENT, b"friends", (A, B), "deps_v1", 60_000),
    Host(GROUP, b"x", b"", ()),
    Host(GROUP, bytes(100), bytes(HOSTED_DESCRIPTOR_BYTES_MAX), MANY, "opaque", KEEP_MAX_MS),
    ChangeMembers(GROUP, (A,), (B,)),
    ChangeMembers(GROUP, MANY, MANY),
    ChangeMembers(GROUP),
    Drop(GROUP),
    Status(),
    Status(GROUP),
    *map(Done, AnswerStatus),
    State(AMOUNTS, Amounts(0, 0, 0, 0), False, ()),
    State(AMOUNTS, AMOUNTS, True, (ROW,) * ROWS_MAX),
]


def refused(content):
    """Return whether a content is refused as a mailbox command."""
    with pytest.raises(MalformedError) as caught:
        decode(content)
    return caught.value.refusal is Refusal.MAILBOX_COMMAND


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_comes_back(message):
    """What was written is read."""
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (
            Host(GROUP, CLIENT, b"ab", (A,), "deps_v1", 258),
            b"\x01\x01" + GROUP + bytes(6) + b"\x01\x02\x01\x20" + CLIENT + b"\x00\x02ab\x00\x01" + A,
        ),
        (ChangeMembers(GROUP, (A,), (B,)), b"\x01\x02" + GROUP + b"\x00\x01" + A + b"\x00\x01" + B),
        (Drop(GROUP), b"\x01\x03" + GROUP),
        (Status(), b"\x01\x04" + bytes(32)),
        (Done(AnswerStatus.TAKEN), b"\x01\x80\x06"),
        (
            State(AMOUNTS, AMOUNTS, True, (ROW,)),
            b"\x01\x81"
            + bytes.fromhex("00000001 0000000000000002 00000003 00000004" * 2)
            + b"\x01\x00\x01"
            + GROUP
            + bytes.fromhex("0002 0000000000000bb8 0000000000000004 00000005 00000006 0000000000000007 00000008"),
        ),
    ],
)
def test_bytes_are_those_of_the_table(message, written):
    """The docstring's layout, written by hand."""
    assert encode(message) == written


@pytest.mark.parametrize(
    "message", [*MESSAGES[:2], *MESSAGES[5:10], MESSAGES[3]], ids=lambda message: type(message).__name__
)
def test_cut_or_longer_is_refused(message):
    """A content cut at any byte, or with a byte more, is refused."""
    written = encode(message)

    assert all(refused(written[:end]) for end in range(len(written)))
    assert refused(written + b"\x00")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\x02\x04" + bytes(32),
        b"\x01\x00" + bytes(32),
        b"\x01\x05" + bytes(32),
        b"\x01\x82" + bytes(32),
        b"\x01\x80\x0a",
        b"\x01\x02" + GROUP + b"\x01\x01" + bytes(257 * 32) + b"\x00\x00",
        b"\x01\x02" + GROUP + b"\xff\xff\x00\x00",
        b"\x01\x01" + GROUP + bytes(8) + b"\x02\x20" + CLIENT + bytes(4),
        b"\x01\x01" + GROUP + bytes(8) + b"\x00\x00" + bytes(4),
        b"\x01\x01" + GROUP + bytes(8) + b"\x00\x65" + bytes(101) + bytes(4),
        b"\x01\x01" + GROUP + bytes(8) + b"\x00\x20" + CLIENT + b"\x40\x01" + bytes(16_385) + bytes(2),
        b"\x01\x01" + GROUP + (KEEP_MIN_MS - 1).to_bytes(8, "big") + b"\x00\x20" + CLIENT + bytes(4),
        b"\x01\x01" + GROUP + (KEEP_MAX_MS + 1).to_bytes(8, "big") + b"\x00\x20" + CLIENT + bytes(4),
        b"\x01\x81" + bytes(40) + b"\x02\x00\x00",
    ],
)
def test_lies_are_refused(content):
    """Another version, an unknown kind or status, a count or length out of bounds or beyond the end."""
    assert refused(content)


def test_bounds_of_the_time_are_allowed():
    """The shortest, the longest and the mailbox's own time are read."""
    for keep_ms in (0, KEEP_MIN_MS, KEEP_MAX_MS):
        host = Host(GROUP, CLIENT, b"", (), keep_ms=keep_ms)

        assert decode(encode(host)) == host


def test_key_that_stands_twice_counts_once():
    """Keys keep their order, without repeats."""
    content = encode(ChangeMembers(GROUP, (B, A, B), ()))

    assert decode(content).add == (B, A)


def test_everything_fits_a_body():
    """The longest command leaves room for two dependencies, the longest answer for one."""
    longest = max(len(encode(message)) for message in MESSAGES)

    assert len(encode(MESSAGES[2])) == longest == 24_724
    assert len(deps_v1_body((GROUP, GROUP), encode(MESSAGES[2]))) < BODY_BYTES_MAX


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_answers_are_told_from_commands_unread(message):
    """One look at the kind keeps a mailbox from answering answers."""
    assert is_answer(encode(message)) == isinstance(message, Done | State)
    assert not is_answer(b"\x01")


def test_statuses_name_what_is_counted():
    """Everything but done has a refusal, two of them one of their own."""
    assert AnswerStatus.DONE.refusal is None
    assert AnswerStatus.WRONG_GROUP_ID.refusal is Refusal.MAILBOX_GROUP_ID
    assert AnswerStatus.GROUPS_FULL.refusal is Refusal.MAILBOX_GROUPS_FULL
    assert {status.refusal for status in AnswerStatus if status not in (0, 2, 3)} == {Refusal.MAILBOX_COMMAND}


def test_noise_is_read_or_refused():
    """Flipped bytes of real messages lead to a message or to the one error."""
    rng = random.Random(6)
    written = [encode(message) for message in MESSAGES if len(encode(message)) < 500]
    reasons = set()
    for _ in range(2_000):
        content = bytearray(rng.choice(written))
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            assert encode(decode(bytes(content)))
        except MalformedError as error:
            reasons.add(error.refusal)

    assert reasons == {Refusal.MAILBOX_COMMAND}
