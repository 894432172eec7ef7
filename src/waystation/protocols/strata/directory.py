"""From a DID to the keys that speak for it.

The order of resolution: the operator's static map, then documents (the operator's, and those fetched because a pointer
named their hash), then a DID that is a key itself. Key events of the author are applied to whichever it was.

Documents carry no signature, so a fetched one counts only when its hash was asked for: a pointer, or the predecessor
that a document we hold names (``wanted``). Without that rule anybody could add a key to anybody.

Times are whole Unix seconds. Spec: RFC-0001 3.3; specs/strata.md 4 (D5), 24 (7).

Choice: key events apply to pinned DIDs too: a key that its owner revoked is not to be believed for being pinned.
Documents do not age: the content behind a hash cannot change, and whoever fetches refreshes the pointers.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from waystation.core.dids import key_of_did
from waystation.protocols.strata.chain import replay
from waystation.protocols.strata.documents import DOCUMENTS_MAX, DidDocument, head_of, read_document, rooted_in
from waystation.protocols.strata.keyring import KeyEvent, Keyring, Method, implicit_ring, next_change

__all__ = ["POINTERS_MAX", "RINGS_MAX", "Directory", "StaticKey"]

RINGS_MAX: Final = 65_536
"""Authors whose keys are kept at hand; 43 MB of one-key authors, measured."""
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
    """Resolves DIDs, and remembers what it resolved."""

    def __init__(
        self,
        *,
        static_dids: Mapping[str, bytes | Sequence[StaticKey]],
        documents: Iterable[Mapping[str, Any]],
        events: Callable[[str], Sequence[KeyEvent]],
        skew: int,
    ) -> None:
        """Know what the operator says.

        Args:
            static_dids: DID -> its 32-byte key, or keys with windows, newest first.
            documents: DID Documents of the operator as JSON objects.
            events: Reads the stored key events of an author, in any order.
            skew: Tolerance around key windows in seconds.

        Raises:
            RefusedError: One of the documents is no document.
        """
        self._static = {did: _static_ring(did, keys) for did, keys in static_dids.items()}
        self._events = events
        self._skew = skew
        self._documents: dict[str, dict[str, DidDocument]] = {}
        self._texts: dict[str, dict[str, Any]] = {}
        self._pointers: dict[str, str] = {}
        self._rings: OrderedDict[str, tuple[Keyring, int]] = OrderedDict()
        for document in documents:
            self.add_document(document, pinned=True)

    def ring(self, did: str, now: int) -> Keyring | None:
        """Return the keys of a DID as of ``now``, or None when nobody can say what they are.

        Two heads give a ring in conflict, under which nothing is believed. The ring is replayed by itself when a
        pending recovery falls due, and after ``forget``.
        """
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
        if len(self._rings) > RINGS_MAX:
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
        if not pinned and read.document_hash not in self.wanted(read.did):
            return read.document_hash in known
        if len(known) >= DOCUMENTS_MAX and read.document_hash not in known:
            return False
        self._documents.setdefault(read.did, {})[read.document_hash] = read
        self._texts[read.document_hash] = dict(document)
        self.forget(read.did)
        return True

    def document_by_hash(self, document_hash: str) -> dict[str, Any] | None:
        """Return the document of that name, or None; for ``GET /strata/did-docs/{hash}``."""
        return self._texts.get(document_hash)

    def set_pointers(self, pointers: Mapping[str, str]) -> None:
        """Replace what validated bootstrap data and manifests say: DID -> hash of its newest document.

        Those beyond ``POINTERS_MAX`` are left out.
        """
        self._pointers = dict(list(pointers.items())[:POINTERS_MAX])

    def wanted(self, did: str) -> tuple[str, ...]:
        """Return the hashes of documents worth fetching for a DID; empty when it is pinned or complete."""
        known = self._documents.get(did, {})
        if did in self._static or len(known) >= DOCUMENTS_MAX:
            return ()
        named = [self._pointers.get(did), *(document.previous_hash for document in known.values())]
        return tuple(dict.fromkeys(each for each in named if each is not None and each not in known))

    def _genesis(self, did: str) -> Keyring | None:
        static = self._static.get(did)
        if static is not None:
            return static
        public = key_of_did(did)
        documents: Sequence[DidDocument] = tuple(self._documents.get(did, {}).values())
        if documents and public is not None:
            documents = rooted_in(documents, public)
        if documents:
            head = head_of(documents)
            return head.ring() if head is not None else Keyring(did, (), conflict=True)
        return None if public is None else implicit_ring(did, public)


def _static_ring(did: str, keys: bytes | Sequence[StaticKey]) -> Keyring:
    if isinstance(keys, bytes):
        return Keyring(did, (Method(f"{did}#static", keys, 0),))
    names = [f"{did}#static"] if len(keys) == 1 else [f"{did}#static-{count}" for count in range(1, len(keys) + 1)]
    return Keyring(did, tuple(Method(name, *key) for name, key in zip(names, keys, strict=True)))
