"""Parses the input of ``waystation strata``: contents, filters and times; invalid input gets an explaining sentence.

The commands pass texts of options and get contents, DIDs and Unix seconds; an impossible text is a ``LocalError``.
"""

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from waystation.core.dids import is_did
from waystation.core.errors import LocalError
from waystation.sdk.strata import parse_packet_id

__all__ = ["TIME_HELP", "parse_authors", "parse_content", "parse_since", "parse_until"]

TIME_HELP: Final = "inclusive: Unix seconds, or UTC such as 2026-11-21 or 2026-11-21T10:00."
"""What options of times say of themselves."""

_SECONDS: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_DAY: Final = timedelta(days=1)


def parse_content(text: str | None, content: str | None, reply_to: str | None) -> dict[str, Any]:
    """Return the content to publish.

    Args:
        text: Of a POST; ``-`` reads it from stdin.
        content: The whole content as JSON.
        reply_to: Packet id that a POST answers.

    Raises:
        LocalError: Both or none are given, the text is empty, or one of them is malformed.
    """
    if (text is None) == (content is None):
        raise LocalError("say what to publish: a text, - for stdin, or --content JSON")
    if content is not None:
        return _parse_json(content)
    body = {"type": "POST", "text": sys.stdin.read() if text == "-" else text}
    if not body["text"]:
        raise LocalError("there is nothing to publish: the text is empty")
    if reply_to is not None:
        if parse_packet_id(reply_to) is None:
            raise LocalError("--reply-to takes a packet id: 0x and 64 lower-case hexadecimal digits")
        body["thread_ref"] = reply_to
    return body


def parse_authors(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the DIDs of --author, sorted, each once; raises LocalError for anything else."""
    for each in given or ():
        if not is_did(each):
            raise LocalError(f"--author takes a DID such as did:strata:z6Mk…, not {each[:80]!r}")
    return tuple(sorted(set(given or ())))


def parse_since(text: str | None) -> int | None:
    """Return the first second that --since means; raises LocalError when it means none."""
    return None if text is None else _parse_time("--since", text, last=False)


def parse_until(text: str | None) -> int | None:
    """Return the last second that --until means: of a day its last one; raises LocalError when it means none."""
    return None if text is None else _parse_time("--until", text, last=True)


def _parse_json(content: str) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError as error:
        raise LocalError(f"--content is no JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise LocalError('--content is a JSON object with a "type"')
    return body


def _parse_time(option: str, text: str, *, last: bool) -> int:
    if _SECONDS.fullmatch(text):
        return int(text)
    try:
        if "T" not in text and " " not in text:
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return int(day.timestamp()) + (int(_DAY.total_seconds()) - 1 if last else 0)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise LocalError(
            f"{option} takes Unix seconds or a time such as 2026-11-21 or 2026-11-21T10:00 (UTC), not {text[:40]!r}"
        ) from error
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())
