"""Watches: reports to connections which devices connect to this relay and which disconnect.

A client names devices by WATCH. It gets WATCHED with the present state at once, and again after each turn in which the
state has changed, until it ends the watch or its connection ends. A device that reconnects within one turn has not
changed. A client that does not read gets the last state once it does, not all that were between.

Spec: BHUMI-WATCH.
"""

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import Watched, WatchState
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.session import Session

__all__ = ["Watches"]


class Watches:
    """Who watches whom. Cost: O(watchers of a device) when it connects or disconnects, else O(1)."""

    def __init__(self, connections: Connections) -> None:
        """Begin without any."""
        self._connections = connections
        self._bindings = connections.bindings
        self._watchers: dict[bytes, dict[Session, WatchState | None]] = {}
        """By device: who watches it, and what was reported to it last; None when it is owed the present state."""
        self._watched: dict[Session, dict[bytes, None]] = {}
        self._count = 0
        self._changed: dict[bytes, None] = {}
        """Devices whose watchers get a report at the end of the turn."""
        connections.on_end.append(self._on_end)

    def __len__(self) -> int:
        """Return how many watches there are."""
        return self._count

    def on_watch(self, session: Session, payload: bytes, _now: Instant) -> None:
        """Begin or end a watch; one too many is refused by WATCHED."""
        watch = extension_wire.decode_watch(payload)
        identity = bytes(watch.identity)
        if not watch.begins:
            self._end(session, identity)
            return
        watched = self._watched.setdefault(session, {})
        limits = self._connections.limits.now
        is_over = len(watched) >= limits.watches_per_connection or self._count >= limits.watches
        if identity not in watched and is_over:
            self._connections.note_refused(session, Refusal.WATCHES_FULL)
            refused = Watched(watch.identity, WatchState.REFUSED)
            self._connections.reply(session, extension_wire.encode_extension(refused))
            return
        if identity not in watched:
            watched[identity] = None
            self._count += 1
        self._watchers.setdefault(identity, {})[session] = None
        self._changed[identity] = None

    def on_identified(self, session: Session, _now: Instant) -> None:
        """Note that a device has connected."""
        self._note(session.identity)

    def flush(self) -> None:
        """Report what has changed since the last call to everybody who reads."""
        changed, self._changed = self._changed, {}
        for identity in changed:
            watchers = self._watchers.get(identity, {})
            state = WatchState.ONLINE if identity in self._bindings else WatchState.OFFLINE
            frame = extension_wire.encode_extension(Watched(PublicKey(identity), state))
            for session, reported in watchers.items():
                if reported is state:
                    continue
                if session.waiting_since is not None:
                    self._changed[identity] = None  # once it reads
                    continue
                watchers[session] = state
                self._connections.reply(session, frame)

    def _note(self, identity: bytes | None) -> None:
        if identity in self._watchers:
            self._changed[identity] = None

    def _on_end(self, session: Session, _now: Instant) -> None:
        """Forget what a connection watched, and note that its device is gone."""
        for identity in list(self._watched.get(session, ())):
            self._end(session, identity)
        self._note(session.identity)

    def _end(self, session: Session, identity: bytes) -> None:
        watched = self._watched.get(session, {})
        if identity not in watched:
            return
        del watched[identity], self._watchers[identity][session]
        self._count -= 1
        if not watched:
            del self._watched[session]
        if not self._watchers[identity]:
            del self._watchers[identity]
