"""Encodes and decodes the messages of two Bhumi devices inside the opaque payload.

There are four binary structures, with big-endian integers and no bytes left over. There are also the reference
implementation's commands: JSON ``{"cmd","args"}``, answered by JSON ``{"ok","data"|"error"}``. An answer to an
authorised sender ends with the next preimage (the 32-byte secret that permits one more request). 32 zero bytes mean
"none" in the binary structures. Spec: BHUMI-D.
"""

import json
import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NoReturn, TypeVar

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import RemoteError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES

__all__ = [
    "NO_PREIMAGE",
    "URL_BYTES_MAX",
    "Command",
    "CommandAnswer",
    "ContentType",
    "DeviceMessage",
    "HandshakeComplete",
    "HandshakeInit",
    "MalformedPayloadError",
    "MessageResponse",
    "Payload",
    "PayloadType",
    "ResponseStatus",
    "decode_command",
    "decode_command_answer",
    "decode_payload",
    "encode_command",
    "encode_command_answer",
    "encode_payload",
    "split_command_answer",
]

NO_PREIMAGE: Final = bytes(PREIMAGE_BYTES)  # spec 6: zero for none
_Kind = TypeVar("_Kind", bound=IntEnum)
URL_BYTES_MAX: Final = 1_024  # ours: relay addresses are host:port; the field could hold 65,535


class MalformedPayloadError(RemoteError):
    """Bytes that are none of the structures here."""


class PayloadType(IntEnum):
    """First byte of a binary payload."""

    HANDSHAKE_INIT = 0x01
    HANDSHAKE_COMPLETE = 0x02
    MESSAGE = 0x10
    MESSAGE_RESPONSE = 0x11


class ContentType(IntEnum):
    """How the content of a message is to be read."""

    TEXT = 0
    BINARY = 1
    COMMAND = 2


class ResponseStatus(IntEnum):
    """Second byte of HANDSHAKE_COMPLETE and MESSAGE_RESPONSE."""

    OK = 0
    REFUSED = 1


@dataclass(frozen=True, slots=True)
class HandshakeInit:
    """The holder of an invite introduces itself; 67 bytes and the URL."""

    sender: PublicKey
    """32 bytes: who writes."""
    preimage: bytes = field(repr=False)
    """32 bytes: how the inviter may reach the sender."""
    url: str = ""
    """Relay where the sender can be reached; UTF-8, at most 1,024 bytes."""


@dataclass(frozen=True, slots=True)
class HandshakeComplete:
    """The inviter accepts or refuses; 36 bytes and the URL."""

    status: ResponseStatus
    preimage: bytes = field(default=NO_PREIMAGE, repr=False)
    """32 bytes: the next permission; zero when refused."""
    url: str = ""
    """Relay where the inviter can be reached; when refused, a sentence that says why, or nothing (BHUMI-MCU)."""


@dataclass(frozen=True, slots=True)
class DeviceMessage:
    """A message between peers that know each other; 8 bytes, the URL and the content."""

    content_type: ContentType
    content: bytes
    """UTF-8 when the type is TEXT or COMMAND."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class MessageResponse:
    """The answer to a message; 40 bytes, the URL and the content."""

    status: int
    """u8; see ``ResponseStatus``. Other values are refusals of a kind this version does not know."""
    next_preimage: bytes = field(repr=False)
    """32 bytes; zero for none."""
    content: bytes = b""
    url: str = ""


Payload = HandshakeInit | HandshakeComplete | DeviceMessage | MessageResponse


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the original node."""

    cmd: str
    args: Any = None
    """Any JSON value."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer to a command: ``data`` when ``ok``, else ``error``."""

    ok: bool
    data: Any = None
    """Any JSON value."""
    error: str = ""


def encode_payload(payload: Payload) -> bytes:
    """Return the bytes of a binary payload."""
    match payload:
        case HandshakeInit():
            return bytes((PayloadType.HANDSHAKE_INIT,)) + payload.sender + payload.preimage + _short(payload.url)
        case HandshakeComplete():
            head = bytes((PayloadType.HANDSHAKE_COMPLETE, payload.status))
            return head + payload.preimage + _short(payload.url)
        case DeviceMessage():
            head = bytes((PayloadType.MESSAGE, payload.content_type))
            return head + _short(payload.url) + _long(payload.content)
        case MessageResponse():
            head = bytes((PayloadType.MESSAGE_RESPONSE, payload.status)) + payload.next_preimage
            return head + _short(payload.url) + _long(payload.content)


def decode_payload(data: bytes) -> Payload:
    """Return the binary payload that ``data`` holds.

    Raises:
        MalformedPayloadError: Unknown type, a field cut short, bytes left over, text that is no UTF-8, a URL too long.
    """
    cursor = Cursor(data)
    try:
        decoded = _take_payload(cursor)
    except ShortError as error:
        raise MalformedPayloadError(f"payload ends too early: {error}") from error
    if cursor.left:
        raise MalformedPayloadError(f"{cursor.left} bytes behind the end of the payload")
    return decoded


