"""The keys of an author, and the check whether a key may sign a given packet.

The relay's intake and clients check signers with it. A ``Keyring`` starts from the author's document, or from its DID
alone. ``chain.replay`` makes a new one from it and the author's key events. Keyrings are immutable.

Packets do not name their key: the caller tries ``candidates`` and passes the one that verified to ``check_signer``.

Times are whole Unix seconds. Spec: RFC-0001 (keys, recovery); specs/strata.md 4.1, 4.2, 24 (2, 8, 10).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.core.dids import decode_key_multibase
from waystation.protocols.strata.canonical import INTEGER_MAX
from waystation.protocols.strata.packet import parse_packet_id
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = [
    "CANDIDATES_MAX",
    "KEY_CHANGES",
    "KEY_EVENT",
    "KEY_EVENTS_MAX",
    "KEY_EVENTS_RESERVED",
    "KEY_EVENT_TYPES",
    "RECOVERY_APPROVAL",
    "RECOVERY_DELAY_SECONDS",
    "EventStatus",
    "KeyEvent",
    "Keyring",
    "Method",
    "PendingEvent",
    "RecoveryPolicy",
    "candidates",
    "check_method",
    "check_signer",
    "check_threshold",
    "eligible_keys",
    "has_room",
    "hidden_after",
    "implicit_ring",
    "is_hidden",
    "is_recovery_key",
    "next_change",
    "read_key_event",
    "read_key_id",
    "whole_seconds",
]

KEY_EVENT: Final = "KEY_EVENT"
RECOVERY_APPROVAL: Final = "RECOVERY_APPROVAL"
KEY_EVENT_TYPES: Final = (KEY_EVENT, RECOVERY_APPROVAL)
KEY_CHANGES: Final = frozenset({"ADD", "ROTATE", "REVOKE"})
"""What ``event`` of a KEY_EVENT may be (STRATA-EVENTS)."""

KEY_EVENTS_MAX: Final = 256
"""Key events and approvals kept per author; a rotation a month fills it in twenty years."""
KEY_EVENTS_RESERVED: Final = 32
"""How many of them only recovery keys may use, so that a stolen key cannot fill the chain against its owner."""
CANDIDATES_MAX: Final = 16
"""Keys tried per packet, ours (specs/strata.md 4.1); bounds the signatures that one packet can cost."""
RECOVERY_DELAY_SECONDS: Final = 86_400
"""RFC-0001 recommends 24 hours."""

_CANDIDATES_RESERVED: Final = 8
_KEY_ID_CHARS_MAX: Final = 400  # a DID has at most 218 characters, the rest is left to the fragment

_CONFLICT: Final = Refusal(Code.INVALID_SIGNATURE, "did_conflict")
_UNRESOLVED: Final = Refusal(Code.INVALID_SIGNATURE, "unresolved_author")
_BAD_SIGNATURE: Final = Refusal(Code.INVALID_SIGNATURE, "bad_signature")
_RECOVERY_KEY: Final = Refusal(Code.INVALID_SIGNATURE, "recovery_key_not_allowed")
_NO_RECOVERY_KEY: Final = Refusal(Code.INVALID_SIGNATURE, "recovery_key_demanded")
_THRESHOLD: Final = Refusal(Code.INVALID_SIGNATURE, "recovery_threshold")
_NOT_YET: Final = Refusal(Code.KEY_NOT_YET_VALID)
_EXPIRED: Final = Refusal(Code.KEY_EXPIRED)
_REVOKED: Final = Refusal(Code.KEY_REVOKED)


class Method(NamedTuple):
    """One key of an author and when it counts."""

    key_id: str
    """``<did>#<fragment>``."""
    public: bytes
    """32 bytes."""
    valid_from: int
    valid_until: int | None = None
    """None while open."""
    revoked_at: int | None = None
    recovery: bool = False
    """Signs KEY_EVENT and RECOVERY_APPROVAL and nothing else."""


class RecoveryPolicy(NamedTuple):
    """The number of recovery keys that must agree."""

    threshold: int = 1
    """1 or more."""
    key_ids: tuple[str, ...] = ()
    """Which recovery keys count; empty for all."""


