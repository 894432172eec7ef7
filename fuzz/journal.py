"""Fuzz target: the reader of journal segments, with files damaged by a crash, a full disk or another program."""

import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.facts import Outcome
from waystation.journal import events, segment
from waystation.journal.contract import FORMAT_VERSION

_NAME: Final = "00112233445566aa-1700000000000000-3"
_TS: Final = 1_700_000_000_000_000
_EVENTS: Final = (
    events.SegmentOpened(_TS, FORMAT_VERSION, "00112233445566aa", _NAME),
    events.NodeStarted(_TS, "0.1.0"),
    events.PeerIdentified(_TS, "bhumi", bytes(8), bytes(16)),
    events.DeliveryAccepted(_TS, "bhumi", bytes(16), bytes(16), 12),
    events.DeliveryFinished(_TS + 5, "bhumi", bytes(16), bytes(16), Outcome.OK, 5, 7, 1),
    events.Refused(_TS, "bhumi", None, "oversize", 9),
    events.PeerLeft(_TS, "bhumi", bytes(8), bytes(16), "disconnected", 1, 2),
    events.SegmentSealed(_TS, 8),
)
_GOOD: Final = segment.encode_lines(_EVENTS, 0)
_LINES: Final = tuple(_GOOD.splitlines(keepends=True))
_CORPUS: Final = (*_LINES, b"{}\n", b"[1]\n", b"\n", b'{"seq":1e400}\n', b"\xff\xfe\n", b'{"attrs":{"rows":null}}\n')


class JournalTarget:
    """An input is a file's name, a newline, and its content."""

    name = "journal"

    def make(self, rng: random.Random) -> bytes:
        """Return a segment whose lines were reordered, lost, doubled, torn or mutated."""
        name = f"{_NAME}{rng.choice(('.jsonl', '.jsonl', '.jsonl.open'))}".encode()
        if rng.random() < 0.1:
            name = mutate_bytes(rng, name, (name,)).replace(b"\n", b"")
        lines = list(_LINES)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(1, len(lines) + 1)
            lines[at:at] = [rng.choice(_CORPUS)]
            if rng.random() < 0.4:
                del lines[rng.randrange(len(lines))]
        content = b"".join(lines)
        return name + b"\n" + (mutate_bytes(rng, content, _CORPUS) if rng.random() < 0.8 else content)

    def run(self, data: bytes) -> str:
        """Read it all; good rows have the contract's columns, counts add up."""
        name, _, content = data.partition(b"\n")
        text = name.decode("latin-1")
        parsed = segment.parse_name(text)
        expect(parsed is None or segment.parse_name(parsed.text + ".jsonl") == parsed or "0" in text, "name changed")
        report = segment.inspect_segment(text, content)
        rows = list(segment.read_rows(content))
        expect(len(rows) <= content.count(b"\n") + 1, "more rows than lines")
        expect(report.rows_bad >= 0, "fewer lines than good ones")
        if report.state is not segment.SegmentState.FOREIGN:
            expect(report.rows_good == len(rows), "two readings of one segment")
        return report.state.value
