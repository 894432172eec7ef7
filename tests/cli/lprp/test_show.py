"""Laws of what ``waystation lprp`` shows."""

import json

import pytest

from tests.sdk.lprp.build import NOBODY
from waystation.cli.lprp.show import (
    HostNews,
    describe_lease,
    describe_sent,
    describe_work,
    show_interrupted,
    show_lease,
    show_message,
    show_sent,
)
from waystation.cli.progress import ProgressLines
from waystation.protocols.lprp.client.events import RequestOutcome
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.sdk.lprp import (
    HostAnswered,
    HostUnreachable,
    Lease,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    Message,
    Outcome,
    PacketDropped,
    SendProgress,
    Sent,
    StoreFailed,
    StoreRecovered,
    WorkEnded,
    Working,
    WorkProgress,
)

KEY = b"k" * 32
WORK = WorkProgress(20, 500_000, 0.5)


@pytest.fixture
def news():
    """News of somebody who listens; bars are never drawn."""
    with ProgressLines(shown=False) as lines:
        yield HostNews(lines, NOBODY, public_key=KEY, listens=True)


def message(body, *, sealed=True, sent_ms=0):
    """Return a message with a body."""
    return Message(b"s" * 32, b"i" * 16, body, sealed, sent_ms, 5, 1, lambda _: None)


def test_work_tells_rate_and_what_is_to_be_expected():
    """Somebody who waits sees tries, speed, and how much longer such a search takes on average."""
    assert describe_work(WORK) == "about 1.0 s more, 500,000 of about 1,048,576 hashes, 1,000,000 a second, 20 bits"
    assert describe_work(WorkProgress(8, 0, 0.0)) == "0 of about 256 hashes, 8 bits"


def test_text_of_a_sender_steers_no_terminal(capsys):
    """Control characters are shown as what they are, in text and in JSON."""
    for as_json in (False, True):
        show_message(message(b"a\x1b[2Jb\nc"), NOBODY, as_json=as_json)
    out = capsys.readouterr().out

    assert "\x1b" not in out
    assert out.startswith("1970-01-01 00:00:00  sealed  " + (b"s" * 32).hex() + "\n  a\\x1b[2Jb\n  c\n")
    assert json.loads(out.splitlines()[-1])["text"] == "a\x1b[2Jb\nc"


def test_bytes_and_absurd_times_are_shown(capsys):
    """What is no text is shown as bytes, and a clock of the far future ends with the year 9999."""
    show_message(message(b"\xff" * 70, sealed=False, sent_ms=2**63), NOBODY, as_json=False)
    out = capsys.readouterr().out

    assert out.startswith("9999-12-31 23:59:59  readable by all on its way")
    assert f"70 bytes: {'ff' * 64}…" in out


@pytest.mark.parametrize(
    ("lease", "said"),
    [(None, "lease  none"), (Lease(0, 1_000), "lease  ended 1970-01-01 00:00:01 UTC"), (Lease(0, 2**45), " from now")],
)
def test_lease_is_none_over_or_until_then(capsys, lease, said):
    """Each state of a lease has its words."""
    document = describe_lease(lease, NOBODY, KEY)
    show_lease(document, as_json=False)

    assert said in capsys.readouterr().out
    assert document["active"] == (lease is not None and lease.until_ms > 2**40)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_outcome_goes_to_stdout_only_when_it_is_good(capsys, outcome):
    """A script that reads stdout sees only what was accepted."""
    sent = Sent(outcome, b"i" * 16, 2, 1, 7)
    show_sent(sent, KEY, NOBODY, sealed=True, as_json=False)
    out, err = capsys.readouterr()
    document = describe_sent(sent, KEY, NOBODY, sealed=True)

    assert (bool(out), bool(err)) == (outcome.ok, not outcome.ok)
    assert "in 2 packets, after 7 hashes" in out or outcome.sentence in err
    assert (document["outcome"], document["parts"], document["accepted_parts"]) == (outcome.value, 2, 1)


def test_long_message_that_was_refused_in_the_middle_says_what_there_is_room_for(capsys):
    """Who has left some packets and no more learns how many a host keeps for who is away."""
    show_sent(Sent(Outcome.REFUSED, b"i" * 16, 208, 16, 7), KEY, NOBODY, sealed=True, as_json=False)
    err = capsys.readouterr().err

    assert "16 of 208 packets were accepted" in err
    assert "16 of an unknown sender" in err


def test_refused_lease_is_not_asked_again_by_who_does_not_listen(capsys):
    """A command that ends does not say that it goes on."""
    news = HostNews(ProgressLines(shown=False), NOBODY, public_key=KEY, listens=False)
    news.show(LeaseRefused(RequestOutcome.REFUSED))

    assert capsys.readouterr().err == ""


