"""Encodes and decodes the opaque Bhumi payloads of requests and answers, in each supported dialect.

``Dialect.SUITE_3`` and ``SUITE_4`` are those of ``payload.pairing``, for peers that were paired with a secret. All
others are legacy: a relay can use an invite that it carries, and in ``E2E`` and ``NONE`` it can replace a request.
``Dialect.E2E`` is the envelope of ``payload.envelope``, ``SUITE_1`` and ``SUITE_2`` are those of ``payload.suites``.
``Dialect.NONE`` is the format of the reference implementation: plaintext handshakes, then JSON commands. An answer uses
the dialect of its request. Spec: BHUMI-11, BHUMI-SUITE, BHUMI-PAIR.
"""

import contextlib
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
from waystation.protocols.bhumi.payload.pairing import (
    PairedSuite,
    open_answer,
    open_pairing,
    open_request,
    request_tag_of,
    seal_answer,
    seal_pairing,
    seal_request,
)
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
    SUITE_3 = "suite-3"
    SUITE_4 = "suite-4"
    NONE = "none"

    @property
    def strength(self) -> int:
        """How much a relay is kept from; a device takes from a peer nothing below what the two were paired in."""
        return _STRENGTHS[self]

    @property
    def is_legacy(self) -> bool:
        """Whether a relay that carries a pairing could use its invite."""
        return self not in _PAIRED


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
    dialect: Dialect,
    own: SharedSecrets,
    recipient: bytes,
    preimage: bytes,
    request: Inquiry,
    rng: random.Random,
    *,
    root: bytes = b"",
    secret: bytes = b"",
) -> bytes:
    """Return the opaque payload of a SEND.

    Args:
        dialect: What to write in.
        own: Who asks.
        recipient: 32-byte Ed25519 public key.
        preimage: 32 bytes.
        request: What is asked.
        rng: Source of nonces and keys; must be cryptographically strong outside tests.
        root: Of the two, 32 bytes; suites 3 and 4 need it for all but a handshake.
        secret: Of the invite, 32 bytes; suites 3 and 4 need it for a handshake.

    Raises:
        LocalError: The plaintext protocol has no words for this content.
        WeakKeyError: The recipient's key cannot be used.
    """
    if dialect in _PAIRED:
        if isinstance(request, HandshakeInit):
            return seal_pairing(_PAIRED[dialect], own, recipient, secret, preimage, request, rng)
        return seal_request(_PAIRED[dialect], root, preimage, encode_payload(request), rng)
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
    dialect: Dialect,
    own: SharedSecrets,
    peer: bytes | None,
    preimage: bytes,
    data: bytes,
    *,
    root: bytes = b"",
    secret: bytes = b"",
) -> Inquiry | None:
    """Return what the opaque payload of a DELIVER asks, or None when it cannot be opened.

    Args:
        dialect: What it has to be written in.
        own: The recipient.
        peer: Whom the preimage was given to; None for an invite. In a suite, an invite is used with a handshake only,
            and everything else is sealed by that peer.
        preimage: It came with.
        data: The payload.
        root: Of the two; without it nothing of suites 3 and 4 opens but a handshake.
        secret: Of the invite; without it no handshake of suites 3 and 4 opens.

    Raises:
        MalformedPayloadError: It could be opened, or is plaintext, and makes no sense.
    """
    if dialect in _PAIRED and peer is None:
        pairing = open_pairing(_PAIRED[dialect], own, secret, preimage, data) if secret else None
        return None if pairing is None else pairing.init
    plain = _opened_request(dialect, own, peer, preimage, data, root)
    if plain is None:
        return None
    if dialect is Dialect.NONE and plain[:1] != bytes((PayloadType.HANDSHAKE_INIT,)):
        decode_command(plain)
        return DeviceMessage(ContentType.COMMAND, plain)
    request = decode_payload(plain)
    if not isinstance(request, HandshakeInit | DeviceMessage):
        raise MalformedPayloadError("the request is an answer")
    return request


