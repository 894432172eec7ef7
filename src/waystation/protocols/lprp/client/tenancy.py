"""The tenancy of a client: requests a lease, renews it, and keeps it active by heartbeats.

The client machine asks it what to send (104 asks for a lease) and passes answers in.

::

    OFF       nothing is wanted
    ASKING    a lease is wanted and none is known     granted -> HELD
    HELD      heartbeats are answered                 one unanswered -> DOUBTED, renewal granted -> HELD
    DOUBTED   the lease may be gone, and is asked for  granted, or a heartbeat answered -> HELD

A 200 does not name its heartbeat. It counts only if it is newer than the last one and a heartbeat is unanswered. An
unanswered heartbeat is retransmitted unchanged four times, so that packet loss does not look like a lost lease. With
its last answer 30 s ago a lease is in doubt (NODE-SILENCE), and the host is asked more often for a while, so that we
are there soon after it. A refused lease request is repeated at growing intervals. Spec: LPRP-D4, LPRP-D8, LPRP-D19.
"""

from enum import Enum, auto
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    RequestOutcome,
)
from waystation.protocols.lprp.client.settings import TRIES_PER_HEARTBEAT, ClientSettings
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = [
    "ASK_AGAIN_MS_MAX",
    "EXTRA_HEARTBEATS",
    "EXTRA_HEARTBEAT_MS",
    "HEARTBEAT_TRIES",
    "PROBES_MAX",
    "PROBE_TRIES",
    "Tenancy",
]

EXTRA_HEARTBEATS: Final = 2  # LPRP-GREETING: with the first heartbeat three, which pay for two full packets
EXTRA_HEARTBEAT_MS: Final = 20  # apart, so that the host's answers have times of their own
HEARTBEAT_TRIES: Final = 5  # ours: at 0, 1, 2, 3 and 4 s; one in ten lost both ways doubts once in a day
PROBE_TRIES: Final = 5  # in doubt, the time of five tries lies between two heartbeats
PROBES_MAX: Final = 120  # ours: so many of these, which is ten minutes
ASK_AGAIN_MS_MAX: Final = 3_600_000  # ours; a lease is worth a minute of work, not one every minute


class _State(Enum):
    OFF = auto()
    ASKING = auto()
    HELD = auto()
    DOUBTED = auto()


