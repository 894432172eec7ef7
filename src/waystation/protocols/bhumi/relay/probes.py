"""Relay QA at the relay: it asks a device to probe another relay; the device may refuse.

A candidate is a relay with a verified advert, or one of the operator's peers (BHUMI-X). Each device is asked at most
once in ten minutes, across all its connections. Reports are counted by verdict and have no other effect: a device keeps
its findings to itself (section 10, BHUMI-QALOCAL).
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import QaRequest, QaVerdict
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.session import Session

__all__ = ["ASK_EVERY_MS", "DEADLINE_S", "ProbesAsked"]

ASK_EVERY_MS: Final = 600_000  # specs/bhumi.md 5
DEADLINE_S: Final = 60  # ours: a probe takes seconds


class ProbesAsked:
    """Requests of one relay."""

    def __init__(
        self, connections: Connections, rng: random.Random, candidates: Callable[[Instant], list[str]]
    ) -> None:
        """Prepare.

        Args:
            connections: Who is here.
            rng: Draws candidates, numbers, and when a new connection is asked first.
            candidates: Returns the addresses that may be probed.
        """
        self._connections = connections
        self._rng = rng
        self._candidates = candidates
        self._alarms = Alarms()
        self._asked_at: OrderedDict[bytes, Instant] = OrderedDict()
        """When each device was asked last, the longest ago first."""
        self._open: dict[Peer, tuple[int, Instant]] = {}
        """Number and deadline of the request that a connection has not answered."""
        self.asked_count = 0
        self.reports = dict.fromkeys(QaVerdict, 0)
        """How often each verdict was reported."""
        connections.on_end.append(self._on_end)

    def on_identified(self, session: Session, now: Instant) -> None:
        """Plan to ask a device that understands the question, some time within the next ten minutes."""
        if _understands(session):
            self._alarms.set_by(session.peer, after_ms(now, self._rng.randrange(1, ASK_EVERY_MS)))

    def on_report(self, session: Session, payload: bytes, now: Instant) -> None:
        """Count a verdict; a report that nobody asked for, or that comes too late, is none."""
        report = extension_wire.decode_qa_report(payload)
        asked = self._open.get(session.peer)
        # A report counts for the one open request of this connection, in its time.
        if asked is None or asked[0] != report.probe_id or asked[1] < now:
            self._connections.note_refused(session, Refusal.UNASKED_REPORT)
            return
        del self._open[session.peer]
        self.reports[report.verdict] += 1

    def wake(self, now: Instant) -> None:
        """Ask whoever is due."""
        for number in self._alarms.due(now):
            session = self._connections.sessions.get(Peer(number))
            if session is not None and _understands(session):
                self._alarms.set_by(number, self._ask(session, now))

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._alarms.next_at()

    def view(self) -> dict[str, int]:
        """Return how often devices were asked, and how often each verdict came back."""
        return {"asked": self.asked_count} | {verdict.name.lower(): n for verdict, n in self.reports.items()}

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {"probes_open": len(self._open), "probed_devices": len(self._asked_at)}

    def _ask(self, session: Session, now: Instant) -> Instant:
        """Ask a device if it may be asked now; return when to look at it again."""
        identity = session.identity
        assert identity is not None
        # Spec 5: once in ten minutes per device, whatever connection it comes on.
        while self._asked_at and after_ms(next(iter(self._asked_at.values())), ASK_EVERY_MS) <= now:
            self._asked_at.popitem(last=False)
        before = self._asked_at.get(identity)
        if before is not None:
            return after_ms(before, ASK_EVERY_MS)
        addresses = self._candidates(now)
        # At the table's limit nobody new is asked, so that nobody is asked twice.
        if (
            addresses
            and len(self._asked_at) < self._connections.limits.now.probed_devices
            and session.waiting_since is None
        ):
            probe_id = self._rng.getrandbits(32)
            request = QaRequest(probe_id, self._rng.choice(addresses), DEADLINE_S)
            self._connections.reply(session, extension_wire.encode_extension(request))
            self._open[session.peer] = (probe_id, after_ms(now, DEADLINE_S * 1_000))
            self._asked_at[identity] = now
            self.asked_count += 1
        return after_ms(now, ASK_EVERY_MS)

    def _on_end(self, session: Session, _now: Instant) -> None:
        self._alarms.cancel(session.peer)
        self._open.pop(session.peer, None)


def _understands(session: Session) -> bool:
    """Return whether a connection has agreed on the question, and has not taken that back."""
    return session.negotiated is not None and Feature.QA in session.negotiated.features