def write_answer(
    dialect: Dialect,
    own: SharedSecrets,
    recipient: bytes,
    preimage: bytes,
    answer: Answer,
    rng: random.Random,
    *,
    root: bytes = b"",
    request: bytes = b"",
) -> bytes:
    """Return the opaque payload of an ACK.

    Args:
        dialect: Of the request.
        own: Who answers.
        recipient: 32-byte Ed25519 public key of who asked.
        preimage: Of the request.
        answer: What is answered.
        rng: Source of nonces and keys; must be cryptographically strong outside tests.
        root: Of the two, for suites 3 and 4.
        request: The payload that is answered, for suites 3 and 4.

    Raises:
        WeakKeyError: The asker's key cannot be used.
    """
    if dialect in _PAIRED:
        tag = request_tag_of(request)
        return seal_answer(_PAIRED[dialect], root, preimage, tag, encode_payload(answer), rng)
    if dialect is not Dialect.NONE:
        return _seal(dialect, own, recipient, Direction.ANSWER, preimage, encode_payload(answer), rng)
    if isinstance(answer, HandshakeComplete):
        return encode_payload(answer)
    return answer.content + (b"" if answer.next_preimage == NO_PREIMAGE else answer.next_preimage)


def read_answer(
    dialect: Dialect,
    own: SharedSecrets,
    peer: bytes,
    preimage: bytes,
    data: bytes,
    *,
    root: bytes = b"",
    request: bytes = b"",
) -> Answer:
    """Return what the opaque payload of a SEND_RESULT says to the request that was sent with ``preimage``.

    In suites 3 and 4 nobody but the peer can make bytes that this returns, and for no other request. In suites 1 and 2
    nobody but the peer can. In the other two dialects a relay can.

    Args:
        dialect: Of the request.
        own: Who asked.
        peer: Who was asked.
        preimage: Of the request.
        data: The payload.
        root: Of the two, for suites 3 and 4.
        request: The payload that was sent, for suites 3 and 4.

    Raises:
        AnswerError: It cannot be opened, makes no sense, answers another request, or is in another dialect.
    """
    if not data:
        raise AnswerError(
            "the answer is empty: the device does not know this permission, or could not read the request"
        )
    try:
        if dialect is Dialect.NONE:
            return _read_plain(data)
        return _read_sealed(dialect, own, peer, preimage, data, root, request)
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


def command_content(given: object) -> bytes:
    """Return the content of a successful command answer.

    Args:
        given: A text or bytes that are JSON go in as JSON, other texts as a string; all else is what JSON can say.

    Raises:
        TypeError: JSON cannot say it.
    """
    data = given
    if isinstance(given, str | bytes):
        data = text = given.decode("utf-8", errors="replace") if isinstance(given, bytes) else given
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
    try:
        return encode_command_answer(CommandAnswer(ok=True, data=data))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(given, str | bytes):  # JSON that cannot be said again, or half a surrogate pair
            text = text.encode("utf-8", errors="replace").decode()
            return encode_command_answer(CommandAnswer(ok=True, data=text))
        raise TypeError(f"it returned {type(given).__name__}, which is neither text nor JSON: {error}") from error


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


def _opened_request(
    dialect: Dialect, own: SharedSecrets, peer: bytes | None, preimage: bytes, data: bytes, root: bytes
) -> bytes | None:
    """Return the plaintext of a request, or None."""
    if dialect is Dialect.NONE:
        return data
    if dialect in _PAIRED:
        return open_request(_PAIRED[dialect], root, preimage, data) if root else None
    if dialect in _SUITES and peer is None:
        return open_handshake(_SUITES[dialect], own.key_pair, preimage, data)
    return _open(dialect, own, peer, Direction.REQUEST, preimage, data)


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


def _read_sealed(
    dialect: Dialect, own: SharedSecrets, peer: bytes, preimage: bytes, data: bytes, root: bytes, request: bytes
) -> Answer:
    spoken = dialect_of(preimage, data)
    if spoken is None:
        raise AnswerError(f"the answer is in suite {suite_number_of(data)}, which is unknown here")
    if spoken not in {dialect, Dialect.NONE}:
        raise AnswerError(f"the answer is in {spoken.value}, and the request was in {dialect.value}")
    if dialect in _PAIRED:
        plain = open_answer(_PAIRED[dialect], root, preimage, request_tag_of(request), data) if root else None
    else:
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
_PAIRED: Final = {Dialect.SUITE_3: PairedSuite.CHACHA, Dialect.SUITE_4: PairedSuite.AES_CTR}
_DIALECTS: Final[dict[int | None, Dialect]] = {
    suite.value: dialect for dialect, suite in [*_SUITES.items(), *_PAIRED.items()]
}
_STRENGTHS: Final = {
    Dialect.NONE: 0,
    Dialect.E2E: 1,
    Dialect.SUITE_1: 2,
    Dialect.SUITE_2: 2,
    Dialect.SUITE_3: 3,
    Dialect.SUITE_4: 3,
}
