"""Writes down what clients were promised and what arrived, and finds promises that were not kept.

The ledger belongs to the process of the clients, outside of every fault of the node.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["Claim", "Entry", "Ledger", "Window"]


class Claim(Enum):
    """What an SDK says about a message."""

    ACKNOWLEDGED = "acknowledged"
    """It is kept, answered or delivered: it must arrive."""
    NOT_SENT = "not sent"
    """It must not arrive."""
    UNKNOWN = "unknown"
    """It may arrive."""


@dataclass(slots=True)
class Entry:
    """One message."""

    protocol: str
    serial: str
    """What its content is."""
    began_s: float
    """Monotonic time at which it was given to the SDK; so are the others."""
    ended_s: float | None = None
    claim: Claim | None = None
    word: str = ""
    """The SDK's own word for the end: an outcome or a refusal."""
    arrived_s: list[float] = field(default_factory=list)
    """Every arrival at the recipient's application."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of monotonic time, in seconds."""

    begin_s: float
    end_s: float

    def __contains__(self, at_s: float | None) -> bool:
        return at_s is not None and self.begin_s <= at_s <= self.end_s


_TWICE_MAX: Final = 1


class Ledger:
    """Everything that was sent and received; each line is in the file before anything goes on."""

    def __init__(self, path: Path) -> None:
        """Begin a file of JSON lines."""
        self.entries: dict[str, Entry] = {}
        """By serial, the oldest first."""
        self.disconnects: list[tuple[str, float]] = []
        """Protocol and moment of each lost connection or failed try."""
        self._file = path.open("a", buffering=1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self, protocol: str) -> str:
        """Note that a message is about to be sent; return its serial."""
        serial = f"{protocol}-{len(self.entries) + 1}"
        self.entries[serial] = Entry(protocol, serial, time.monotonic())
        self._write("began", serial)
        return serial

    def end(self, serial: str, claim: Claim, word: str) -> None:
        """Note what the SDK says of a message."""
        entry = self.entries[serial]
        entry.ended_s, entry.claim, entry.word = time.monotonic(), claim, word
        self._write("ended", serial, claim.value, word)

    def arrive(self, serial: str) -> None:
        """Note that a recipient's application has a message."""
        self.entries[serial].arrived_s.append(time.monotonic())
        self._write("arrived", serial)

    def disconnect(self, protocol: str) -> None:
        """Note that a client of a protocol has no connection."""
        self.disconnects.append((protocol, time.monotonic()))
        self._write("disconnected", protocol)

    def note(self, *words: object) -> None:
        """Write down something else, such as a fault."""
        self._write(*map(str, words))

    def of(self, protocol: str) -> Iterator[Entry]:
        """Yield the messages of a protocol."""
        return (entry for entry in self.entries.values() if entry.protocol == protocol)

    def first_acknowledged_s(self, protocol: str, since_s: float) -> float | None:
        """Return when the first message was acknowledged that was sent at or after a moment; None for not yet."""
        ends = [each.ended_s for each in self.of(protocol) if each.began_s >= since_s and _is_acknowledged(each)]
        return min((end for end in ends if end is not None), default=None)

    def acknowledged_in(self, protocol: str, window: Window) -> int:
        """Return how many messages were sent and acknowledged within a window."""
        return sum(
            each.began_s in window and each.ended_s in window for each in self.of(protocol) if _is_acknowledged(each)
        )

    def acknowledged_after(self, protocol: str, window: Window) -> int:
        """Return how many messages were sent within a window and acknowledged later."""
        sent = [each for each in self.of(protocol) if each.began_s in window and each.ended_s not in window]
        return sum(map(_is_acknowledged, sent))

    def not_sent_in(self, protocol: str, window: Window) -> int:
        """Return of how many messages their sender learned within the window of their beginning: not sent."""
        ended = [each for each in self.of(protocol) if each.began_s in window and each.ended_s in window]
        return sum(each.claim is Claim.NOT_SENT for each in ended)

    def words_in(self, protocol: str, window: Window) -> Counter[str]:
        """Return the ends other than acknowledgements of messages that were sent and ended within a window."""
        ended = [each for each in self.of(protocol) if each.began_s in window and each.ended_s in window]
        return Counter(each.word for each in ended if not _is_acknowledged(each))

    def disconnected_in(self, protocol: str, window: Window) -> bool:
        """Return whether a client of a protocol has lost its connection within a window."""
        return any(name == protocol and at_s in window for name, at_s in self.disconnects)

    def acknowledged(self, protocol: str) -> list[Entry]:
        """Return the acknowledged messages of a protocol."""
        return [each for each in self.of(protocol) if _is_acknowledged(each)]

    def owed(self) -> list[Entry]:
        """Return the messages that were acknowledged and have not arrived."""
        return [each for each in self.entries.values() if _is_acknowledged(each) and not each.arrived_s]

    def untrue(self) -> list[Entry]:
        """Return the messages that have arrived although they were not sent, or arrived twice."""
        return [
            each
            for each in self.entries.values()
            if (each.claim is Claim.NOT_SENT and each.arrived_s) or len(each.arrived_s) > _TWICE_MAX
        ]

    def counts(self, protocol: str) -> dict[str, int]:
        """Return how many messages of a protocol had which claim, and how many arrived."""
        entries = list(self.of(protocol))
        claims = Counter("under way" if each.claim is None else each.claim.value for each in entries)
        return {"sent": len(entries), **claims, "arrived": sum(bool(each.arrived_s) for each in entries)}

    def _write(self, *words: str) -> None:
        self._file.write(json.dumps([time.time(), *words]) + "\n")


def _is_acknowledged(entry: Entry) -> bool:
    return entry.claim is Claim.ACKNOWLEDGED
