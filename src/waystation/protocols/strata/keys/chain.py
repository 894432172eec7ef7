"""Replays an author's key events and returns the author's keyring.

The relay's directory calls it with the stored events. Events are applied in the order ``(received_at, seq)``, so the
same events always give the same ring. Each gets one ``EventStatus``:

- signed by an ordinary key that was valid when it was received: in force at once;
- signed by a recovery key: pending, until ``threshold`` recovery keys have approved **and** 24 h have passed since it
  was received. Meanwhile any key event of an ordinary key overrides it;
- signed by a key that a back-dated REVOKE removed before that time: undone, and the replay starts again without it.

Times are whole Unix seconds. Spec: RFC-0001 (keys, recovery); specs/strata.md 4.1, 20 (D6), 24 (8).

Choice: where the specification is open, we chose what gives a stolen key less power and locks out no author.

- A REVOKE never undoes its own basis: itself, the events that gave its signer a key, and its approvals. So a key may
  revoke itself, and a new key may revoke its predecessor as of before the replacement.
- A key that revokes itself overrides no recovery, because an author who lost a key does just that.
- A revoked key cannot return under another id, and a recovery key cannot become an ordinary one.
- The delay counts from the event, not from its last approval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from waystation.core.dids import decode_key_multibase
from waystation.protocols.strata.keys.keyring import (
    KEY_CHANGES,
    KEY_EVENT,
    RECOVERY_APPROVAL,
    RECOVERY_DELAY_SECONDS,
    EventStatus,
    KeyEvent,
    Keyring,
    Method,
    PendingEvent,
    check_method,
    check_threshold,
    eligible_keys,
    whole_seconds,
)
from waystation.protocols.strata.packet import parse_packet_id

__all__ = ["replay"]

_RUNS_MAX: Final = 16  # each run but the last undoes something; honest chains need two or three


def replay(genesis: Keyring, events: Sequence[KeyEvent], skew: int, now: int) -> Keyring:
    """Return the ring that ``events``, in any order, make of ``genesis`` as seen at ``now``.

    When revocations keep undoing each other past a bound, the ring is in conflict: fail closed.

    Cost: O(events) for each revocation that undoes something, at most 16 times O(``KEY_EVENTS_MAX``).
    """
    if genesis.conflict or not events:
        return genesis
    # D27: by receive time, ties by the number of the commit.
    ordered = sorted(events, key=lambda event: (event.received_at, event.seq))
    undone: dict[bytes, bytes] = {}
    for _ in range(_RUNS_MAX):
        run = _Run(genesis, skew, undone)
        cut = run.over(ordered, now)
        if cut is None:
            return run.ring(ordered)
        # What an undone revocation had undone counts again, unless the next run finds another reason.
        undone = {victim: cause for victim, cause in undone.items() if cause not in cut.victims}
        undone.update(dict.fromkeys(cut.victims, cut.cause))
    # Fail closed: no packet of an author whose chain contradicts itself is accepted.
    return replace(genesis, methods=(), conflict=True)


class _Cut(NamedTuple):
    """A revocation and the events it undoes."""

    cause: bytes
    victims: tuple[bytes, ...]


class _Run:
    """One run over the events, with what earlier runs found undone left out."""

    def __init__(self, genesis: Keyring, skew: int, undone: Mapping[bytes, bytes]) -> None:
        self._genesis = genesis
        self._policy = genesis.policy
        self._skew = skew
        self._methods = {method.key_id: method for method in reversed(genesis.methods)}  # oldest first
        self._given_by: dict[str, bytes] = {}  # key id -> the event that brought it in
        self._rests_on: dict[bytes, tuple[bytes, ...]] = {}  # event -> where its authority comes from
        self._taken: list[KeyEvent] = []
        self._waiting: dict[bytes, tuple[KeyEvent, PendingEvent]] = {}
        self._next_due: int | None = None
        self._approvals: dict[bytes, dict[bytes, KeyEvent]] = {}  # target -> recovery key -> its first approval
        self._statuses: dict[bytes, EventStatus] = dict.fromkeys(undone, EventStatus.UNDONE)

    def over(self, ordered: Sequence[KeyEvent], now: int) -> _Cut | None:
        """Run to the end, or to the first revocation that undoes something."""
        for event in ordered:
            cut = self._settle(event.received_at)
            if cut is None and event.packet_id not in self._statuses:
                cut = self._take(event)
            if cut is not None:
                return cut
        return self._settle(max(now, ordered[-1].received_at))

    def ring(self, ordered: Sequence[KeyEvent]) -> Keyring:
        """Return the ring after the run."""
        methods = tuple(reversed(self._methods.values()))
        known = {method.public for method in methods}
        brought = [_public_of(event) for event in ordered if _brings_key(event)]
        return replace(
            self._genesis,
            methods=methods,
            statuses=tuple((event.packet_id, self._statuses[event.packet_id]) for event in ordered),
            pending=tuple(pending for _, pending in self._waiting.values()),
            orphans=tuple(dict.fromkeys(public for public in brought if public not in known)),
        )

    def _take(self, event: KeyEvent) -> _Cut | None:
        kind = event.content["type"]
        signer = self._signer(event, kind)
        self._statuses[event.packet_id] = EventStatus.NO_EFFECT
        # Spec 4.1: RECOVERY_APPROVAL is signed by recovery keys only.
        if signer is None or (kind == RECOVERY_APPROVAL and not signer.recovery):
            return None
        given_by = self._given_by.get(signer.key_id)
        self._rests_on[event.packet_id] = () if given_by is None else (given_by,)
        self._taken.append(event)
        if kind == RECOVERY_APPROVAL:
            self._approve(event)
            return None
        # Stored before STRATA-EVENTS.
        if event.content["event"] not in KEY_CHANGES:
            return None
        # Spec 4.1: a KEY_EVENT of a recovery key waits for its threshold and for 24 h.
        if signer.recovery:
            self._wait(event)
            return None
        # Spec 4.1: an ordinary key's event in that time overrides it.
        if event.content["event"] != "REVOKE" or event.content["key_id"] != signer.key_id:
            self._override()
        return self._apply(event)

    def _signer(self, event: KeyEvent, kind: str) -> Method | None:
        """Return the newest method by which the event's key may sign it."""
        for method in reversed(self._methods.values()):
            if method.public == event.signer and check_method(method, kind, event.received_at, self._skew) is None:
                return method
        return None

    def _approve(self, event: KeyEvent) -> None:
        target = parse_packet_id(event.content["target_event"])
        assert target is not None
        self._statuses[event.packet_id] = EventStatus.IN_FORCE
        self._approvals.setdefault(target, {}).setdefault(event.signer, event)
        if target in self._waiting:
            self._count(self._waiting[target][0])

    def _wait(self, event: KeyEvent) -> None:
        # An event that demands more keys than there are would wait for ever: it has no effect.
        if check_threshold(tuple(self._methods.values()), self._policy) is None:
            self._statuses[event.packet_id] = EventStatus.PENDING
            self._count(event)

    def _override(self) -> None:
        self._statuses.update(dict.fromkeys(self._waiting, EventStatus.OVERRIDDEN))
        self._waiting.clear()
        self._next_due = None

    def _consents(self, event: KeyEvent) -> list[KeyEvent]:
        """Return the approval of each eligible recovery key for a pending event, earliest first."""
        # Spec 4.1: the signer of the event is one of its threshold.
        consents = {**self._approvals.get(event.packet_id, {}), event.signer: event}
        eligible = eligible_keys(tuple(self._methods.values()), self._policy)
        return sorted(
            (consents[key] for key in eligible if key in consents), key=lambda each: (each.received_at, each.seq)
        )

    def _count(self, event: KeyEvent) -> None:
        """Count the approvals of a pending event, and know when the next one falls due."""
        consents, threshold, due_at = self._consents(event), self._policy.threshold, None
        if len(consents) >= threshold:
            # Spec 4.1: 24 h from its reception, and the threshold reached.
            due_at = max(event.received_at + RECOVERY_DELAY_SECONDS, consents[threshold - 1].received_at)
        pending = PendingEvent(event.packet_id, event.received_at, len(consents), threshold, due_at)
        self._waiting[event.packet_id] = (event, pending)
        self._find_next_due()

    def _find_next_due(self) -> None:
        dues = [pending.due_at for _, pending in self._waiting.values() if pending.due_at is not None]
        self._next_due = min(dues, default=None)

    def _settle(self, now: int) -> _Cut | None:
        """Apply the events that have fallen due, in the order of their times."""
        while self._next_due is not None and self._next_due <= now:
            event = next(event for event, pending in self._waiting.values() if pending.due_at == self._next_due)
            del self._waiting[event.packet_id]
            self._find_next_due()
            # A later REVOKE must not undo the approvals that this event came into force by.
            self._rests_on[event.packet_id] += tuple(each.packet_id for each in self._consents(event) if each != event)
            cut = self._apply(event)
            if cut is not None:
                return cut
        return None

    def _apply(self, event: KeyEvent) -> _Cut | None:
        revokes = event.content["event"] == "REVOKE"
        applied = self._revoke(event) if revokes else self._add(event)
        self._statuses[event.packet_id] = EventStatus.IN_FORCE if applied else EventStatus.NO_EFFECT
        victims = self._victims(event) if applied and revokes else ()
        return _Cut(event.packet_id, victims) if victims else None

    def _add(self, event: KeyEvent) -> bool:
        content = event.content
        key_id, public, valid_from = content["key_id"], _public_of(event), whole_seconds(content["valid_from"])
        assert valid_from is not None
        barred = any(
            method.public == public and (method.recovery or method.revoked_at is not None)
            for method in self._methods.values()
        )
        # Spec 4.1: a revoked key never comes back, and a recovery key never becomes an ordinary one.
        if barred or key_id in self._methods:
            return False
        replaced = self._methods.get(content["replaces"]) if content["event"] == "ROTATE" else None
        if replaced is not None:
            # D6: ROTATE ends the old key where the new one begins.
            until = valid_from if replaced.valid_until is None else min(replaced.valid_until, valid_from)
            self._methods[replaced.key_id] = replaced._replace(valid_until=until)
        self._methods[key_id] = Method(key_id, public, valid_from, whole_seconds(content.get("valid_until")) or None)
        self._given_by[key_id] = event.packet_id
        return True

    def _revoke(self, event: KeyEvent) -> bool:
        method = self._methods.get(event.content["key_id"])
        revoked_at = whole_seconds(event.content["revoked_at"])
        assert revoked_at is not None
        # A later revocation of the same key takes nothing more away.
        if method is None or (method.revoked_at is not None and method.revoked_at <= revoked_at):
            return False
        self._methods[method.key_id] = method._replace(revoked_at=revoked_at)
        # A revoked recovery key no longer approves: every pending event is counted again.
        if method.recovery:
            for waiting, _ in tuple(self._waiting.values()):
                self._count(waiting)
        return True

    def _victims(self, revocation: KeyEvent) -> tuple[bytes, ...]:
        """Return the events so far that no longer have a signer, save those the revocation itself rests on."""
        revoked = self._methods[revocation.content["key_id"]]
        assert revoked.revoked_at is not None
        # A key that another id still permits keeps its events.
        others = [each for each in self._methods.values() if each.public == revoked.public and each != revoked]
        protected = self._foundation(revocation.packet_id)
        return tuple(
            event.packet_id
            for event in self._taken
            if event.signer == revoked.public
            # Spec 24.8: a REVOKE dated back undoes also key events that the key signed later.
            and event.received_at > revoked.revoked_at + self._skew
            and event.packet_id not in protected
            and all(check_method(other, event.content["type"], event.received_at, self._skew) for other in others)
        )

    def _foundation(self, packet_id: bytes) -> dict[bytes, None]:
        """Return an event and all that its authority comes from."""
        found: dict[bytes, None] = {}
        ahead = [packet_id]
        while ahead:
            each = ahead.pop()
            if each not in found:
                found[each] = None
                ahead += self._rests_on[each]
        return found


def _brings_key(event: KeyEvent) -> bool:
    # An approval may have a member of this name, too, which is not checked.
    return event.content["type"] == KEY_EVENT and event.content["event"] in {"ADD", "ROTATE"}


def _public_of(event: KeyEvent) -> bytes:
    public = decode_key_multibase(event.content["public_key_multibase"])
    assert public is not None
    return public
