"""The interface of an application's message format: it parses dependencies from a body and validates messages.

The device calls the format of a message's group: a body goes in, dependencies or ``InvalidMessageError`` come out. Two
formats are built in: ``Opaque`` has no dependencies, ``DepsV1`` writes them before the content as ``01``, their count
as two bytes and 32 bytes each.

Spec: seed 5, specs/bsp.md 4.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from waystation.core.errors import LocalError, RemoteError
from waystation.protocols.bsp.messages import ID_BYTES

__all__ = [
    "FORMATS",
    "ClientFormat",
    "Context",
    "DepsV1",
    "InvalidMessageError",
    "Opaque",
    "deps_v1_body",
    "deps_v1_content",
]


class InvalidMessageError(RemoteError):
    """A body does not have the form of its application's messages."""


class Context(NamedTuple):
    """A message whose dependencies were all delivered, as its application validates it."""

    group_id: bytes
    """32 bytes."""
    message_id: bytes
    """32 bytes."""
    timestamp: int
    """Milliseconds since the Unix epoch."""
    body: bytes
    dependencies: tuple[bytes, ...]
    """Identifiers of 32 bytes, as ``parse`` gave them."""
    look: Callable[[bytes], tuple[int, bytes | None] | None]
    """Returns timestamp and body of a delivered dependency; its body is None when deleted, all None when not there."""


class ClientFormat(Protocol):
    """Reads the messages of one application's groups.

    Both methods must return the same for the same message for ever and on every device: a message that one device finds
    valid and another does not splits their groups.
    """

    @property
    def judges(self) -> bool:
        """Return whether ``validate`` may return False; else it is not called."""

    def parse(self, body: bytes) -> Sequence[bytes]:
        """Return the identifiers of the messages that a body depends on, 32 bytes each.

        Raises:
            InvalidMessageError: The body is none of this application's.
        """

    def validate(self, context: Context) -> bool:
        """Return whether a message is valid after its dependencies, which were all delivered."""


class Opaque:
    """Any body, no dependencies, always valid."""

    judges: Final = False

    def parse(self, body: bytes) -> Sequence[bytes]:
        """Return no dependencies."""
        del body
        return ()

    def validate(self, context: Context) -> bool:
        """Return True."""
        del context
        return True


class DepsV1:
    """Bodies that begin with their dependencies; what follows is the application's and always valid.

    How many a message may have, and whether it names itself or one of another group, is not checked here but by the
    device, for every format.
    """

    judges: Final = False

    def parse(self, body: bytes) -> Sequence[bytes]:
        """Return the identifiers in a body, repeated as they are there.

        Raises:
            InvalidMessageError: It is too short for a head or for as many as it names, or its version is not 1.
        """
        end = _head_bytes(body)
        return tuple(body[start : start + ID_BYTES] for start in range(_FIXED_BYTES, end, ID_BYTES))

    def validate(self, context: Context) -> bool:
        """Return True."""
        del context
        return True


def deps_v1_body(dependencies: Sequence[bytes], content: bytes) -> bytes:
    """Return the body of a deps_v1 message.

    Args:
        dependencies: Identifiers of 32 bytes, at most 65,535 (a device takes 64).
        content: Any bytes.

    Raises:
        LocalError: An identifier has another length, or there are too many.
    """
    if any(len(dependency) != ID_BYTES for dependency in dependencies):
        raise LocalError(f"an identifier has {ID_BYTES} bytes")
    if len(dependencies) > _COUNT_MAX:
        raise LocalError(f"{len(dependencies)} dependencies, at most {_COUNT_MAX}")
    return b"".join((_VERSION, len(dependencies).to_bytes(2, "big"), *dependencies, content))


def deps_v1_content(body: bytes) -> bytes:
    """Return what follows the dependencies; raises InvalidMessageError as ``DepsV1.parse`` does."""
    return body[_head_bytes(body) :]


def _head_bytes(body: bytes) -> int:
    """Return how long version, count and identifiers are together."""
    # Spec 4: a deps_v1 body shorter than its count says, or with another first byte, is invalid.
    if len(body) < _FIXED_BYTES:
        raise InvalidMessageError(f"{len(body)} bytes, a head has {_FIXED_BYTES}")
    if body[:1] != _VERSION:
        raise InvalidMessageError(f"version {body[0]}, not 1")
    count = int.from_bytes(body[1:_FIXED_BYTES], "big")
    end = _FIXED_BYTES + count * ID_BYTES
    if end > len(body):
        raise InvalidMessageError(f"{count} dependencies in {len(body)} bytes")
    return end


_VERSION: Final = b"\x01"
_FIXED_BYTES: Final = 3  # version and count
_COUNT_MAX: Final = 65_535

FORMATS: Final[Mapping[str, ClientFormat]] = {"opaque": Opaque(), "deps_v1": DepsV1()}
"""Formats by the name that configuration knows them by."""
