"""Row 44 of specs/strata.md 21 for a whole node: what people wrote to each other is in its store, and in no log."""

import asyncio

import orjson
import websockets

from soak.strata.nodes import StrataNode
from tests.protocols.strata.build import signed, unsigned

MARKER = b"marker-4711"


def message(text, now_s):
    """Return the body of a MESSAGE, fit to be published now."""
    return signed(unsigned({"type": "MESSAGE", "encryption": {"ciphertext": text}}, timestamp=now_s))


async def answers_to(url, *frames):
    """Send frames and return what came back: the challenge, then one answer for each."""
    async with websockets.connect(url) as connection:
        for each in frames:
            await connection.send(each if isinstance(each, bytes) else orjson.dumps(each), text=True)
        return [orjson.loads(await connection.recv()) for _ in range(1 + len(frames))]


def test_row_44_no_payload_in_logs_or_journal(tmp_path, monkeypatch):
    """A message that is accepted, a tampered one and a malformed one leave no word of theirs behind."""
    monkeypatch.setenv("WAYSTATION_NODE__LOG_LEVEL", "debug")
    with StrataNode(tmp_path / "home").start() as node:
        challenge, *_ = asyncio.run(answers_to(node.url))
        now_s = challenge["expires_at"] - 120
        good = message(MARKER.decode(), now_s)
        tampered = good | {"content": {"type": "MESSAGE", "encryption": MARKER.decode() * 2}}
        publishes = [{"type": "PUBLISH", "packet": each} for each in (good, tampered)]
        _, ok, refused, malformed = asyncio.run(answers_to(node.url, *publishes, b'{"type":"%b' % MARKER))
        node.stop()
        written = {path: path.read_bytes() for path in node.home.rglob("*") if path.is_file()}

    told = sorted(answer.get("code", answer["type"]) for answer in (ok, refused, malformed))
    holders = {path.relative_to(node.home).parts[0] for path, data in written.items() if MARKER in data}
    assert told == ["OK", "invalid_schema", "invalid_signature"]
    assert b"node.ready" in written[node.home / "stderr.log"]
    assert holders <= {"store.sqlite", "store.sqlite-wal", "archive"}
    assert "store.sqlite" in holders