def test_listening_is_said_once_until_the_host_was_silent(news, capsys):
    """One line when messages can come, another when that is so again."""
    for event in (LeaseGranted(1, 2), HostAnswered(3), LeaseDoubted(), HostAnswered(4)):
        news.show(event)
    lines = capsys.readouterr().err.splitlines()

    assert lines[0] == lines[2] == f"listening as {KEY.hex()} at {NOBODY}"
    assert "is silent" in lines[1]
    assert len(lines) == 3


def test_trouble_is_told_and_the_usual_is_not(news, capsys):
    """What a person can do something about is said once; duplicates are nobody's business."""
    news.say_silent()
    for event in (
        HostUnreachable("no address", 1.0),
        HostUnreachable("no address", 2.0),
        LeaseRefused(RequestOutcome.REFUSED),
        PacketDropped(Refusal.DUPLICATE, None),
        PacketDropped(Refusal.BAD_SIGNATURE, KEY),
        PacketDropped(Refusal.LENGTH, None),
        Working(Kind.LEASE, b"r", WORK),
        WorkEnded(Kind.LEASE, b"r", WORK, "no process"),
        WorkEnded(Kind.LEASE, b"r", WORK, ""),
    ):
        news.show(event)
    news.close()
    lines = capsys.readouterr().err.splitlines()

    assert [line.partition(" ")[0] for line in lines] == ["waystation:"] * 6
    told = ["does not answer yet", "no address", "no lease (refused)", "bad_signature 1", "no process", "length 1"]
    assert all(said in line for said, line in zip(told, lines, strict=True))


def test_dropped_packets_are_counted_and_told_once_a_minute(capsys):
    """Whoever sends rubbish at any rate makes one line a minute of it, and one at the end if there was more."""
    now_s = [0.0]
    news = HostNews(ProgressLines(shown=False), NOBODY, public_key=KEY, listens=True, clock=lambda: now_s[0])
    for second in range(70):
        now_s[0] = float(second)
        for _ in range(100):
            news.show(PacketDropped(Refusal.LENGTH, None))
        news.show(PacketDropped(Refusal.BAD_SIGNATURE, bytes([second]) * 32))
    news.close()
    news.close()
    lines = capsys.readouterr().err.splitlines()

    assert lines == [
        "waystation: dropped 1 packet: length 1",
        "waystation: dropped 6,060 packets: length 6,000, bad_signature 60",
        "waystation: dropped 1,009 packets: length 999, bad_signature 10",
    ]


def test_keys_that_answer_are_not_told_without_end(news, capsys):
    """Of many wrong keys the first few are told."""
    for number in range(50):
        news.show(PacketDropped(Refusal.WRONG_HOST, bytes([number]) * 32))

    assert len(capsys.readouterr().err.splitlines()) == 8


@pytest.mark.parametrize(
    ("progress", "message_id", "said"),
    [
        (
            SendProgress(13, 203, None),
            b"i" * 16,
            f"accepted 13 of 203 packets; send the same again with --id {'69' * 16} ",
        ),
        (None, b"i" * 16, "accepted 0 packets; send"),
        (SendProgress(0, 1, None), None, "accepted 0 of 1 packets\n"),
    ],
)
def test_interrupted_send_says_how_to_go_on(capsys, progress, message_id, said):
    """How much is at the host already, and with which id the rest makes the same message; a raw one has none."""
    show_interrupted(progress, message_id)
    out, err = capsys.readouterr()

    assert out == ""
    assert said in err


def test_silence_is_not_told_to_who_was_heard(news, capsys):
    """A host that has answered is not called silent."""
    news.show(HostAnswered(1))
    capsys.readouterr()
    news.say_silent()

    assert capsys.readouterr().err == ""


def test_wrong_key_of_a_host_is_told_once(news, capsys):
    """Who has named the wrong key learns which one answers, and is not told of each of its packets."""
    for _ in range(3):
        news.show(PacketDropped(Refusal.WRONG_HOST, KEY))
    (line,) = capsys.readouterr().err.splitlines()

    assert f"another key answers at udp://127.0.0.1:9: {KEY.hex()}" in line


def test_disk_that_refuses_is_told_until_it_takes_writes(news, capsys):
    """A sentence when it begins and one when it is over."""
    news.show(StoreFailed("cannot use lprp.db: disk is full"))
    news.show(StoreRecovered(12.4))

    assert capsys.readouterr().err.splitlines() == [
        "waystation: this disk refuses, and what arrives is not confirmed: cannot use lprp.db: disk is full",
        "waystation: this disk takes writes again, after 12 s",
    ]
