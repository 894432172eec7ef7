"""Finds the keys of the client software that made a packet: those of its newest manifest, or its DID's own key.

The intake gives a ``ClientLookup`` to ``provenance``, which checks the software's attestation. Manifests are stored
packets, so the keys are looked up as of one second. Spec: RFC-0002 11; specs/strata.md 9.2, clarification 10 (D14).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from waystation.core.dids import key_of_did
from waystation.core.limits import surplus
from waystation.core.packets import PacketQuery, PacketReader, PacketRow
from waystation.core.settings import InForce
from waystation.protocols.strata.keys.keyring import check_method
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.authors import Authors
from waystation.protocols.strata.relay.reading import read_some

__all__ = ["ClientKeys", "ClientLookup"]

MANIFEST: Final = "CLIENT_MANIFEST"
MANIFEST_KEYS_MAX: Final = 64
_KEY_HEX_CHARS: Final = 64


class _ManifestKey(NamedTuple):
    public: bytes
    valid_from: int
    valid_until: int | None


class ClientLookup:
    """The lookup of provenance, as of one second."""

    def __init__(self, keys: "ClientKeys", now: int) -> None:
        """Look at ``keys`` as of ``now``, Unix seconds."""
        self._keys = keys
        self.now = now
        self.skew = keys.skew
        self.roots = keys.roots

    def client_keys(self, client_id: str) -> tuple[bytes, ...]:
        """Return the public keys a client may sign with now."""
        return self._keys.valid(client_id, self.now)


class ClientKeys:
    """Client keys out of stored manifests."""

    def __init__(
        self,
        packets: PacketReader,
        authors: Authors,
        roots: Mapping[str, bytes],
        skew: int,
        limits: InForce[StrataLimits],
    ) -> None:
        """Read manifests from ``packets``; ``skew`` seconds are added on both ends of every window."""
        self._packets = packets
        self._authors = authors
        self.roots = roots
        self.skew = skew
        self._limits = limits
        self._manifests: OrderedDict[str, tuple[_ManifestKey, ...] | None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many clients are known in memory, those without a manifest included."""
        return len(self._manifests)

    def at(self, now: int) -> ClientLookup:
        """Return the lookup for packets received at ``now``."""
        return ClientLookup(self, now)

    def valid(self, client_id: str, now: int) -> tuple[bytes, ...]:
        """Return the keys of a client whose window holds ``now``; without a manifest those of its DID."""
        manifest = self._manifest(client_id)
        # Spec 9.2: the key comes from the newest CLIENT_MANIFEST of client_id.
        if manifest is not None:
            return tuple(
                key.public
                for key in manifest
                if key.valid_from - self.skew <= now and (key.valid_until is None or now <= key.valid_until + self.skew)
            )
        # D14: a client's self-certifying key counts as long as no manifest of it is known.
        ring, own = self._authors.ring(client_id, now), key_of_did(client_id)
        if ring is None:
            return ()
        # A revocation of the client's key counts here too; other keys of a self-certifying client do not (D14).
        valid = (method.public for method in ring.methods if check_method(method, MANIFEST, now, self.skew) is None)
        return tuple(public for public in valid if own is None or public == own)

    def committed(self, row: PacketRow) -> None:
        """Forget the cached keys of a client that published a manifest."""
        # Spec 24.10: from now on the manifest decides, and the DID's own key counts no more.
        if row.content_type == MANIFEST:
            self._manifests.pop(row.author_id, None)

    def _manifest(self, client_id: str) -> tuple[_ManifestKey, ...] | None:
        if client_id in self._manifests:
            self._manifests.move_to_end(client_id)
            return self._manifests[client_id]
        # A client that was forgotten is read from the store again.
        for _ in range(surplus(len(self._manifests) + 1, self._limits.now.client_manifests)):
            self._manifests.popitem(last=False)
        # Spec 9.2: the newest manifest counts, and one without usable keys gives none.
        rows = read_some(self._packets, PacketQuery((client_id,), (MANIFEST,), descending=True), 1)
        manifest = _read_keys(orjson.loads(rows[0].canonical)["content"]) if rows else None
        self._manifests[client_id] = manifest
        return manifest


def _read_keys(content: dict[str, Any]) -> tuple[_ManifestKey, ...]:
    """Return the usable keys of a manifest; the relay polices its binding, so entries may be anything."""
    entries = content.get("public_keys")
    keys = []
    for entry in entries[:MANIFEST_KEYS_MAX] if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        # Spec 9.2: public_keys {public_key hex, valid_from, valid_until}.
        public, valid_from, valid_until = (entry.get(name) for name in ("public_key", "valid_from", "valid_until"))
        if not isinstance(public, str) or type(valid_from) is not int or not _is_end(valid_until):
            continue
        try:
            raw = bytes.fromhex(public.removeprefix("0x"))
        except ValueError:
            continue
        if len(raw) * 2 == _KEY_HEX_CHARS:
            keys.append(_ManifestKey(raw, valid_from, valid_until or None))
    return tuple(keys)


def _is_end(value: object) -> bool:
    return value is None or type(value) is int
