"""Laws of cli.merk_show."""

import json
from pathlib import Path

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.cli.merk.show import ConnectionNews, describe_message, file_bars, show_message
from waystation.cli.output import visible
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.merk import (
    Auth,
    Connected,
    Disconnected,
    FileFailed,
    FileProgress,
    Json,
    Message,
    MessageDropped,
    Mode,
    Raw,
    ReceivedFile,
    ServersLearnt,
    Text,
)

A = ALICE.signing.public
URL = "ws://relay.example/merk"


def message(content, *, auth=Auth.BOUND, time_ms=1_700_000_000_123, late=False):
    """Return a message from Alice."""
    return Message(A, Mode.ENCRYPTED, auth, content, time_ms, b"m" * 16, late, URL)


@pytest.mark.parametrize(
    ("content", "document"),
    [
        (Text("hi"), {"kind": "text", "text": "hi"}),
        (Json('{"a":[1]}'), {"kind": "json", "json": {"a": [1]}}),
        (Raw(b"hi"), {"kind": "raw", "data_base64": "aGk=", "text": "hi"}),
        (Raw(b"\xff"), {"kind": "raw", "data_base64": "/w=="}),
        (ReceivedFile("a", 2, data=b"xx"), {"kind": "file", "name": "a", "bytes": 2, "saved": "inbox/a"}),
    ],
)
def test_every_content_has_its_document(content, document):
    """Kind and content of each, beside what is known about every message."""
    found = describe_message(message(content), Path("inbox/a"))

    assert {name: found[name] for name in document} == document
    assert (found["sender"], found["mode"], found["auth"], found["relay"]) == (A.hex(), "encrypted", "bound", URL)
    assert (found["sent_at_ms"], found["message_id"], found["late"]) == (1_700_000_000_123, (b"m" * 16).hex(), False)


def test_json_is_one_line(capsys):
    """Whatever the text, one message is one line."""
    show_message(message(Text("a\nb")), None, as_json=True)
    out = capsys.readouterr().out

    assert out.count("\n") == 1
    assert json.loads(out)["text"] == "a\nb"


def test_number_beyond_all_numbers_is_given_as_it_was_sent(capsys):
    """JSON can write what programs read as infinity; the line stays JSON."""
    show_message(message(Json("[1e999]")), None, as_json=True)
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    assert (document["json"], document["text"]) == (None, "[1e999]")


def test_message_is_shown_with_time_proof_and_whole_sender(capsys):
    """The first line can be pasted from, the text stands below."""
    show_message(message(Text("one\ntwo")), None, as_json=False)

    first = f"2023-11-14 22:13:20  encrypted, bound  {A.hex()}  id {(b'm' * 16).hex()}"
    assert capsys.readouterr().out == f"{first}\n  one\n  two\n"


@pytest.mark.parametrize(
    ("auth", "note"),
    [(Auth.LEGACY, "for, or by, somebody else"), (Auth.AMBIGUOUS, "challenge"), (Auth.NONE, "nothing proves")],
)
def test_weak_proof_is_explained(capsys, auth, note):
    """Whoever does not know the words is told what they mean."""
    show_message(message(Text("x"), auth=auth, time_ms=None), None, as_json=False)

    assert note in capsys.readouterr().out


def test_late_message_is_marked(capsys):
    """A possible replay is shown as such."""
    show_message(message(Text("x"), late=True), None, as_json=False)

    assert "may be a replay" in capsys.readouterr().out


def test_terminal_is_not_steered(capsys):
    """Control characters of texts and file names are shown as what they are."""
    show_message(message(Text("a\x1b[2Jb")), None, as_json=False)
    show_message(message(ReceivedFile("\x1b]0;x\x07", 1, data=b"x")), None, as_json=False)
    show_message(message(Raw(b"\xff" * 100)), None, as_json=False)
    out = capsys.readouterr().out

    assert "\x1b" not in out and "\x07" not in out
    assert "a\\x1b[2Jb" in out
    assert "100 bytes: ff" in out
    assert visible("\u202e") == "\\u202e"


def news(*, waits=True):
    """Return what says news, with bars that are never drawn."""
    return ConnectionNews(file_bars(shown=False), public_key=A, waits=waits)


def test_connection_is_told_once_per_loss(capsys):
    """A relay that stays away is told once, and again after it was back."""
    teller = news()
    lost = Disconnected(URL, "gone\x07", None, 1.0)
    for event in (lost, lost, Connected(URL, 1.0, b"k" * 32, authenticated=False), lost):
        teller.show(event)

    assert capsys.readouterr().err.splitlines() == [
        "waystation: gone\\x07; trying again",
        f"listening as {A.hex()} at {URL}, which proves nothing about itself (an original relay?)",
        "waystation: gone\\x07; trying again",
    ]


def test_sender_who_waits_for_nothing_is_told_nothing_about_connections(capsys):
    """``send`` fails with its own sentence."""
    teller = news(waits=False)
    teller.show(Disconnected(URL, "gone", None, 1.0))
    teller.show(Connected(URL, 1.0, b"k" * 32, authenticated=True))

    assert capsys.readouterr().err == ""


def test_drops_and_news_are_told(capsys):
    """What was not taken, and what a relay told, is said in a line each."""
    teller = news()
    teller.show(MessageDropped(Refusal.BAD_SIGNATURE, BOB.signing.public))
    teller.show(MessageDropped(Refusal.UNASKED_ANSWER, None))
    teller.show(ServersLearnt(URL, ("ws://b",)))
    teller.show(FileFailed(A, b"t" * 16, "a\x1b", "too big"))
    lines = capsys.readouterr().err.splitlines()

    assert f"from {BOB.signing.public.hex()}: bad_signature" in lines[0]
    assert lines[1] == "waystation: dropped a message: unasked_answer"
    assert "named ws://b" in lines[2]
    assert "too big" in lines[3] and "\x1b" not in lines[3]


def test_bars_are_drawn_only_where_somebody_looks(capsys):
    """Without a terminal nothing is drawn, and nothing fails."""
    with file_bars(shown=True) as bars:
        teller = ConnectionNews(bars, public_key=A, waits=True)
        teller.show(FileProgress(A, b"t" * 16, "a", 1, 2))
        bars.show("out", "b", 1, 2)
        bars.show("out", "b", 2, 2)
        teller.show(FileFailed(A, b"t" * 16, "a", "gone"))

    assert "\x1b" not in capsys.readouterr().err