_ONE_KEY: Final = RecoveryPolicy()


class KeyEvent(NamedTuple):
    """A stored KEY_EVENT or RECOVERY_APPROVAL packet."""

    packet_id: bytes
    """32 bytes."""
    received_at: int
    seq: int
    """Commit number; breaks ties of ``received_at``."""
    signer: bytes
    """The 32-byte key under which its signature verified."""
    content: Mapping[str, Any]
    """Passed ``read_key_event``."""


class EventStatus(Enum):
    """The outcome of a key event."""

    IN_FORCE = "in_force"
    PENDING = "pending"
    OVERRIDDEN = "overridden"
    """A recovery event that an ordinary key stopped."""
    UNDONE = "undone"
    """Its signer was revoked as of an earlier time."""
    NO_EFFECT = "no_effect"
    """Its signer had no authority, or there is nothing to change."""


class PendingEvent(NamedTuple):
    """A recovery-signed event that waits."""

    packet_id: bytes
    received_at: int
    approvals: int
    """Distinct eligible recovery keys that agreed so far, its signer included."""
    threshold: int
    due_at: int | None
    """When it will be applied; None while approvals are missing."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """All keys of one author, and how they came to be."""

    did: str
    methods: tuple[Method, ...]
    """Newest first."""
    policy: RecoveryPolicy = _ONE_KEY
    conflict: bool = False
    """Two heads: no packet of this author is accepted."""
    statuses: tuple[tuple[bytes, EventStatus], ...] = ()
    """Packet id and outcome of each event, in the order of replay."""
    pending: tuple[PendingEvent, ...] = ()
    orphans: tuple[bytes, ...] = ()
    """Keys that events brought in and whose events no longer count."""


def implicit_ring(did: str, public: bytes) -> Keyring:
    """Return the ring of a DID that is its own key: ``#keys-1``, valid from 0 and for ever."""
    return Keyring(did, (Method(f"{did}#keys-1", public, 0),))


def candidates(ring: Keyring) -> tuple[bytes, ...]:
    """Return the distinct keys under which a signature may be tried, newest first, at most ``CANDIDATES_MAX``.

    Revoked keys come last, so that a packet they signed is refused by its right name. Half of the room is kept for
    recovery keys, which are older than any key a thief might add to push them out.
    """
    methods = ring.methods
    if len(methods) == 1:
        # Nearly every author has one key: no list is built for it.
        return (methods[0].public,)
    live = [method for method in methods if method.revoked_at is None]
    recovery = [method for method in live if method.recovery][:_CANDIDATES_RESERVED]
    signing = [method for method in live if not method.recovery]
    revoked = [method for method in methods if method.revoked_at is not None]
    # Spec 4.1: at most 16 are tried, newest first.
    room = CANDIDATES_MAX - len(recovery)
    order = [*signing[:room], *recovery, *signing[room:], *revoked]
    return tuple(dict.fromkeys(method.public for method in order))[:CANDIDATES_MAX]


def check_signer(ring: Keyring, signer: bytes | None, content_type: str, received_at: int, skew: int) -> Refusal | None:
    """Return why a packet is refused although ``signer`` verified it, or None when it is good.

    Args:
        ring: The author's keys.
        signer: The candidate under which the signature verified, None when there was none.
        content_type: Of the packet; any other word for signatures that are no packets, such as ``AUTH``.
        received_at: When we received it; the author's own clock plays no part.
        skew: Tolerance in seconds, 60 to 300.

    A key may occur in several methods: if one permits, it is good; otherwise the newest one names the reason.
    """
    # Spec 4: with two heads: did_conflict.
    if ring.conflict:
        return _CONFLICT
    if not ring.methods:
        return _UNRESOLVED
    verdict = None
    for method in ring.methods:
        if method.public == signer:
            refusal = check_method(method, content_type, received_at, skew)
            if refusal is None and method.recovery and content_type == KEY_EVENT:
                # Spec 4.1: a recovery waits for ``threshold`` distinct keys; with fewer it never comes into force.
                refusal = check_threshold(ring.methods, ring.policy)
            if refusal is None:
                return None
            verdict = verdict or refusal
    return verdict or _BAD_SIGNATURE


