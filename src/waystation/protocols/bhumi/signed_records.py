"""Signs and verifies Bhumi's records (presences, adverts, binding proofs), and checks their times (BHUMI-X, BHUMI-A20).

A signature covers the SHA-256 of a label and the record. I_AM signs 36 bytes instead of 32, so no signature is valid
for another purpose. A record is valid from ``issued_at_s`` less the clock tolerance until ``issued_at_s + ttl_s``, by
the wall clock. Only its owner can extend that, with a new signature.
"""

from typing import Final

from waystation.core.ids import PublicKey
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair, sign, verify
from waystation.protocols.bhumi.extension_messages import BindChallenge, Presence, RelayAd, SignedRecord
from waystation.protocols.bhumi.extension_wire import record_body
from waystation.protocols.bhumi.refusals import Refusal

__all__ = [
    "ADVERT_TTL_MAX_S",
    "CLOCK_TOLERANCE_S",
    "PRESENCE_TTL_MAX_S",
    "binding_bytes",
    "expires_at_s",
    "is_signed",
    "sign_advert",
    "sign_binding",
    "sign_presence",
    "untimely",
    "untimely_span",
]

CLOCK_TOLERANCE_S: Final = 120  # between the clocks of two honest machines
PRESENCE_TTL_MAX_S: Final = 600  # spec 5, belief
ADVERT_TTL_MAX_S: Final = 3_600  # ours, BHUMI-ADVERT: a relay moves less often than a device
_PRESENCE_LABEL: Final = b"bhumi-presence/1"  # spec 5: no signature stands for another
_ADVERT_LABEL: Final = b"bhumi-relay-ad/1"  # as above
_BINDING_LABEL: Final = b"bhumi-bind/1"  # spec 5, BIND


def sign_presence(key_pair: KeyPair, relay_id: PublicKey, issued_at_s: int, ttl_s: int) -> Presence:
    """Return the presence of a device at a relay."""
    unsigned = Presence(key_pair.public, relay_id, issued_at_s, ttl_s, b"")
    return Presence(*_fields(unsigned), sign(key_pair, _digest(unsigned)))


def sign_advert(key_pair: KeyPair, address: str, issued_at_s: int, ttl_s: int) -> RelayAd:
    """Return the advert of a relay for its own address."""
    unsigned = RelayAd(key_pair.public, issued_at_s, ttl_s, address, b"")
    return RelayAd(key_pair.public, issued_at_s, ttl_s, address, sign(key_pair, _digest(unsigned)))


def is_signed(record: SignedRecord) -> bool:
    """Return whether the owner of a record has signed it; costs one verification."""
    return verify(record.owner, _digest(record), record.signature)


def expires_at_s(record: SignedRecord) -> int:
    """Return when a record ends, Unix seconds; from that second on it is worth nothing."""
    return record.issued_at_s + record.ttl_s


def untimely(record: SignedRecord, now_s: int) -> Refusal | None:
    """Return why a record cannot be believed now, whoever signed it; None when its times are in order.

    Args:
        record: Its signature is not looked at.
        now_s: Unix seconds.
    """
    ttl_max_s = PRESENCE_TTL_MAX_S if isinstance(record, Presence) else ADVERT_TTL_MAX_S
    return untimely_span(record.issued_at_s, record.ttl_s, ttl_max_s, now_s)


def untimely_span(issued_at_s: int, ttl_s: int, ttl_max_s: int, now_s: int) -> Refusal | None:
    """As ``untimely``, for the times of a record that is not unpacked."""
    if not 0 < ttl_s <= ttl_max_s:
        return Refusal.RECORD_TTL
    if issued_at_s > now_s + CLOCK_TOLERANCE_S:
        return Refusal.RECORD_FROM_FUTURE
    return Refusal.RECORD_EXPIRED if issued_at_s + ttl_s <= now_s else None


def binding_bytes(challenge: BindChallenge, identity: PublicKey) -> bytes:
    """Return what BIND signs: a label, the relay, its nonce and the identity."""
    return _BINDING_LABEL + challenge.relay_id + challenge.nonce + identity


def sign_binding(key_pair: KeyPair, challenge: BindChallenge) -> bytes:
    """Return the 64-byte proof that answers a challenge."""
    return sign(key_pair, binding_bytes(challenge, key_pair.public))


def _fields(presence: Presence) -> tuple[PublicKey, PublicKey, int, int]:
    return presence.identity, presence.relay_id, presence.issued_at_s, presence.ttl_s


def _digest(record: SignedRecord) -> bytes:
    label = _PRESENCE_LABEL if isinstance(record, Presence) else _ADVERT_LABEL
    return sha256(label + record_body(record))
