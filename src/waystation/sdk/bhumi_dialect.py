"""How two participants put their payloads into the opaque bytes that a relay carries.

``Dialect.E2E`` seals the binary device protocol into the envelope of ``protocols.bhumi.envelope``. ``Dialect.NONE`` is
what the original node speaks: handshakes in the clear, then JSON commands. Both sides of a pairing must use the same
one.
"""

import json
import random
from enum import Enum
from typing import Any

from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.envelope import HINT_BYTES, hint_of, open_envelope, seal
from waystation.protocols.bhumi.payloads import (
    NO_PREIMAGE,
    Command,
    CommandAnswer,
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MalformedPayloadError,
    MessageResponse,
    PayloadType,
    ResponseStatus,
    decode_command,
    decode_command_answer,
    decode_payload,
    encode_command,
    encode_command_answer,
    encode_payload,
    split_command_answer,
)
from waystation.sdk.errors import AnswerError

__all__ = [
    "Answer",
    "Dialect",
    "Inquiry",
    "command_content",
    "command_result",
    "read_answer",
    "read_request",
    "write_answer",
    "write_request",
]

Inquiry = HandshakeInit | DeviceMessage
Answer = HandshakeComplete | MessageResponse


class Dialect(Enum):
    """What stands inside the opaque payload; the value is what people write after ``--e2e``."""

    E2E = "bhumi-v1"
    NONE = "none"


def write_request(dialect: Dialect, recipient: bytes, preimage: bytes, request: Inquiry, rng: random.Random) -> bytes:
    """Return the opaque payload of a SEND.

    Raises:
        LocalError: The plaintext protocol has no words for this content.
        WeakKeyError: The recipient's key cannot be used.
    """
    if dialect is Dialect.E2E:
        return seal(recipient, preimage, encode_payload(request), rng)
    if isinstance(request, HandshakeInit):
        return encode_payload(request)
    if request.content_type is ContentType.BINARY:
        raise LocalError("the plaintext protocol carries commands and text, not binary content")
    if request.content_type is ContentType.TEXT:
        return encode_command(Command(cmd=request.content.decode(), args={}))
    return request.content


def read_request(dialect: Dialect, key_pair: KeyPair, data: bytes) -> Inquiry | None:
    """Return what the opaque payload of a DELIVER asks, or None when it makes no sense."""
    plain = data if dialect is Dialect.NONE else open_envelope(key_pair, data)
    if plain is None:
        return None
    try:
        if dialect is Dialect.NONE and plain[:1] != bytes((PayloadType.HANDSHAKE_INIT,)):
            decode_command(plain)
            return DeviceMessage(ContentType.COMMAND, plain)
        request = decode_payload(plain)
    except MalformedPayloadError:
        return None
    return request if isinstance(request, HandshakeInit | DeviceMessage) else None


def write_answer(dialect: Dialect, recipient: bytes, preimage: bytes, answer: Answer, rng: random.Random) -> bytes:
    """Return the opaque payload of an ACK; raises WeakKeyError when the asker's key cannot be used."""
    if dialect is Dialect.E2E:
        return seal(recipient, preimage, encode_payload(answer), rng)
    if isinstance(answer, HandshakeComplete):
        return encode_payload(answer)
    return answer.content + (b"" if answer.next_preimage == NO_PREIMAGE else answer.next_preimage)


def read_answer(dialect: Dialect, key_pair: KeyPair, preimage: bytes, data: bytes) -> Answer:
    """Return what the opaque payload of a SEND_RESULT says to the request that was sent with ``preimage``.

    Raises:
        AnswerError: It cannot be opened, makes no sense, or answers another request.
    """
    if not data:
        raise AnswerError(
            "the answer is empty: the device does not know this permission, or could not read the request"
        )
    try:
        return _read_plain(data) if dialect is Dialect.NONE else _read_sealed(key_pair, preimage, data)
    except MalformedPayloadError as error:
        raise AnswerError(f"the answer makes no sense: {error}") from error


def command_result(content: bytes) -> Any:
    """Return the ``data`` of a command's answer.

    Raises:
        AnswerError: The device says that the command failed, or the content is no command answer.
    """
    try:
        answer = decode_command_answer(content)
    except MalformedPayloadError as error:
        raise AnswerError(f"the answer makes no sense: {error}") from error
    if not answer.ok:
        raise AnswerError(f"the command failed: {answer.error}")
    return answer.data


def command_content(answer: bytes | str) -> bytes:
    """Return the content of a successful command answer: JSON texts go in as JSON, everything else as a string."""
    text = answer if isinstance(answer, str) else answer.decode("utf-8", errors="replace")
    try:
        data = json.loads(text)
        return encode_command_answer(CommandAnswer(ok=True, data=data))
    except (ValueError, RecursionError):
        return encode_command_answer(CommandAnswer(ok=True, data=text))


def _read_sealed(key_pair: KeyPair, preimage: bytes, data: bytes) -> Answer:
    plain = open_envelope(key_pair, data)
    if plain is None:
        raise AnswerError("the answer is not sealed for this identity; does the device use the same --e2e?")
    if data[:HINT_BYTES] != hint_of(preimage):
        raise AnswerError("the answer belongs to another request")
    answer = decode_payload(plain)
    if not isinstance(answer, HandshakeComplete | MessageResponse):
        raise AnswerError("the answer is a request")
    return answer


def _read_plain(data: bytes) -> Answer:
    if data[:1] == bytes((PayloadType.HANDSHAKE_COMPLETE,)):
        answer = decode_payload(data)
        assert isinstance(answer, HandshakeComplete)
        return answer
    content, preimage = split_command_answer(data)
    status = ResponseStatus.OK if decode_command_answer(content).ok else ResponseStatus.REFUSED
    return MessageResponse(status=status, next_preimage=preimage or NO_PREIMAGE, content=content)
