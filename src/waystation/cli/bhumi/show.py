"""Formats the output of the Bhumi commands: events, answers, and content without terminal control characters."""

import base64
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from waystation.cli.output import print_json, visible
from waystation.cli.program import own_program
from waystation.core.ids import encode_id52
from waystation.sdk.bhumi import (
    AuthorityLearned,
    Denied,
    DeviceEvent,
    Disconnected,
    Handled,
    Listening,
    Moved,
    Outcome,
    PeerJoined,
    PeerOffline,
    PeerOnline,
    PresenceAsserted,
    Probed,
    ProbeRefused,
    Reply,
    Request,
    Trouble,
)

__all__ = ["as_document", "document_of", "print_reply", "sentence_of", "span_text", "with_hint"]


def document_of(event: DeviceEvent, id52: str) -> dict[str, Any]:
    """Return an event of the device ``id52`` for JSON; ``event`` names its kind."""
    name, describe = _DOCUMENTS[type(event)]
    return {"event": name, **describe(event, id52)}


def sentence_of(document: Mapping[str, Any]) -> str:
    """Return an event's document, other than of a request, as a sentence for people."""
    sentence = _SENTENCES[document["event"]].format(**document)
    if document["event"] == "joined" and document["legacy"]:
        sentence += "; legacy: the invite had no secret, so a relay may have used it"
    return visible(sentence)


def _request(event: Handled, _id52: str) -> dict[str, Any]:
    return {**_asked(event.request), "ok": event.ok, **as_document("content", event.request.content)}


def _asked(request: Request) -> dict[str, Any]:
    return {
        "peer": encode_id52(request.peer),
        "alias": request.alias,
        "content_type": request.content_type.name.lower(),
        "legacy": request.is_legacy,
    }


def _seen(event: PeerOffline | PeerOnline, _id52: str) -> dict[str, Any]:
    return {"peer": encode_id52(event.peer), "alias": event.alias, "since_s": round(event.since_s, 3)}


_DOCUMENTS: Final[Mapping[type[Any], tuple[str, Callable[[Any, str], dict[str, Any]]]]] = {
    Listening: (
        "listening",
        lambda event, id52: {"relay": event.relay, "id52": id52, "confirmed": event.confirmed},
    ),
    Disconnected: (
        "disconnected",
        lambda event, _: {"relay": event.relay, "reason": event.reason, "retry_s": round(event.retry_s, 1)},
    ),
    PeerJoined: (
        "joined",
        lambda event, _: {"peer": encode_id52(event.peer), "alias": event.alias, "legacy": event.is_legacy},
    ),
    Handled: ("request", _request),
    Denied: ("denied", lambda event, _: {**_asked(event.request), "reason": event.reason}),
    Trouble: ("trouble", lambda event, _: {"reason": event.reason}),
    Moved: ("moved", lambda event, _: {"before": event.before, "after": event.after}),
    PresenceAsserted: ("presence", lambda event, _: {"relay": event.relay, "ttl_s": event.ttl_s}),
    ProbeRefused: (
        "probe_refused",
        lambda event, _: {"relay": event.relay, "candidate": event.candidate, "reason": event.reason},
    ),
    Probed: (
        "probed",
        lambda event, _: {
            "candidate": event.candidate,
            "verdict": event.verdict.name.lower(),
            "latency_ms": round(event.latency_s * 1_000, 3),
        },
    ),
    PeerOffline: ("peer_offline", _seen),
    PeerOnline: ("peer_online", _seen),
    AuthorityLearned: ("authority", lambda event, _: {"relay": event.relay, "sha256": event.sha256.hex()}),
}
_SENTENCES: Final = {
    "listening": "listening on {relay} as {id52}",
    "disconnected": "{reason}; next try in {retry_s} s",
    "joined": "{alias} accepted an invite ({peer})",
    "denied": "{alias} was refused: {reason}",
    "trouble": "trouble: {reason}",
    "moved": "moved from {before} to {after}",
    "presence": "{relay} may answer where this identity is, for {ttl_s} s (--hidden prevents it)",
    "probe_refused": "{relay} asked to have {candidate} tried: {reason}",
    "peer_offline": "{alias} is not connected ({peer})",
    "peer_online": "{alias} has answered again ({peer})",
    "authority": "trusts an authority that {relay} has shown, for that relay (SHA-256 {sha256})",
    "probed": "tried {candidate}: {verdict}, {latency_ms} ms; the result stays here",
}


def with_hint(reply: Reply, home: Path) -> Exception:
    """Return why a request has no answer, with the command that goes on from there."""
    assert reply.failure is not None
    ask = shlex.join([*own_program(), "bhumi", "pending", "--ask", "--home", str(home)])
    hints = {
        Outcome.UNCERTAIN: f"what you send again could arrive twice; `{ask}` asks what became of it",
        Outcome.UNREADABLE: f"`{ask}` asks for it again",
        Outcome.PERMISSIONS_IN_DOUBT: f"`{ask}` asks for their outcomes now",
    }
    hint = hints.get(reply.outcome)
    return type(reply.failure)(f"{reply.failure}; {hint}") if hint else reply.failure


def print_reply(peer: str, reply: Reply, *, as_json: bool) -> None:
    """Print a peer's answer to stdout."""
    if as_json:
        print_json(
            {
                "status": "refused" if reply.status else "ok",
                "peer": peer,
                **as_document("reply", reply.content),
                "latency_ms": round(reply.latency_s * 1_000, 3),
                "tries": reply.tries_count,
            }
        )
        return
    shown = visible(reply.text).encode() if sys.stdout.isatty() else reply.content
    typer.echo(shown, nl=not shown.endswith(b"\n"))
    if reply.status:
        typer.echo(visible(f"waystation: {peer}: {reply.sentence}"), err=True)


def as_document(name: str, content: bytes) -> dict[str, str]:
    """Return content for JSON: as text, or in base64 when it is no UTF-8."""
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def span_text(seconds: int) -> str:
    """Return a time in its largest unit, rounded down."""
    size, unit = next((each for each in _SPANS if seconds >= each[0]), _SPANS[-1])
    return f"{max(seconds, 0) // size} {unit}"


_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