def encode_command(command: Command) -> bytes:
    """Return the compact JSON of a command."""
    return _to_json({"cmd": command.cmd, "args": command.args})


def decode_command(data: bytes) -> Command:
    """Return the command that ``data`` holds; raises MalformedPayloadError."""
    value = _from_json(data)
    if not isinstance(value, dict) or not isinstance(value.get("cmd"), str):
        raise MalformedPayloadError('a command is a JSON object with a text under "cmd"')
    return Command(cmd=value["cmd"], args=value.get("args"))


def encode_command_answer(answer: CommandAnswer) -> bytes:
    """Return the compact JSON of an answer; the caller appends the next preimage, if there is one."""
    if answer.ok:
        return _to_json({"ok": True, "data": answer.data})
    return _to_json({"ok": False, "error": answer.error})


def decode_command_answer(data: bytes) -> CommandAnswer:
    """Return the answer that ``data`` (without a preimage) holds; raises MalformedPayloadError."""
    value = _from_json(data)
    if not isinstance(value, dict) or not isinstance(value.get("ok"), bool):
        raise MalformedPayloadError('a command answer is a JSON object with true or false under "ok"')
    error = value.get("error", "")
    return CommandAnswer(ok=value["ok"], data=value.get("data"), error=error if isinstance(error, str) else str(error))


def split_command_answer(data: bytes) -> tuple[bytes, bytes | None]:
    """Return the JSON part of the original node's answer and the next preimage (32 bytes) or None.

    The whole is tried as JSON first; only then are the last 32 bytes taken for a preimage (BHUMI-D).

    Raises:
        MalformedPayloadError: Neither reading gives an answer.
    """
    if _is_answer(data):
        return data, None
    split_at = len(data) - PREIMAGE_BYTES
    if split_at > 0 and _is_answer(data[:split_at]):
        return data[:split_at], data[split_at:]
    raise MalformedPayloadError("neither a JSON answer nor one with a preimage behind it")


def _is_answer(data: bytes) -> bool:
    try:
        decode_command_answer(data)
    except MalformedPayloadError:
        return False
    return True


def _take_payload(cursor: Cursor) -> Payload:
    payload_type = cursor.take_u8()
    if payload_type == PayloadType.HANDSHAKE_INIT:
        sender = PublicKey(cursor.take(KEY_BYTES))
        return HandshakeInit(sender=sender, preimage=cursor.take(PREIMAGE_BYTES), url=_take_url(cursor))
    if payload_type == PayloadType.HANDSHAKE_COMPLETE:
        status = _member(ResponseStatus, cursor.take_u8())
        return HandshakeComplete(status=status, preimage=cursor.take(PREIMAGE_BYTES), url=_take_url(cursor))
    if payload_type == PayloadType.MESSAGE:
        content_type = _member(ContentType, cursor.take_u8())
        url = _take_url(cursor)
        content = cursor.take(cursor.take_u32())
        if content_type is not ContentType.BINARY:
            _to_text(content, "content")
        return DeviceMessage(content_type=content_type, content=content, url=url)
    if payload_type == PayloadType.MESSAGE_RESPONSE:
        answered = cursor.take_u8()
        preimage = cursor.take(PREIMAGE_BYTES)
        url = _take_url(cursor)
        return MessageResponse(status=answered, next_preimage=preimage, content=cursor.take(cursor.take_u32()), url=url)
    raise MalformedPayloadError(f"unknown payload type {payload_type:#04x}")


def _member(kind: type[_Kind], value: int) -> _Kind:
    try:
        return kind(value)
    except ValueError as error:
        raise MalformedPayloadError(f"{value} is no {kind.__name__}") from error


def _take_url(cursor: Cursor) -> str:
    size = cursor.take_u16()
    if size > URL_BYTES_MAX:
        raise MalformedPayloadError(f"a URL of {size} bytes, at most {URL_BYTES_MAX}")
    return _to_text(cursor.take(size), "URL")


def _to_text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayloadError(f"{name} is not UTF-8") from error


def _short(url: str) -> bytes:
    data = url.encode()
    assert len(data) <= URL_BYTES_MAX
    return len(data).to_bytes(2, "big") + data


def _long(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _from_json(data: bytes) -> Any:
    """Return the JSON value of UTF-8 bytes; RecursionError is what the parser raises on nesting that is too deep."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        _to_json(value)  # what cannot be said again, such as half a surrogate pair, was never said
    except (ValueError, RecursionError) as error:
        raise MalformedPayloadError("not JSON") from error
    else:
        return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