def check_method(method: Method, content_type: str, received_at: int, skew: int) -> Refusal | None:
    """Return why this one method does not permit a packet, or None.

    Choice: a key event demands a key that has begun and is not revoked *at* its receive time, without tolerance
    ("already valid and not revoked at receive time"); only ``valid_until`` has the skew that all packets have.
    """
    changes_keys = content_type == KEY_EVENT
    # Spec 4.1: recovery keys sign KEY_EVENT and RECOVERY_APPROVAL only.
    if method.recovery and not changes_keys and content_type != RECOVERY_APPROVAL:
        return _RECOVERY_KEY
    # Spec 4.1: RECOVERY_APPROVAL is signed by recovery keys only (STRATA-EVENTS).
    if content_type == RECOVERY_APPROVAL and not method.recovery:
        return _NO_RECOVERY_KEY
    # Spec 4.1: our receive time counts, the author's clock plays no part.
    if received_at < method.valid_from - (0 if changes_keys else skew):
        return _NOT_YET
    if method.revoked_at is not None:
        # Spec 4.1: a key event demands a key that is not revoked on reception, without tolerance.
        revoked = received_at >= method.revoked_at if changes_keys else received_at > method.revoked_at + skew
        if revoked:
            return _REVOKED
    # Spec 4.1: min(valid_until, revoked_at) + skew.
    if method.valid_until is not None and received_at > method.valid_until + skew:
        return _EXPIRED
    return None


def check_threshold(methods: Sequence[Method], policy: RecoveryPolicy) -> Refusal | None:
    """Return the refusal of a recovery that asks for more keys than there are, or None."""
    return _THRESHOLD if policy.threshold > len(eligible_keys(methods, policy)) else None


def eligible_keys(methods: Sequence[Method], policy: RecoveryPolicy) -> dict[bytes, None]:
    """Return the distinct recovery keys whose approval counts, in the order of ``methods``."""
    return {
        method.public: None
        for method in methods
        if method.recovery and method.revoked_at is None and (not policy.key_ids or method.key_id in policy.key_ids)
    }


def has_room(ring: Keyring, signer: bytes, events_count: int) -> bool:
    """Return whether an author with ``events_count`` stored key events may add one signed by ``signer``."""
    # A thief with an ordinary key can fill 224 places and no more: the owner's recovery keys keep theirs.
    # Spec 4.1: 256 per author, 32 of them reserved for recovery keys.
    return events_count < KEY_EVENTS_MAX - (0 if is_recovery_key(ring, signer) else KEY_EVENTS_RESERVED)


def is_recovery_key(ring: Keyring, public: bytes) -> bool:
    """Return whether a key is one of the author's recovery keys."""
    return any(method.recovery and method.public == public for method in ring.methods)


def next_change(ring: Keyring, now: int) -> int | None:
    """Return when the ring must be replayed because a pending event falls due, None when only new events change it."""
    return min(
        (event.due_at for event in ring.pending if event.due_at is not None and event.due_at > now), default=None
    )


def hidden_after(ring: Keyring) -> tuple[tuple[bytes, int], ...]:
    """Return ``(public, revoked_at)`` of keys whose packets received after ``revoked_at + skew`` are not served.

    A key whose own event was undone has ``revoked_at`` 0: all it ever signed goes. Events that are in force stay served
    whatever key signed them; ``is_hidden`` takes care of that.
    """
    revoked: dict[bytes, int | None] = {}
    for method in ring.methods:
        # A key that still counts under another id hides nothing.
        known = revoked.get(method.public, 0)
        revoked[method.public] = None if known is None or method.revoked_at is None else max(known, method.revoked_at)
    kept = [(public, revoked_at) for public, revoked_at in revoked.items() if revoked_at is not None]
    return (*kept, *((public, 0) for public in ring.orphans))


