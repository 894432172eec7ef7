"""Keys of client software: the newest manifest of a client, its own key while no manifest is known.

Spec: RFC-0002 11; specs/strata.md 9.2, clarification 10 (D14).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from waystation.core.dids import key_of_did
from waystation.core.packets import PacketQuery, PacketReader, PacketRow
from waystation.protocols.strata.authors import Authors
from waystation.protocols.strata.keyring import judge_method
from waystation.protocols.strata.reading import read_some

__all__ = ["ClientKeys", "ClientLookup"]

MANIFEST: Final = "CLIENT_MANIFEST"
CLIENTS_REMEMBERED_MAX: Final = 4_096
MANIFEST_KEYS_MAX: Final = 64
_KEY_HEX_CHARS: Final = 64


class _ManifestKey(NamedTuple):
    public: bytes
    valid_from: int
    valid_until: int | None


class ClientLookup:
    """What provenance asks, as of one second."""

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

    def __init__(self, packets: PacketReader, authors: Authors, roots: Mapping[str, bytes], skew: int) -> None:
        """Read manifests from ``packets``; ``skew`` seconds are added on both ends of every window."""
        self._packets = packets
        self._authors = authors
        self.roots = roots
        self.skew = skew
        self._manifests: OrderedDict[str, tuple[_ManifestKey, ...] | None] = OrderedDict()

    def at(self, now: int) -> ClientLookup:
        """Return the lookup for packets received at ``now``."""
        return ClientLookup(self, now)

    def valid(self, client_id: str, now: int) -> tuple[bytes, ...]:
        """Return the keys of a client whose window holds ``now``; without a manifest those that its DID stands for."""
        manifest = self._manifest(client_id)
        if manifest is not None:
            return tuple(
                key.public
                for key in manifest
                if key.valid_from - self.skew <= now and (key.valid_until is None or now <= key.valid_until + self.skew)
            )
        ring, own = self._authors.ring(client_id, now), key_of_did(client_id)
        if ring is None:
            return ()
        valid = (method.public for method in ring.methods if judge_method(method, MANIFEST, now, self.skew) is None)
        return tuple(public for public in valid if own is None or public == own)

    def committed(self, row: PacketRow) -> None:
        """Forget what was known of a client that published a manifest."""
        if row.content_type == MANIFEST:
            self._manifests.pop(row.author_id, None)

    def _manifest(self, client_id: str) -> tuple[_ManifestKey, ...] | None:
        if client_id in self._manifests:
            self._manifests.move_to_end(client_id)
            return self._manifests[client_id]
        if len(self._manifests) >= CLIENTS_REMEMBERED_MAX:
            self._manifests.popitem(last=False)
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
