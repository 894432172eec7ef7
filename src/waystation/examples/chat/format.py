"""The message format of the chat: an example of a BSP application's own ``ClientFormat``.

``waystation bsp chat`` and the demo pass it to their device, which parses and validates each chat message with it. A
message body is that of ``deps_v1``: the last messages its author saw, then the content. The content is a JSON object
with ``nick`` and ``text``. So a node that knows only ``deps_v1`` can be a member or a mailbox of a chat. A message is
invalid if its timestamp is not later than those of its dependencies.

Every device must agree for ever on which messages are valid, or groups diverge. So content is valid only if it equals
the output of ``write_line`` byte for byte. Validity never depends on a JSON parser or a version of the Unicode tables.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.sdk.bsp import (
    DEPENDENCIES_MAX,
    FORMATS,
    ClientFormat,
    Context,
    DepsV1,
    InvalidMessageError,
    deps_v1_body,
    deps_v1_content,
)

__all__ = ["CHAT", "FORMATS_KNOWN", "NICK_CHARS_MAX", "TEXT_CHARS_MAX", "ChatFormat", "Line", "read_line", "write_line"]

CHAT: Final = "chat_v1"
NICK_CHARS_MAX: Final = 32
TEXT_CHARS_MAX: Final = 4_000
_STEERING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Controls, and marks of lines and directions."""


class Line(NamedTuple):
    """What somebody said."""

    nick: str
    """1 to 32 characters that steer no terminal; what the author calls itself, proved by nobody."""
    text: str
    """1 to 4,000 characters."""


class ChatFormat:
    """Implements ``ClientFormat``."""

    judges: Final = True

    def parse(self, body: bytes) -> Sequence[bytes]:
        """Return what a message answers to.

        Raises:
            InvalidMessageError: It is no message of a chat.
        """
        read_line(body)
        return DepsV1().parse(body)

    def validate(self, context: Context) -> bool:
        """Return whether a message is later than all that it answers to."""
        earlier = [context.look(dependency) for dependency in context.dependencies]
        return all(each is not None and each[0] < context.timestamp for each in earlier)


FORMATS_KNOWN: Final[Mapping[str, ClientFormat]] = {**FORMATS, CHAT: ChatFormat()}
"""Formats of the command line: those of the protocol room, and the chat's."""


def read_line(body: bytes) -> Line:
    """Return what a message says.

    Raises:
        InvalidMessageError: It is no message of a chat.
    """
    written = deps_v1_content(body)
    try:
        content = json.loads(written.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidMessageError("the content is no JSON") from error
    if not isinstance(content, dict) or set(content) != {"nick", "text"}:
        raise InvalidMessageError("the content is no object of nick and text")
    fault = _fault(**content)
    if fault is not None:
        raise InvalidMessageError(fault)
    line = Line(**content)
    if written != _written(line):
        raise InvalidMessageError("the content is not written as a chat writes it")
    return line


def write_line(line: Line, answers: Sequence[bytes]) -> bytes:
    """Return the body of a message.

    Args:
        line: What to say.
        answers: Messages that it comes after, at most 64.

    Raises:
        LocalError: The nickname or text is empty or too long.
    """
    fault = _fault(*line)
    if fault is not None:
        raise LocalError(fault)
    assert len(answers) <= DEPENDENCIES_MAX
    return deps_v1_body(answers, _written(line))


def _written(line: Line) -> bytes:
    return json.dumps(line._asdict(), ensure_ascii=False).encode()


def _fault(nick: object, text: object) -> str | None:
    if not isinstance(nick, str) or not 0 < len(nick) <= NICK_CHARS_MAX or _STEERING.search(nick):
        return f"a nickname has 1 to {NICK_CHARS_MAX} characters that steer no terminal"
    if not isinstance(text, str) or not 0 < len(text) <= TEXT_CHARS_MAX:
        return f"a text has 1 to {TEXT_CHARS_MAX} characters"
    if any("\ud800" <= each <= "\udfff" for each in text):
        return "a text is Unicode: it has no halves of characters"
    return None
