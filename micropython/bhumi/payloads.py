"""What two Bhumi devices say inside the encrypted payload. Spec: BHUMI-D.

Requests are HANDSHAKE_INIT and MESSAGE; answers HANDSHAKE_COMPLETE and MESSAGE_RESPONSE. Integers are big-endian, and
each structure fills its bytes exactly. Commands are JSON inside a MESSAGE.
"""

import json
import struct

__all__ = [
    "BINARY",
    "COMMAND",
    "TEXT",
    "answer_of",
    "command_answer",
    "command_error",
    "command_of",
    "command_request",
    "error_of",
    "handshake_answer",
    "message",
    "request_of",
    "response",
    "response_of",
]

TEXT = 0
BINARY = 1
COMMAND = 2
_URL_BYTES_MAX = 1024


def request_of(plain: bytes) -> tuple:
    """Return what a plaintext asks, or None when it makes no sense.

    Either ``("init", sender, preimage, url)``, the first two of 32 bytes, or ``("message", content_type, content)``.
    The preimage permits one request to the sender, who is reached at the address ``url``.
    """
    if plain[:1] == b"\x01" and len(plain) >= 67:
        size = struct.unpack_from(">H", plain, 65)[0]
        if size <= _URL_BYTES_MAX and len(plain) == 67 + size and _is_text(plain[67:]):
            return "init", plain[1:33], plain[33:65], plain[67:].decode()
    if plain[:1] == b"\x10" and len(plain) >= 8 and plain[1] <= COMMAND:
        size = struct.unpack_from(">H", plain, 2)[0]
        if size > _URL_BYTES_MAX or len(plain) < 8 + size or not _is_text(plain[4 : 4 + size]):
            return None
        content = plain[8 + size :]
        if struct.unpack_from(">I", plain, 4 + size)[0] == len(content) and (plain[1] == BINARY or _is_text(content)):
            return "message", plain[1], content
    return None


def handshake_answer(preimage: bytes, url: str) -> bytes:
    """Return HANDSHAKE_COMPLETE; an empty preimage refuses, and a sentence that says why is in the place of ``url``."""
    head = b"\x02\x00" + preimage if preimage else b"\x02\x01" + bytes(32)
    return head + struct.pack(">H", len(url)) + url.encode()


def message(content_type: int, url: str, content: bytes) -> bytes:
    """Return MESSAGE; ``url`` is where its sender can be reached."""
    return b"\x10" + bytes((content_type,)) + struct.pack(">H", len(url)) + url.encode() + _long(content)


def response_of(plain: bytes) -> tuple:
    """Return status, next preimage or empty, address and content of a MESSAGE_RESPONSE, or None when it is none."""
    if plain[:1] != b"\x11" or len(plain) < 40:
        return None
    size = struct.unpack_from(">H", plain, 34)[0]
    if size > _URL_BYTES_MAX or len(plain) < 40 + size or not _is_text(plain[36 : 36 + size]):
        return None
    content = plain[40 + size :]
    if struct.unpack_from(">I", plain, 36 + size)[0] != len(content):
        return None
    preimage = plain[2:34]
    return plain[1], b"" if preimage == bytes(32) else preimage, plain[36 : 36 + size].decode(), content


def response(refused: bool, next_preimage: bytes, url: str, content: bytes) -> bytes:
    """Return MESSAGE_RESPONSE."""
    head = b"\x11\x01" if refused else b"\x11\x00"
    return b"".join((head, next_preimage, struct.pack(">H", len(url)), url.encode(), _long(content)))


def command_of(content: bytes) -> tuple:
    """Return name and arguments of a command; raises ValueError."""
    try:
        value = json.loads(content)
    except RuntimeError:  # nested too deeply
        raise ValueError("not a command")
    if not isinstance(value, dict) or not isinstance(value.get("cmd"), str):
        raise ValueError("not a command")  # noqa: TRY004 - what it is not, is a command
    return value["cmd"], value.get("args")


def command_request(name: str, arguments: object) -> bytes:
    """Return a command; its arguments are anything that JSON can say."""
    return json.dumps({"cmd": name, "args": arguments}).encode()


def command_answer(given: object) -> bytes:
    """Return the answer to a command: a text that is JSON goes in as JSON, everything else as it is."""
    if isinstance(given, bytes):
        given = given.decode()
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RuntimeError):
            pass
    return json.dumps({"ok": True, "data": given}).encode()


def answer_of(content: bytes) -> object:
    """Return the data of the answer to a command; raises ValueError or KeyError."""
    return json.loads(content)["data"]


def error_of(content: bytes) -> str:
    """Return why a request failed: the error of a command's answer, else the content as text; raises ValueError."""
    if content[:1] != b"{":
        return content.decode()
    return str(json.loads(content).get("error"))


def command_error(reason: str) -> bytes:
    """Return the answer to a command that failed."""
    return json.dumps({"ok": False, "error": reason}).encode()


def _long(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except (UnicodeError, ValueError):
        return False
    return True