def is_hidden(ring: Keyring, packet_id: bytes, signer: bytes, received_at: int, skew: int) -> bool:
    """Return whether a stored packet of this author must no longer be served."""
    # D6: packets of a revoked key received after revoked_at and the skew are hidden.
    if not any(public == signer and received_at > revoked_at + skew for public, revoked_at in hidden_after(ring)):
        return False
    return (packet_id, EventStatus.IN_FORCE) not in ring.statuses


def whole_seconds(value: object) -> int | None:
    """Return a JSON number that is whole and not negative as an int, None for anything else.

    ``1.0`` is the same number as ``1`` in canonical form (specs/strata.md 24, 2).
    """
    # Spec 24.2: an integer is one by value.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= INTEGER_MAX or value % 1:
        return None
    return int(value)


def read_key_id(value: object, did: str, name: str) -> str:
    """Return a key id of ``did``.

    Raises:
        RefusedError: Not ``<did>#<fragment>`` (detail ``name``), or another DID's (detail ``binding``).
    """
    if not isinstance(value, str) or not 0 < len(value) <= _KEY_ID_CHARS_MAX:
        raise _refused(name)
    owner, mark, fragment = value.partition("#")
    if not mark or not fragment:
        raise _refused(name)
    # Spec 5: the identity inside must be the author: invalid_schema: binding.
    if owner != did:
        raise _refused("binding")
    return value


def read_key_event(content: Mapping[str, Any], author_id: str) -> None:
    """Check the content of a KEY_EVENT or RECOVERY_APPROVAL packet.

    An ``event`` that is none of ``KEY_CHANGES`` is refused: it would be kept for ever to no effect (STRATA-EVENTS).

    Raises:
        RefusedError: ``invalid_schema``; the detail is the field, or ``binding`` for a key of another DID.
    """
    # Spec 4.1: an approval names its target event; key_id, approved_at and note are optional.
    if content.get("type") == RECOVERY_APPROVAL:
        _read_approval(content, author_id)
        return
    event = content.get("event")
    if not isinstance(event, str) or event not in KEY_CHANGES:
        raise _refused("event")
    # Spec 4.1: key_id is required in every KEY_EVENT.
    read_key_id(content.get("key_id"), author_id, "key_id")
    # Spec 4.1: ``replaces`` is required in ROTATE.
    if content.get("replaces") is not None or event == "ROTATE":
        read_key_id(content.get("replaces"), author_id, "replaces")
    _demand_times(content, {"ADD": "valid_from", "ROTATE": "valid_from", "REVOKE": "revoked_at"}.get(event))
    multibase = content.get("public_key_multibase")
    # Spec 4.1: the key is required in ADD and ROTATE.
    if multibase is None and event in {"ADD", "ROTATE"}:
        raise _refused("public_key_multibase")
    if multibase is not None and (not isinstance(multibase, str) or decode_key_multibase(multibase) is None):
        raise _refused("public_key_multibase")
    if not isinstance(content.get("reason", ""), str | None):
        raise _refused("reason")


def _read_approval(content: Mapping[str, Any], author_id: str) -> None:
    target = content.get("target_event")
    if not isinstance(target, str) or parse_packet_id(target) is None:
        raise _refused("target_event")
    if content.get("key_id") is not None:
        read_key_id(content["key_id"], author_id, "key_id")
    if content.get("approved_at") is not None and whole_seconds(content["approved_at"]) is None:
        raise _refused("approved_at")
    if not isinstance(content.get("note", ""), str | None):
        raise _refused("note")


def _demand_times(content: Mapping[str, Any], demanded: str | None) -> None:
    for name in ("valid_from", "valid_until", "revoked_at"):
        value = content.get(name)
        # Spec 4.1: valid_from is required in ADD and ROTATE, revoked_at in REVOKE.
        if (value is not None or name == demanded) and whole_seconds(value) is None:
            raise _refused(name)
    # Spec 4.1: valid_until absent or 0 is open.
    until = whole_seconds(content.get("valid_until"))
    if until and until < (whole_seconds(content.get("valid_from")) or 0):
        raise _refused("valid_until")


def _refused(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_SCHEMA, detail))
