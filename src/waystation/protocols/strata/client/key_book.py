"""The keys by which a client verifies authors: the DID itself, the user's pins, and received key events.

``sdk.strata`` passes key events in and gives ``keys_of`` to its client machines. A packet does not name its key, and an
author may have added keys to the one inside the DID. A client that knew only that one would blame honest relays. So the
client reads each author's key events in order and stores the keys here.
Spec: RFC-0001; specs/strata.md 4, 4.1.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from waystation.core.settings import InForce
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.keys.keyring import (
    KEY_EVENT_TYPES,
    KeyEvent,
    Method,
    candidates,
    check_signer,
    has_room,
    read_key_event,
)
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.refusals import Refusal, RefusedError
from waystation.protocols.strata.relay.directory import Directory, StaticKey

__all__ = ["AUTHORS_MAX", "KEY_EVENT_TYPES", "KeyBook"]

AUTHORS_MAX: Final = 10_000
"""Authors whose key events are kept, ours; the one not asked for longest goes first."""
_SKEW_S: Final = 300  # specs/strata.md 4.2


class KeyBook:
    """Keys of authors as one client knows them; one book serves any number of relays."""

    def __init__(
        self,
        static_dids: Mapping[str, bytes | Sequence[StaticKey]] | None = None,
        documents: Iterable[Mapping[str, Any]] = (),
        skew: int | None = None,
        authors_max: int = AUTHORS_MAX,
    ) -> None:
        """Start with the user's keys and documents.

        Args:
            static_dids: DID -> its 32-byte key, or keys with windows.
            documents: DID Documents that the user trusts.
            skew: Tolerance around key windows in seconds, 60 to 300; None takes 300.
            authors_max: Authors whose key events are kept, at least 1.

        Raises:
            RefusedError: One of the documents is no document.
        """
        self.authors_max = authors_max
        """Authors whose key events are kept; those of others have to be fetched again."""
        self._skew = skew = skew if skew is not None else _SKEW_S
        self._events: OrderedDict[str, dict[bytes, KeyEvent]] = OrderedDict()
        self._count = 0
        self._directory = Directory(
            static_dids=static_dids or {},
            documents=documents,
            events=self._events_of,
            skew=skew,
            limits=InForce(DEFAULT_LIMITS),
        )

    @property
    def directory(self) -> Directory:
        """Resolves DIDs; ``sdk.strata.documents`` gives it pointers and documents."""
        return self._directory

    def keys_of(self, did: str, received_at: int) -> tuple[bytes, ...] | None:
        """Return every key that ever was the author's, revoked ones too, or None when they are unknown.

        Whether a key counted at that time is for ``check``: a relay is not to blame for a key that is revoked since.
        """
        if did in self._events:
            self._events.move_to_end(did)
        ring = self._directory.ring(did, received_at)
        return None if ring is None or ring.conflict else candidates(ring)

    def check(self, packet: Packet, received_at: int) -> Refusal | None:
        """Return why a packet is not to be believed although one of ``keys_of`` signed it, or None."""
        # Spec 4.1: the relay's receive time counts, the author's clock plays no part.
        ring = self._directory.ring(packet.author_id, received_at)
        if ring is None or (len(ring.methods) == 1 and ring.methods[0] == _forever(ring.methods[0])):
            return None  # one key that always counts: the signature alone decides
        keys = candidates(ring)
        index = verify_any(keys, packet.preimage, packet.signature)
        return check_signer(ring, keys[index] if index >= 0 else None, packet.content_type, received_at, self._skew)

    def learn(self, packet: Packet, received_at: int) -> bool:
        """Take a key event in and return whether it counts from now on; earlier ones must have been learnt first."""
        ring = self._directory.ring(packet.author_id, received_at)
        if ring is None or packet.content_type not in KEY_EVENT_TYPES or not packet.id_matches:
            return False
        content = packet.body["content"]
        try:
            read_key_event(content, packet.author_id)
        except RefusedError:
            return False
        keys = candidates(ring)
        index = verify_any(keys, packet.preimage, packet.signature)
        known = self._events.get(packet.author_id, {})
        # Spec 4.1: 256 key events per author, 32 of them reserved for recovery keys.
        if index < 0 or packet.packet_id in known or not has_room(ring, keys[index], len(known)):
            return False
        # Spec 4.1: a key event must be signed by a key that has begun and is not revoked, or by a recovery key.
        if check_signer(ring, keys[index], packet.content_type, received_at, self._skew) is not None:
            return False
        self._count += 1
        event = KeyEvent(packet.packet_id, received_at, self._count, keys[index], content)
        self._events.setdefault(packet.author_id, {})[packet.packet_id] = event
        self._events.move_to_end(packet.author_id)
        # The next packet of the author is checked against the new ring.
        self._directory.forget(packet.author_id)
        # The forgotten author has its first keys again, until its key events are read once more.
        if len(self._events) > self.authors_max:
            forgotten, _ = self._events.popitem(last=False)
            self._directory.forget(forgotten)
        return True

    def _events_of(self, did: str) -> Sequence[KeyEvent]:
        return tuple(self._events.get(did, {}).values())


def _forever(method: Method) -> Method:
    return Method(method.key_id, method.public, 0)
