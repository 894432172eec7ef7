"""Formats the output of ``waystation lprp``: messages, proof-of-work progress, leases and hosts.

The commands pass what the SDK returns. Keys are printed in full, so that they can be pasted. Terminal control
characters in messages are escaped.
"""

import base64
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import typer

from waystation.cli.output import print_json, visible
from waystation.cli.progress import ProgressLines
from waystation.core.ids import encode_id52
from waystation.sdk.lprp import (
    HostAnswered,
    HostUnreachable,
    HostUrl,
    Kind,
    Lease,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    Message,
    Outcome,
    PacketDropped,
    Refusal,
    SendProgress,
    Sent,
    StoreFailed,
    StoreRecovered,
    WorkEnded,
    Working,
    WorkProgress,
)

__all__ = [
    "HostNews",
    "describe_lease",
    "describe_message",
    "describe_sent",
    "describe_work",
    "show_interrupted",
    "show_lease",
    "show_message",
    "show_sent",
]

_LATEST_S: Final = 253_402_300_799  # the last second of the year 9999
_WORK_FOR: Final = {Kind.LEASE: "a lease", Kind.RELAY: "a packet", Kind.WHITELIST: "the whitelist"}
_USUAL_DROPS: Final = frozenset({Refusal.DUPLICATE, Refusal.UNASKED_ANSWER, Refusal.NOT_NEWER})
_DROPS_EVERY_S: Final = 60.0
_OTHERS_MAX: Final = 8
_DAY_S: Final = 86_400


