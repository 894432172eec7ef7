"""The directory of a relay: it resolves a DID to the keys that sign for it.

``authors`` asks it; clients' ``KeyBook`` uses one of its own. It tries the operator's static map, then documents (the
operator's, and those fetched by a hash), then a DID that is itself a key. The author's key events are applied to the
result.

Documents are unsigned, so a fetched one counts only if its hash was wanted (``wanted``). A hash is wanted when a
pointer or the next version of the document names it. Otherwise anyone could add a key to any DID.

Times are whole Unix seconds. Spec: RFC-0001 3.3; specs/strata.md 4 (D5), 24 (7).

Choice: key events apply to pinned DIDs too: a key that its owner revoked is refused although it is pinned. Documents do
not expire: the content of a hash cannot change, and each fetch refreshes the pointers.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from waystation.core.dids import key_of_did
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.strata.keys.chain import replay
from waystation.protocols.strata.keys.keyring import KeyEvent, Keyring, Method, implicit_ring, next_change
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.documents import DOCUMENTS_MAX, DidDocument, head_of, read_document, rooted_in

__all__ = ["POINTERS_MAX", "Directory", "StaticKey"]

POINTERS_MAX: Final = 65_536
"""DIDs for which documents are fetched, ours; with ``DOCUMENTS_MAX`` it bounds what peers can make us keep."""

_NEVER: Final = 1 << 62


class StaticKey(NamedTuple):
    """A key that the operator vouches for."""

    public: bytes
    """32 bytes."""
    valid_from: int = 0
    valid_until: int | None = None
    revoked_at: int | None = None
    recovery: bool = False


class Directory:
    """Resolves DIDs, and caches the rings."""

    def __init__(
        self,
        *,
        static_dids: Mapping[str, bytes | Sequence[StaticKey]],
        documents: Iterable[Mapping[str, Any]],
        events: Callable[[str], Sequence[KeyEvent]],
        skew: int,
        limits: InForce[StrataLimits],
    ) -> None:
        """Start with the operator's keys and documents.

        Args:
            static_dids: DID -> its 32-byte key, or keys with windows, newest first.
            documents: DID Documents of the operator as JSON objects.
            events: Reads the stored key events of an author, in any order.
            skew: Tolerance around key windows in seconds.
            limits: For how many authors keys are kept in memory.

        Raises:
            RefusedError: One of the documents is no document.
        """
        self._static = {did: _static_ring(did, keys) for did, keys in static_dids.items()}
        self._events = events
        self._skew = skew
        self._limits = limits
        self._documents: dict[str, dict[str, DidDocument]] = {}
        self._texts: dict[str, dict[str, Any]] = {}
        self._pointers: dict[str, str] = {}
        self._rings: OrderedDict[str, tuple[Keyring, int]] = OrderedDict()
        for document in documents:
            self.add_document(document, pinned=True)

    @property
    def rings_count(self) -> int:
        """How many authors' keys are kept in memory."""
        return len(self._rings)

    def ring(self, did: str, now: int) -> Keyring | None:
        """Return the keys of a DID as of ``now``, or None when they are unknown.

        Two heads give a ring in conflict, under which no packet is accepted. The ring is replayed by itself when a
        pending recovery falls due, and after ``forget``.
        """
        # A ring changes with new events, which ``forget`` it, and when a pending recovery falls due.
        held = self._rings.get(did)
        if held is not None and now < held[1]:
            self._rings.move_to_end(did)
            return held[0]
        genesis = self._genesis(did)
        if genesis is None:
            return None
        ring = replay(genesis, self._events(did), self._skew, now)
        change_at = next_change(ring, now)
        self._rings[did] = (ring, _NEVER if change_at is None else change_at)
        self._rings.move_to_end(did)
        for _ in range(surplus(len(self._rings), self._limits.now.key_rings)):
            self._rings.popitem(last=False)
        return ring

    def forget(self, did: str) -> None:
        """Resolve a DID afresh next time; call it when a key event of it was stored, hidden or moved in time."""
        self._rings.pop(did, None)

    def add_document(self, document: Mapping[str, Any], *, pinned: bool = False) -> bool:
        """Take a document in and return whether it counts.

        Args:
            document: A JSON object.
            pinned: From the operator; otherwise it counts only if ``wanted`` names its hash.

        Raises:
            RefusedError: It is no document.
        """
        read = read_document(document)
        known = self._documents.get(read.did, {})
        # Spec 4: documents count when the operator placed them, or when their hash is named.
        if not pinned and read.document_hash not in self.wanted(read.did):
            return read.document_hash in known
        # Bounded: the author of documents must not make us keep any number of them.
        if len(known) >= DOCUMENTS_MAX and read.document_hash not in known:
            return False
        self._documents.setdefault(read.did, {})[read.document_hash] = read
        self._texts[read.document_hash] = dict(document)
        self.forget(read.did)
        return True

    def document_by_hash(self, document_hash: str) -> dict[str, Any] | None:
        """Return the document of that name, or None; for ``GET /strata/did-docs/{hash}``."""
        return self._texts.get(document_hash)

    def heads(self, count_max: int) -> dict[str, str]:
        """Return the hash of the newest document of DIDs that have one head, for the manifest."""
        found = {}
        for did, documents in list(self._documents.items())[:count_max]:
            head = head_of(tuple(documents.values()))
            if head is not None:
                found[did] = head.document_hash
        return found

    @property
    def pointed(self) -> tuple[str, ...]:
        """The DIDs that pointers name."""
        return tuple(self._pointers)

    def set_pointers(self, pointers: Mapping[str, str]) -> None:
        """Replace the pointers of validated bootstrap data and manifests: DID -> hash of its newest document.

        Those beyond ``POINTERS_MAX`` are left out.
        """
        self._pointers = dict(list(pointers.items())[:POINTERS_MAX])

    def wanted(self, did: str) -> tuple[str, ...]:
        """Return the hashes of documents worth fetching for a DID; empty when it is pinned or complete."""
        known = self._documents.get(did, {})
        # D5: the operator's static_dids come first, so no document could change the answer.
        if did in self._static or len(known) >= DOCUMENTS_MAX:
            return ()
        # Spec 4: a hash counts from validated bootstrap data, or from a document already believed.
        named = [self._pointers.get(did), *(document.previous_hash for document in known.values())]
        return tuple(dict.fromkeys(each for each in named if each is not None and each not in known))

    def _genesis(self, did: str) -> Keyring | None:
        # D5: static_dids, then documents, then the self-certifying id.
        static = self._static.get(did)
        if static is not None:
            return static
        public = key_of_did(did)
        documents: Sequence[DidDocument] = tuple(self._documents.get(did, {}).values())
        if documents and public is not None:
            # Spec 4: a document for a self-certifying DID counts only when its first version lists that key.
            documents = rooted_in(documents, public)
        if documents:
            head = head_of(documents)
            # Spec 4: with two heads: did_conflict.
            return head.ring() if head is not None else Keyring(did, (), conflict=True)
        return None if public is None else implicit_ring(did, public)


def _static_ring(did: str, keys: bytes | Sequence[StaticKey]) -> Keyring:
    if isinstance(keys, bytes):
        return Keyring(did, (Method(f"{did}#static", keys, 0),))
    names = [f"{did}#static"] if len(keys) == 1 else [f"{did}#static-{count}" for count in range(1, len(keys) + 1)]
    return Keyring(did, tuple(Method(name, *key) for name, key in zip(names, keys, strict=True)))
