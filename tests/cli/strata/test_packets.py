"""Laws of ``waystation strata export`` and ``import``: what goes out comes back in, checked."""

import json
import time

import pytest
from typer.testing import CliRunner

from tests.protocols.strata.build import ALICE, BOB, did, packet
from tests.store.build_rot import flip_column
from waystation.cli.strata.commands import app
from waystation.core.packets import PacketRow, PutPacket
from waystation.server.home import Home
from waystation.store.sqlite import SqliteStore

run = CliRunner()


@pytest.fixture
def filled(tmp_path):
    """Return the home of a node that has stored packets of two authors."""
    home = Home(tmp_path / "node")
    home.ensure()
    source = tmp_path / "source.jsonl"
    now = int(time.time())
    packets = [packet({"type": "POST", "text": f"{n}"}, key, timestamp=now) for n in range(5) for key in (ALICE, BOB)]
    source.write_text("".join(json.dumps({"packet": each.body, "received_at": now}) + "\n" for each in packets))
    result = run.invoke(app, ["import", str(source), "--home", str(home.path), "--json"])
    assert json.loads(result.output) == {"verdicts": {"accepted": 10}}
    return home


def test_export_and_import_are_inverse(filled, tmp_path):
    """A node filled from an export exports the same lines."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    other = tmp_path / "other"
    Home(other).ensure()

    results = [
        run.invoke(app, ["export", str(first), "--home", str(filled.path)]),
        run.invoke(app, ["import", str(first), "--home", str(other)]),
        run.invoke(app, ["export", str(second), "--home", str(other)]),
    ]

    assert [result.exit_code for result in results] == [0, 0, 0]
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().count(b"\n") == 10


def test_export_filters_by_author(filled, tmp_path):
    """--author and --type leave out what they do not name."""
    target = tmp_path / "alice.jsonl"
    arguments = ["--home", str(filled.path), "--author", did(ALICE), "--type", "POST", "--json"]

    result = run.invoke(app, ["export", str(target), *arguments])

    authors = {json.loads(text)["packet"]["author_id"] for text in target.read_text().splitlines()}
    assert json.loads(result.stdout)["written"] == 5
    assert authors == {did(ALICE)}


def test_import_says_what_was_refused_and_fails(filled, tmp_path):
    """A refused line makes exit code 1, and the reason is counted."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"packet": 1}\n')

    result = run.invoke(app, ["import", str(bad), "--home", str(filled.path), "--json"])

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"verdicts": {"invalid_schema:not_a_line": 1}}


def test_import_refuses_a_running_node(filled, tmp_path):
    """Only one process may put packets, so a home that is held is left alone."""
    lines = tmp_path / "none.jsonl"
    lines.write_text("")
    with filled.lock():
        result = run.invoke(app, ["import", str(lines), "--home", str(filled.path)])

    assert result.exit_code == 1


def test_export_of_a_home_that_is_not_there_is_refused(tmp_path):
    """A mistyped home makes no empty store."""
    result = run.invoke(app, ["export", "-", "--home", str(tmp_path / "nowhere")])

    assert result.exit_code == 1
    assert not (tmp_path / "nowhere").exists()


def test_export_leaves_damaged_packets_out_and_says_so(filled):
    """What the disk changed is no packet any more (NODE-ROT)."""
    flip_column(filled.store_path, "packets", 3, "canonical")
    result = run.invoke(app, ["export", "-", "--home", str(filled.path)])

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 9
    assert "1 packets are damaged on the disk and left out; see: waystation check --deep\n" in result.stderr


def test_expired_packets_are_exported_too(tmp_path):
    """An export is what is stored, not what is served."""
    home = Home(tmp_path / "node")
    home.ensure()
    store = SqliteStore(home.store_path)
    body = packet({"type": "POST", "text": "gone"}, ALICE, expires_at=1)
    row = PacketRow(1, 5, 5, 5, body.packet_id, did(ALICE), "POST", 5, 6, body.canonical, b"", "", b"", kept=False)
    store.commit([PutPacket(row)])
    store.close()

    result = run.invoke(app, ["export", "-", "--home", str(home.path)])

    assert json.loads(result.stdout)["received_at"] == 5


def test_refused_lines_are_named_up_to_twenty(filled, tmp_path):
    """FILE:NUMBER: reason, on stderr, while every line is counted once and the good ones are stored."""
    mixed, home = tmp_path / "mixed.jsonl", Home(tmp_path / "other")
    home.ensure()
    run.invoke(app, ["export", str(mixed), "--home", str(filled.path)])
    forged = mixed.read_text().splitlines()[0].replace('"text":"0"', '"text":"9"')
    mixed.write_text(f"{mixed.read_text()}{forged}\n" + "[]\n" * 220)

    result = run.invoke(app, ["import", str(mixed), "--home", str(home.path)])

    named = [line for line in result.stderr.splitlines() if line.startswith(str(mixed))]
    assert result.exit_code == 1
    assert len(named) == 20
    assert named[0].startswith(f"{mixed}:11: packet_id") or named[0].startswith(f"{mixed}:11: invalid_")
    assert named[1:] == [f"{mixed}:{number}: invalid_schema:not_a_line" for number in range(12, 31)]
    assert [line.split()[-1] for line in result.stdout.splitlines()] in (["10", "1", "220"], ["10", "220", "1"])
    assert len({len(line) for line in result.stdout.splitlines()}) == 1


def test_import_to_a_home_that_is_not_there_is_refused(tmp_path):
    """A mistyped home makes no new node."""
    lines = tmp_path / "none.jsonl"
    lines.write_text("")

    result = run.invoke(app, ["import", str(lines), "--home", str(tmp_path / "nowhere")])

    assert result.exit_code == 1
    assert not (tmp_path / "nowhere").exists()
