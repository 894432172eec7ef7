"""Encodes and decodes the opaque Bhumi payloads of requests and answers, in each supported dialect.

``Dialect.E2E`` seals the binary device protocol into the envelope of ``protocols.bhumi.envelope``. ``SUITE_1`` and
``SUITE_2`` use those of ``protocols.bhumi.suites``. ``Dialect.NONE`` is the format of the reference implementation:
plaintext handshakes, then JSON commands. An answer uses the dialect of its request. Spec: BHUMI-11, BHUMI-SUITE.
"""

import json
import random
from enum import Enum
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.crypto.agreement import WeakKeyError
from waystation.protocols.bhumi.payload.contents import (
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
from waystation.protocols.bhumi.payload.envelope import HINT_BYTES, hint_of, open_envelope, seal
from waystation.protocols.bhumi.payload.suites import (
    SUITE_HINT_BYTES,
    Direction,
    SharedSecrets,
    Suite,
    open_handshake,
    open_static,
    seal_handshake,
    seal_static,
    suite_hint_of,
    suite_number_of,
)
from waystation.sdk.errors import AnswerError

__all__ = [
    "Answer",
    "Dialect",
    "Inquiry",
    "command_content",
    "command_result",
    "dialect_of",
    "read_answer",
    "read_request",
    "write_answer",
    "write_request",
]

Inquiry = HandshakeInit | DeviceMessage
Answer = HandshakeComplete | MessageResponse


class Dialect(Enum):
    """The form of the opaque payload; the value is what people write after ``--e2e``."""

    E2E = "bhumi-v1"
    SUITE_1 = "suite-1"
    SUITE_2 = "suite-2"
    NONE = "none"


def dialect_of(preimage: bytes, data: bytes) -> Dialect | None:
    """Return what the opaque payload that came or went with ``preimage`` is written in, as its first bytes show.

    ``Dialect.NONE`` when it is sealed for this preimage in no way we know of; None when it names a suite that is
    unknown here. That it opens is another matter.
    """
    if data[:HINT_BYTES] == hint_of(preimage):
        return Dialect.E2E
    if data[:SUITE_HINT_BYTES] != suite_hint_of(preimage):
        return Dialect.NONE
    return _DIALECTS.get(suite_number_of(data))


def write_request(
    dialect: Dialect, own: SharedSecrets, recipient: bytes, preimage: bytes, request: Inquiry, rng: random.Random
) -> bytes:
    """Return the opaque payload of a SEND.

    Raises:
        LocalError: The plaintext protocol has no words for this content.
        WeakKeyError: The recipient's key cannot be used.
    """
    if dialect is not Dialect.NONE:
        if dialect in _SUITES and isinstance(request, HandshakeInit):
            return seal_handshake(_SUITES[dialect], recipient, preimage, encode_payload(request), rng)
        return _seal(dialect, own, recipient, Direction.REQUEST, preimage, encode_payload(request), rng)
    if isinstance(request, HandshakeInit):
        return encode_payload(request)
    if request.content_type is ContentType.BINARY:
        raise LocalError("the plaintext protocol carries commands and text, not binary content")
    if request.content_type is ContentType.TEXT:
        return encode_command(Command(cmd=request.content.decode(), args={}))
    return request.content


def read_request(
    dialect: Dialect, own: SharedSecrets, peer: bytes | None, preimage: bytes, data: bytes
) -> Inquiry | None:
    """Return what the opaque payload of a DELIVER asks, or None when it makes no sense.

    Args:
        dialect: What it has to be written in.
        own: The recipient.
        peer: Whom the preimage was given to; None for an invite. In a suite, an invite is used with a handshake only,
            and everything else is sealed by that peer.
        preimage: It came with.
        data: The payload.
    """
    if dialect is Dialect.NONE:
        plain: bytes | None = data
    elif dialect in _SUITES and peer is None:
        plain = open_handshake(_SUITES[dialect], own.key_pair, preimage, data)
    else:
        plain = _open(dialect, own, peer, Direction.REQUEST, preimage, data)
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


def write_answer(
    dialect: Dialect, own: SharedSecrets, recipient: bytes, preimage: bytes, answer: Answer, rng: random.Random
) -> bytes:
    """Return the opaque payload of an ACK; raises WeakKeyError when the asker's key cannot be used."""
    if dialect is not Dialect.NONE:
        return _seal(dialect, own, recipient, Direction.ANSWER, preimage, encode_payload(answer), rng)
    if isinstance(answer, HandshakeComplete):
        return encode_payload(answer)
    return answer.content + (b"" if answer.next_preimage == NO_PREIMAGE else answer.next_preimage)


def read_answer(dialect: Dialect, own: SharedSecrets, peer: bytes, preimage: bytes, data: bytes) -> Answer:
    """Return what the opaque payload of a SEND_RESULT says to the request that was sent with ``preimage``.

    Args:
        dialect: Of the request.
        own: Who asked.
        peer: Who was asked.
        preimage: Of the request.
        data: The payload.

    Raises:
        AnswerError: It cannot be opened, makes no sense, answers another request, or is in another dialect.
    """
    if not data:
        raise AnswerError(
            "the answer is empty: the device does not know this permission, or could not read the request"
        )
    try:
        return _read_plain(data) if dialect is Dialect.NONE else _read_sealed(dialect, own, peer, preimage, data)
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


def _seal(
    dialect: Dialect,
    own: SharedSecrets,
    recipient: bytes,
    direction: Direction,
    preimage: bytes,
    plaintext: bytes,
    rng: random.Random,
) -> bytes:
    if dialect is Dialect.E2E:
        return seal(recipient, preimage, plaintext, rng)
    return seal_static(_SUITES[dialect], own.with_peer(recipient), direction, preimage, plaintext, rng)


def _open(
    dialect: Dialect, own: SharedSecrets, peer: bytes | None, direction: Direction, preimage: bytes, data: bytes
) -> bytes | None:
    """Return the plaintext, or None; ``bhumi-v1`` does not ask who the peer is."""
    if dialect is Dialect.E2E:
        return open_envelope(own.key_pair, data)
    assert peer is not None
    try:
        shared = own.with_peer(peer)
    except WeakKeyError:
        return None
    return open_static(_SUITES[dialect], shared, direction, preimage, data)


def _read_sealed(dialect: Dialect, own: SharedSecrets, peer: bytes, preimage: bytes, data: bytes) -> Answer:
    spoken = dialect_of(preimage, data)
    if spoken is None:
        raise AnswerError(f"the answer is in suite {suite_number_of(data)}, which is unknown here")
    if spoken not in {dialect, Dialect.NONE}:
        raise AnswerError(f"the answer is in {spoken.value}, and the request was in {dialect.value}")
    plain = _open(dialect, own, peer, Direction.ANSWER, preimage, data)
    if plain is None:
        raise AnswerError("the answer is not sealed for this identity and request; does the device use this --e2e?")
    if spoken is Dialect.NONE:
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


_SUITES: Final = {Dialect.SUITE_1: Suite.CHACHA, Dialect.SUITE_2: Suite.AES_CTR}
_DIALECTS: Final[dict[int | None, Dialect]] = {suite.value: dialect for dialect, suite in _SUITES.items()}