class Tenancy:
    """Decides when to send 104 and heartbeats; with ``wants_lease`` the client sends a 104."""

    def __init__(self, context: ClientContext, settings: ClientSettings) -> None:
        self._context = context
        self._settings = settings
        self._state = _State.OFF
        self._failures_count = 0
        self._unanswered_since: Instant | None = None
        """When the first heartbeat went that has no answer, while there is one."""
        self._probes_count = 0
        """Heartbeats since the lease is in doubt."""
        self._newest_answer_ms = -1
        self._heartbeat: Packet | None = None
        """The newest one, while it has no answer."""
        self._tries = 0
        self._next_heartbeat: Instant | None = None
        self._beats_left = 0
        """Heartbeats to send at once, each after the answer to the last: they pay for mail (LPRP-GREETING)."""
        self._is_extra = False
        """The next heartbeat is one of these."""
        self._is_proved = False
        """The host knows that its packets reach us."""
        self._next_try: Instant | None = None
        self._ask_at: Instant | None = None
        self._is_asking = False
        """A 104 is under way."""
        self.wants_lease = False
        """A 104 is to be sent as soon as it is its turn."""
        self.until_ms: int | None = None
        """When our lease ends at the earliest, Unix milliseconds; None when we do not know of one."""

    @property
    def is_doubted(self) -> bool:
        """Whether a heartbeat and its repeats went unanswered, and none was answered since."""
        return self._state is _State.DOUBTED

    def is_certain(self, now: Instant) -> bool:
        """Return whether no lease is awaited: we hold one that lasts, or did not ask."""
        if self._state is _State.HELD:
            return self.until_ms is None or self._context.wall_ms(now) < self.until_ms
        return self._state is _State.OFF

    # Commands

    def ask(self, now: Instant) -> None:  # noqa: ARG002 - commands know the time
        """Request a lease, or a longer one."""
        if self._state is _State.OFF:
            self._state = _State.ASKING
        self._failures_count = 0
        self._want()

    def hold(self, now: Instant, until_ms: int | None) -> None:
        """Assume that we have a lease."""
        if until_ms is not None:
            self.until_ms = until_ms
            self._renew_before(until_ms, now)
        if self._state is not _State.HELD:
            self._become_held(now)
            self._next_heartbeat = now
            self.hurry(now)

    def let_go(self) -> None:
        """Request no lease any more; the one we have ends by itself."""
        self._state = _State.OFF
        self.wants_lease = False
        self._ask_at = self._next_heartbeat = self._next_try = self._heartbeat = None

    def hurry(self, now: Instant) -> None:
        """Send the next heartbeat at once: the host does not know our new address, or has no proof of it."""
        self._is_proved = False
        if self._next_heartbeat is not None:
            self._next_heartbeat = now
            # LPRP-GREETING: one heartbeat of 144 bytes pays for no full packet; three do.
            self._beats_left = EXTRA_HEARTBEATS
            self.wake(now)

    # Outcomes of a 104

    def asked(self) -> None:
        """Note that the 104 is under way."""
        self.wants_lease = False
        self._is_asking = True

    def withdrawn(self) -> None:
        """Note that the 104 is no longer waited for."""
        self._is_asking = False

    def granted(self, asked_ms: int, granted_ms: int, now: Instant, *, for_work: bool) -> None:
        """Note that the host granted at ``granted_ms`` of its clock what we asked for at ``asked_ms`` of ours."""
        assert self._state is not _State.OFF
        self._is_asking = False
        self._is_proved = for_work
        # Also where its clock went back: from here on its answers count from its present time.
        self._newest_answer_ms = granted_ms
        # The host counts from its own clock, which was later than our request: this is the earliest end.
        self.until_ms = asked_ms + self._settings.lease_ms
        self._context.emit(LeaseGranted(asked_ms, self.until_ms))
        self._failures_count = 0
        self._renew_before(self.until_ms, now)
        self._become_held(now)

    def refused(self, outcome: RequestOutcome, now: Instant) -> None:
        """Note that there is no lease this time, and plan the next."""
        assert self._state is not _State.OFF
        self._is_asking = False
        self._context.emit(LeaseRefused(outcome))
        # A refused 104 is repeated less and less often, as each may cost a minute of work.
        wait_ms = min(self._settings.heartbeat_ms << min(self._failures_count, 32), ASK_AGAIN_MS_MAX)
        self._failures_count += 1
        self._ask_at = after_ms(now, wait_ms)

    def _renew_before(self, until_ms: int, now: Instant) -> None:
        # Spec 10: a lease is renewed at three quarters.
        left_ms = until_ms - self._context.wall_ms(now) - self._settings.lease_ms // 4
        self._ask_at = after_ms(now, max(0, left_ms))

    def _become_held(self, now: Instant) -> None:
        if self._next_heartbeat is None or self.is_doubted:
            self._next_heartbeat = after_ms(now, self._settings.heartbeat_ms)
        self._state = _State.HELD
        self._unanswered_since = None

    # Heartbeats

    def expects(self, packet: Packet) -> Refusal | None:
        """Return why a 200 is unexpected, or None; its signature is not checked."""
        if self._heartbeat is None:
            return Refusal.UNASKED_ANSWER
        # LPRP-D4: a 200 names no heartbeat, so an old one must not count again.
        return None if packet.time_ms > self._newest_answer_ms else Refusal.NOT_NEWER

    def take(self, packet: Packet, now: Instant) -> bool:
        """Note a 200 of the host and return whether it ended a doubt."""
        was_doubted = self.is_doubted
        self._newest_answer_ms = packet.time_ms
        self._heartbeat = self._next_try = self._unanswered_since = None
        self._context.emit(HostAnswered(packet.time_ms))
        if self._beats_left:
            self._beats_left -= 1
            self._next_heartbeat = after_ms(now, EXTRA_HEARTBEAT_MS)
            self._is_extra = True
        elif was_doubted:
            self._next_heartbeat = after_ms(now, self._settings.heartbeat_ms)
        if was_doubted:
            self._state = _State.HELD
            self._failures_count = 0
            self.wants_lease = False
            self._ask_at = None
            if self.until_ms is not None:
                self._renew_before(self.until_ms, now)
        return was_doubted

    def wake(self, now: Instant) -> None:
        """Send the heartbeats that are due, and request a lease when it is time to."""
        if self._ask_at is not None and now >= self._ask_at:
            self._want()
        if (doubt_at := self._doubt_at()) is not None and now >= doubt_at:
            self._doubt(now)
        if self._next_heartbeat is not None and now >= self._next_heartbeat:
            if not self._is_extra:
                # Spec 10: two heartbeats each time while we have not worked from where we are.
                self._beats_left = max(self._beats_left, 0 if self._is_proved else 1)
            self._is_extra = False
            self._beat(now)
        elif self._next_try is not None and now >= self._next_try:
            assert self._heartbeat is not None
            self._try(self._heartbeat, now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        times = (self._ask_at, self._next_heartbeat, self._next_try, self._doubt_at())
        return min((at for at in times if at is not None), default=None)

    def _doubt_at(self) -> Instant | None:
        """Return when the lease is in doubt if nothing comes until then, or None."""
        if self._state is not _State.HELD or self._unanswered_since is None:
            return None
        # Spec 10: half a second after the last of five tries.
        return after_ms(self._unanswered_since, self._try_ms * (2 * HEARTBEAT_TRIES - 1) // 2)

    @property
    def _try_ms(self) -> int:
        """How long after a try of a heartbeat the next one goes: a second, with the default settings."""
        shortest_ms = min(self._settings.retry_ms, self._settings.heartbeat_retry_ms)
        return max(shortest_ms, self._settings.heartbeat_ms // TRIES_PER_HEARTBEAT)

    def _beat(self, now: Instant) -> None:
        self._unanswered_since = self._unanswered_since or now
        self._heartbeat = self._context.seal(Command.HEARTBEAT, b"", now)
        self._tries = 0
        self._next_heartbeat = after_ms(now, self._beat_ms())
        self._try(self._heartbeat, now)

    def _beat_ms(self) -> int:
        """Return how long after a heartbeat the next one goes."""
        if not self.is_doubted or self._probes_count >= PROBES_MAX:
            return self._settings.heartbeat_ms
        # Spec 10: every 5 s for ten minutes.
        self._probes_count += 1
        return min(self._try_ms * PROBE_TRIES, self._settings.heartbeat_ms)

    def _try(self, heartbeat: Packet, now: Instant) -> None:
        self._context.send(heartbeat)
        self._tries += 1
        # Spec 10: a heartbeat is repeated after 1, 2, 3 and 4 s; in doubt, the next one comes soon.
        repeats = self._tries < HEARTBEAT_TRIES and not self.is_doubted
        self._next_try = after_ms(now, self._try_ms) if repeats else None

    def _doubt(self, now: Instant) -> None:
        self._state = _State.DOUBTED
        self._probes_count = 0
        self._next_try = None
        self._next_heartbeat = after_ms(now, self._beat_ms())
        self._context.emit(LeaseDoubted())
        self._want()

    def _want(self) -> None:
        self._ask_at = None
        self.wants_lease = not self._is_asking