class HostNews:
    """Prints on stderr what a client reports: a lease, a host that is silent, packets dropped."""

    def __init__(
        self,
        lines: ProgressLines,
        host: HostUrl,
        *,
        public_key: bytes,
        listens: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; ``close`` says what is left to say.

        Args:
            lines: For work.
            host: Whom we talk to.
            public_key: Who we are.
            listens: Whether somebody waits for messages, and wants to know that they can come.
            clock: Monotonic seconds.
        """
        self._lines = lines
        self._host = host
        self._key = public_key
        self._listens = listens
        self._stands = False
        self._unreachable = False
        self._others: set[bytes] = set()
        self._dropped: Counter[Refusal] = Counter()
        self._clock = clock
        self._shows_drops_at = clock()

    def show(self, event: object) -> None:
        """Take an event of a sender or tenant."""
        if isinstance(event, Working):
            text = f"work for {_WORK_FOR[event.kind]}: {describe_work(event.progress)}"
            self._lines.show(event.reference, text)
        elif isinstance(event, WorkEnded):
            self._lines.end(event.reference)
            if event.failure:
                self._say(event.failure)
        elif isinstance(event, LeaseGranted | HostAnswered):
            self._on_lease()
        elif isinstance(event, LeaseDoubted):
            self._stands = False
            self._say(f"{self._host} is silent; asking again")
        elif isinstance(event, LeaseRefused) and self._listens:
            self._say(f"{self._host} gives no lease ({event.outcome.value}); asking again later")
        elif isinstance(event, HostUnreachable):
            self._on_unreachable(event)
        elif isinstance(event, StoreFailed | StoreRecovered):
            self._on_disk(event)
        elif isinstance(event, PacketDropped) and event.refusal not in _USUAL_DROPS:
            self._on_dropped(event)

    def count(self, progress: SendProgress) -> None:
        """Draw how many packets of a long message were accepted."""
        if progress.parts_count > 1:
            self._lines.show("", f"{progress.accepted_count} of {progress.parts_count} packets accepted")

    def say_silent(self) -> None:
        """Say that the host has not answered yet."""
        if not self._stands:
            self._say(f"{self._host} does not answer yet; check that it runs, its address and its key; trying again")

    def close(self) -> None:
        """Say what was dropped and not shown yet."""
        if self._dropped:
            counts = ", ".join(f"{refusal.value} {count:,}" for refusal, count in self._dropped.most_common())
            count = self._dropped.total()
            self._say(f"dropped {count:,} {'packets' if count > 1 else 'packet'}: {counts}")
        self._dropped.clear()

    def _on_unreachable(self, event: HostUnreachable) -> None:
        if not self._unreachable:
            self._say(f"{event.reason}; trying again")
        self._unreachable = True

    def _on_disk(self, event: StoreFailed | StoreRecovered) -> None:
        if isinstance(event, StoreFailed):
            self._say(f"this disk refuses, and what arrives is not confirmed: {event.reason}")
        else:
            self._say(f"this disk takes writes again, after {event.seconds:.0f} s")

    def _on_dropped(self, event: PacketDropped) -> None:
        if event.refusal is Refusal.WRONG_HOST and event.sender is not None:
            if event.sender not in self._others and len(self._others) < _OTHERS_MAX:
                self._others.add(event.sender)
                self._say(f"another key answers at {self._host.address}: {event.sender.hex()}; is yours right?")
            return
        self._dropped[event.refusal] += 1
        if self._clock() >= self._shows_drops_at:  # whoever sends them must not set the rate of lines
            self._shows_drops_at = self._clock() + _DROPS_EVERY_S
            self.close()

    def _on_lease(self) -> None:
        self._unreachable = False
        if not self._stands and self._listens:
            typer.echo(visible(f"listening as {self._key.hex()} at {self._host}"), err=True)
        self._stands = True

    def _say(self, text: str) -> None:
        typer.echo(visible(f"waystation: {text}"), err=True)


def describe_work(progress: WorkProgress) -> str:
    """Return how far a search is; what is left to expect never shrinks, for each try is a new draw."""
    left = f"about {_duration(progress.remaining_s)} more, " if progress.remaining_s is not None else ""
    rate = f", {progress.rate:,.0f} a second" if progress.remaining_s is not None else ""
    return f"{left}{progress.hashes:,} of about {progress.expected_hashes:,} hashes{rate}, {progress.bits} bits"


def describe_message(message: Message, host: HostUrl) -> dict[str, Any]:
    """Return a message for JSON."""
    document: dict[str, Any] = {
        "sender": message.sender.hex(),
        "sender_id52": encode_id52(message.sender),
        "message_id": message.id.hex(),
        "sealed": message.sealed,
        "sent_at_ms": message.sent_ms,
        "received_at_ms": message.received_ms,
        "host": str(host),
    }
    if message.text is not None:
        return document | {"text": message.text}
    return document | {"data_base64": base64.b64encode(message.data).decode("ascii")}


def show_message(message: Message, host: HostUrl, *, as_json: bool) -> None:
    """Print one message: when it was sent, whether anybody could read it, and its sender; below, what it says."""
    if as_json:
        print_json(describe_message(message, host))
    else:
        how = "sealed" if message.sealed else "readable by all on its way"
        typer.echo(f"{_date(message.sent_ms)}  {how}  {message.sender.hex()}")
        data = message.data
        shown = f"{len(data)} bytes: {data[:64].hex()}{'…' if len(data) > 64 else ''}"
        text = shown if message.text is None else message.text
        typer.echo(visible("  " + text.replace("\n", "\n  ")))
    sys.stdout.flush()


def describe_lease(lease: Lease | None, host: HostUrl | bytes, public_key: bytes) -> dict[str, Any]:
    """Return a lease for JSON; ``host`` is the bare key where the address is not known."""
    left_s = 0.0 if lease is None else max(0.0, lease.until_ms / 1_000 - time.time())
    return {
        "public_key": public_key.hex(),
        "id52": encode_id52(public_key),
        "host": host.hex() if isinstance(host, bytes) else str(host),
        "active": left_s > 0,
        "until_ms": None if lease is None else lease.until_ms,
        "left_s": round(left_s),
    }


def show_lease(document: dict[str, Any], *, as_json: bool) -> None:
    """Print what ``describe_lease`` returns."""
    if as_json:
        print_json(document)
        return
    if document["active"]:
        state = f"until {_date(document['until_ms'])} UTC, {_duration(document['left_s'])} from now"
    else:
        state = "none" if document["until_ms"] is None else f"ended {_date(document['until_ms'])} UTC"
    typer.echo(f"key    {document['public_key']}\nhost   {visible(document['host'])}\nlease  {state}")


def describe_sent(sent: Sent, recipient: bytes, host: HostUrl, *, sealed: bool) -> dict[str, Any]:
    """Return what became of a message for JSON."""
    return {
        "outcome": sent.outcome.value,
        "accepted": sent.ok,
        "recipient": recipient.hex(),
        "host": str(host),
        "sealed": sealed,
        "message_id": sent.message_id.hex(),
        "parts": sent.parts_count,
        "accepted_parts": sent.accepted_count,
        "hashes": sent.hashes,
        "sentence": sent.outcome.sentence,
        "advice": sent.outcome.advice,
    }


def show_sent(sent: Sent, recipient: bytes, host: HostUrl, *, sealed: bool, as_json: bool) -> None:
    """Print what became of a message: on stdout when it was accepted, on stderr otherwise."""
    if as_json:
        print_json(describe_sent(sent, recipient, host, sealed=sealed))
    elif sent.ok:
        parts = f" in {sent.parts_count} packets" if sent.parts_count > 1 else ""
        work = f", after {sent.hashes:,} hashes of work" if sent.hashes else ""
        typer.echo(f"accepted for {recipient.hex()}{parts}{work}; the host keeps it until it has arrived")
    else:
        again = f" (--id {sent.message_id.hex()})" if sealed else ""
        typer.echo(f"waystation: {sent.outcome.sentence}; {sent.outcome.advice}{again}", err=True)
        if sent.outcome is Outcome.REFUSED and sent.accepted_count:
            typer.echo(
                f"note: {sent.accepted_count} of {sent.parts_count} packets were accepted: for who is away a host keeps"
                " 16 of an unknown sender, and 256 in all",
                err=True,
            )


def show_interrupted(progress: SendProgress | None, message_id: bytes | None) -> None:
    """Say on stderr how far a message came that was interrupted, and how to go on; ``message_id`` None means raw."""
    kept, parts = (0, None) if progress is None else (progress.accepted_count, progress.parts_count)
    of = "" if parts is None else f" of {parts}"
    on = "" if message_id is None else f"; send the same again with --id {message_id.hex()} to go on"
    typer.echo(f"waystation: interrupted, the host has accepted {kept}{of} packets{on}", err=True)


def _date(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(time_ms // 1_000, _LATEST_S)))


def _duration(seconds: float) -> str:
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.1f} days"
    if seconds >= 7_200:
        return f"{seconds / 3_600:.1f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.1f} s"
