"""Laws of what ``waystation bsp`` shows."""

import pytest

from waystation.cli.bsp.place import Row
from waystation.cli.bsp.show import content_of, describe_row, short, show_event, show_export, show_import, show_rows
from waystation.sdk.bsp import (
    BundleRefused,
    CarrierTrouble,
    ExportResult,
    FormatFailed,
    GroupLeftOut,
    ImportResult,
    OrderRefused,
    PeerDown,
    PeerHolds,
    PeerUnreachable,
    PeerUp,
    Refusal,
    deps_v1_body,
)

KEY, ID = b"\x01" * 32, b"\xab" * 32
ROW = Row(ID, "pending", 0, True, 1_700_000_000_000, 5, (KEY,))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (PeerUp(KEY, "tls"), "connected with bob (tls)\n"),
        (PeerDown(KEY, "unknown_peer"), "no connection with bob: it is not in our table of peers"),
        (PeerDown(KEY, "half_closed"), "no connection with bob: half closed\n"),
        (PeerDown(KEY, "unreachable"), ""),
        (PeerUnreachable(KEY, "bsp+tls://x:1", "nobody listens on \x1b[2J"), "bob: nobody listens on \\x1b[2J\n"),
        (CarrierTrouble(b"\x02" * 32, "merk", "away"), "02020202: away\n"),
        (PeerDown(KEY, "refused_by_peer"), "`waystation bsp id`"),
        (FormatFailed("chess", "parse raised KeyError"), "format chess count as invalid by mistake: parse raised"),
        (GroupLeftOut(ID, "", "no format"), "the group abababab is left out: no format\n"),
        (BundleRefused("lprp", Refusal.FILE_SENDER), "something came by lprp that is refused: file sender\n"),
        (OrderRefused(None, "no such message"), "was impossible: no such message\n"),
        (PeerHolds(ID, ID, KEY, 1), ""),
    ],
)
def test_what_happens_to_connections_is_said(capfd, event, text):
    """Each event that people care about is one sentence with the peer's name, which steers no terminal."""
    show_event(event, {KEY: "bob"})
    told = capfd.readouterr().err

    assert text in told
    assert bool(told) == bool(text)


def test_row_is_whole_for_programs():
    """The row of a message that waits has no order, and with its body also what it depends on."""
    assert describe_row(ROW)["delivery_order"] is None
    assert describe_row(ROW, b"hello", with_body=True)["dependencies"] == [KEY.hex()]
    assert describe_row(ROW, b"hello", with_body=True)["body_hex"] == "68656c6c6f"
    assert short(ID) == "abababab"


def test_rows_for_people_steer_no_terminal(capfd):
    """A body is one line of printable characters, cut when it is long; bytes that are no text are hexadecimal."""
    show_rows([ROW, ROW._replace(message_id=KEY)], {ID: b"a\x1b[2J\nb" + b"x" * 99, KEY: b"\xff\x00"})
    first, second = capfd.readouterr().out.splitlines()

    assert "a\\x1b[2J\\nb" in first
    assert first.endswith("…")
    assert second.endswith("ff00")
    assert "\x1b" not in first


def test_timestamp_of_any_author_is_shown(capfd):
    """A time that no calendar has is shown as a number."""
    show_rows([ROW._replace(timestamp=2**63 - 1)], {})

    assert str(2**63 - 1) in capfd.readouterr().out


def test_no_rows_are_said(capfd):
    """An empty group is not just silence."""
    show_rows([], {})

    assert capfd.readouterr().err == "no messages yet\n"


def test_files_are_told_in_numbers(capfd):
    """What was exported and imported is counted, and what is left or was not taken is said."""
    show_export(ExportResult(KEY, KEY, 1, 1_000, 1, 2, 0, complete=False), "bob")
    show_import(ImportResult(KEY, 1, 10, 3, 1, 2, 0), "file", "bob")
    told = capfd.readouterr()

    assert "1 message and 2 acknowledgements, 1,000 bytes" in told.out
    assert "there is more for bob" in told.err
    assert "3 messages, 1 new, 2 not taken (its group is not shared with bob)" in told.out


def test_content_is_shown_without_what_it_depends_on():
    """Of deps_v1 and formats like it people see the content; of others, and of what is neither, the body."""
    body = deps_v1_body([KEY], b"hello")

    assert [content_of(body, name) for name in ("deps_v1", "chat_v1")] == [b"hello"] * 2
    assert content_of(body, "opaque") == body
    assert content_of(b"plain", "deps_v1") == b"plain"
    assert content_of(None, "deps_v1") is None


@pytest.mark.parametrize("event", [PeerDown(KEY, reason) for reason in ("unknown_peer", "refused_by_peer", "busy")])
def test_what_is_said_leaves_no_place_open(capfd, event):
    """A sentence for people has no place that was to be filled in."""
    show_event(event, {})

    assert "{" not in capfd.readouterr().err


def test_export_of_nothing_says_how_to_have_it_again(capfd):
    """Whoever lost a file learns how to get another one."""
    show_export(ExportResult(None, KEY, 0, 0, 0, 0, 0, complete=True), "bob")

    assert "--again" in capfd.readouterr().err
