"""The two profiles of BSP: the seed's own, and that of the deployed Briar messenger.

Whoever makes a device or cuts a stream passes one. A ``Profile`` contains all differences between the two, so the same
code serves both. They are the version in a record's header, the form of identifiers, the limits, two more record types
and two device behaviours. Hashes cover each argument after its length, so different argument lists never give the same
input.

Spec: specs/bsp.md 1 and 7.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self

from waystation.core.errors import LocalError
from waystation.crypto.hashing import blake2b_256_begun, blake2s_256_begun
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.messages import ID_BYTES, RecordType

__all__ = ["BRIAR", "CLIENT_NAME_BYTES_MAX", "MAJOR_MAX", "PROFILES", "SEED", "Hash", "Profile"]

CLIENT_NAME_BYTES_MAX: Final = 100
"""Of an application's name in profile briar (bsp 7)."""
MAJOR_MAX: Final = (1 << 31) - 1
"""An application's major version in profile briar is a signed 32-bit integer that is not negative (bsp 7)."""


class Hash(Protocol):
    """A hash in progress; the part of ``hashlib``'s interface that profiles use."""

    def copy(self) -> Self:
        """Return another one that goes on from here."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def digest(self) -> bytes:
        """Return the hash of all that was taken in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The constants that both ends of a connection must agree on before the first byte."""

    name: str
    """seed or briar."""
    version: int
    """First byte of a record: 1, in profile briar 0."""
    begin: Callable[[bytes], Hash]
    """The hash function: takes the first bytes; its digest has 32."""
    label_prefix: bytes
    """Stands before the labels GROUP_ID, MESSAGE_ID and MESSAGE_BLOCK."""
    is_layered: bool
    """Whether a format byte 01 is hashed too, an application has a major version, and bodies are hashed alone first."""
    descriptor_bytes_max: int
    body_bytes_min: int
    ids_read_max: int
    """Most identifiers of one record that is read; ``wire.IDS_WRITTEN_MAX`` says how many are written."""
    drops_oldest_offer: bool
    """Whether the oldest offered identifier makes room for a new one; else the new one is not remembered."""
    serves_held: bool
    """Whether a REQUEST for a message is served though the peer is known to hold it."""
    first_record: bytes
    """Record that a device writes first, or nothing."""
    extra_types: frozenset[RecordType]
    """Types known besides ACK, MESSAGE, OFFER and REQUEST."""

    def hash(self, *parts: bytes) -> bytes:
        """Return HASH of the parts: 32 bytes over each part after its length as four bytes. Spec: seed 1.3."""
        return self.begin(_joined(parts)).digest()

    def group(self, client_id: bytes, descriptor: bytes, format: str, major: int = 0) -> Group:  # noqa: A002 - as in Group
        """Return a group and its identifier.

        Args:
            client_id: 32 bytes; in profile briar 1 to 100 bytes of UTF-8.
            descriptor: At most ``descriptor_bytes_max`` bytes.
            format: Name of the ``ClientFormat`` that reads its messages.
            major: The application's major version; only profile briar knows one.

        Raises:
            LocalError: One of these bounds is broken.
        """
        return Group(self.group_id(client_id, descriptor, major), bytes(client_id), bytes(descriptor), format, major)

    def group_id(self, client_id: bytes, descriptor: bytes, major: int = 0) -> bytes:
        """Return the 32-byte identifier of a group; arguments and errors as for ``group``."""
        self._check_client(client_id, major)
        # Spec 1, 7: 32,768 bytes at most, in profile briar 16,384.
        if len(descriptor) > self.descriptor_bytes_max:
            raise LocalError(f"a descriptor has {self.descriptor_bytes_max} bytes at most, this has {len(descriptor)}")
        # Spec 7: profile briar puts a prefix in front of all three labels.
        label = self.label_prefix + b"GROUP_ID"
        if self.is_layered:
            # Spec 7: HASH(label, 01, client, major version as 4 bytes, descriptor).
            return self.hash(label, _FORMAT, client_id, major.to_bytes(4, "big"), descriptor)
        # Spec 1: group = HASH("GROUP_ID", client, descriptor).
        return self.hash(label, client_id, descriptor)

    def message_id(self, group_id: bytes, timestamp: int, body: bytes) -> bytes:
        """Return the 32-byte identifier of one message; ``hasher`` is faster for many of one group."""
        return self.hasher(group_id)(timestamp, body)

    def hasher(self, group_id: bytes) -> Callable[[int, bytes], bytes]:
        """Return the function that makes identifiers of a group's messages from their timestamp and body.

        The common prefix of all of them is hashed here, once.

        Args:
            group_id: 32 bytes.
        """
        assert len(group_id) == ID_BYTES
        label = self.label_prefix + b"MESSAGE_ID"
        if self.is_layered:
            # Spec 7: message = HASH(label, 01, group, time, HASH(block label, 01, body)).
            block = self.begin(_joined((self.label_prefix + b"MESSAGE_BLOCK", _FORMAT))).copy
            return _layered_hasher(self.begin(_joined((label, _FORMAT, group_id)) + _EIGHT).copy, block)
        # Spec 1: message = HASH("MESSAGE_ID", group, time as 8 bytes, body).
        return _flat_hasher(self.begin(_joined((label, group_id)) + _EIGHT).copy)

    def _check_client(self, client_id: bytes, major: int) -> None:
        if not self.is_layered:
            # Spec 1: a client is 32 random bytes.
            if len(client_id) != ID_BYTES:
                raise LocalError(f"a client identifier has {ID_BYTES} bytes, this has {len(client_id)}")
            if major != 0:
                raise LocalError(f"major version {major}: profile {self.name} knows none")
            return
        # Spec 7: in profile briar a name, 1 to 100 bytes of UTF-8.
        if not 1 <= len(client_id) <= CLIENT_NAME_BYTES_MAX:
            raise LocalError(f"a client's name has 1 to {CLIENT_NAME_BYTES_MAX} bytes, this has {len(client_id)}")
        if not _is_utf8(client_id):
            raise LocalError("a client's name is UTF-8, this is not")
        # Spec 7: a major version is 0 to 2^31 - 1.
        if not 0 <= major <= MAJOR_MAX:
            raise LocalError(f"a major version is 0 to {MAJOR_MAX}, this is {major}")


def _flat_hasher(begun: Callable[[], Hash]) -> Callable[[int, bytes], bytes]:
    pack = _TIME_AND_LENGTH.pack

    def message_id(timestamp: int, body: bytes) -> bytes:
        state = begun()
        # Spec 1: a message hashes 66 bytes and its body.
        state.update(pack(timestamp, len(body)) + body)
        return state.digest()

    return message_id


def _layered_hasher(begun: Callable[[], Hash], block: Callable[[], Hash]) -> Callable[[int, bytes], bytes]:
    pack, pack_length = _TIME_AND_LENGTH.pack, _LENGTH.pack

    def message_id(timestamp: int, body: bytes) -> bytes:
        root = block()
        root.update(pack_length(len(body)) + body)
        state = begun()
        state.update(pack(timestamp, ID_BYTES) + root.digest())
        return state.digest()

    return message_id


def _joined(parts: tuple[bytes, ...]) -> bytes:
    # Spec 1: len(x) is four bytes, big-endian; labels are arguments like any other.
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_FORMAT: Final = b"\x01"  # version of Briar's group and message formats (bsp 7)
_LENGTH: Final = struct.Struct(">I")
_TIME_AND_LENGTH: Final = struct.Struct(">qI")  # a timestamp, and the length of what follows it
_EIGHT: Final = _LENGTH.pack(8)  # length of a timestamp

SEED: Final = Profile(
    name="seed",
    version=1,
    begin=blake2s_256_begun,
    label_prefix=b"",
    is_layered=False,
    descriptor_bytes_max=32_768,
    body_bytes_min=0,  # BSP-D2
    ids_read_max=2_047,  # the most that 16 bits of length allow (BSP-D3)
    # Spec 2: one more than 1,000 offered identifiers pushes the oldest out.
    drops_oldest_offer=True,
    # Spec 2: a REQUEST is served also while hold = 1.
    serves_held=True,
    first_record=b"",
    extra_types=frozenset(),
)
"""The protocol's text."""

BRIAR: Final = Profile(
    name="briar",
    version=0,
    begin=blake2b_256_begun,
    label_prefix=b"org.briarproject.bramble/",
    is_layered=True,
    descriptor_bytes_max=16_384,
    # Spec 7: bodies have at least one byte, and a record at most 1,536 identifiers.
    body_bytes_min=1,
    ids_read_max=1_536,
    # Spec 7: a full offered list does not remember the new one, and a REQUEST while hold = 1 is ignored.
    drops_oldest_offer=False,
    serves_held=False,
    first_record=b"\x00\x04\x00\x01\x00",  # VERSIONS of one version, 0
    extra_types=frozenset({RecordType.VERSIONS, RecordType.PRIORITY}),
)
"""Briar of today, without its transport (bsp 7)."""

PROFILES: Final[Mapping[str, Profile]] = {profile.name: profile for profile in (SEED, BRIAR)}
