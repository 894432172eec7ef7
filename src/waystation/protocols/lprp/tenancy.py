"""Being a tenant: a lease asked for, renewed, and held by heartbeats.

::

    OFF       nothing is wanted
    ASKING    a lease is wanted and none is known     granted -> HELD
    HELD      heartbeats are answered                 three missed -> DOUBTED, renewal granted -> HELD
    DOUBTED   the lease may be gone, and is asked for  granted, or a heartbeat answered -> HELD

A 200 names no heartbeat, so only one newer than the last counts, and only while a heartbeat waits. A heartbeat goes
again as it is when no answer comes, because losing one in three datagrams must not look like losing the lease. Asking
that fails is done again later, less and less often. Spec: LPRP-D4, LPRP-D8, LPRP-D19.
"""

from enum import Enum, auto
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.client_events import (
    HostHeard,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    RequestOutcome,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.client_voice import Voice
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["ASK_AGAIN_MS_MAX", "GREETINGS", "GREETING_MS", "HEARTBEAT_TRIES", "MISSED_MAX", "Tenancy"]

GREETINGS: Final = 2  # LPRP-GREETING: with the first heartbeat three, which pay for two full packets
GREETING_MS: Final = 20  # apart, so that the host's answers have times of their own
MISSED_MAX: Final = 3  # LPRP-D4
HEARTBEAT_TRIES: Final = 3  # ours: at 0, 1 and 3 s
ASK_AGAIN_MS_MAX: Final = 3_600_000  # ours; a lease is worth a minute of work, not one every minute


class _State(Enum):
    OFF = auto()
    ASKING = auto()
    HELD = auto()
    DOUBTED = auto()


class Tenancy:
    """Decides when to ask and when to say that we are here; ``wants_lease`` tells the client to send a 104."""

    def __init__(self, voice: Voice, settings: ClientSettings) -> None:
        self._voice = voice
        self._settings = settings
        self._state = _State.OFF
        self._failures_count = 0
        self._missed_count = 0
        self._newest_answer_ms = -1
        self._heartbeat: Packet | None = None
        """The newest one, while it has no answer."""
        self._tries = 0
        self._next_heartbeat: Instant | None = None
        self._beats_left = 0
        """Heartbeats to send at once, each behind the answer to the last: they pay for mail (LPRP-GREETING)."""
        self._is_greeting = False
        """The next heartbeat is one of these."""
        self._is_proved = False
        """The host knows that what it sends reaches us."""
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
        """Whether three heartbeats in a row went unanswered, and nothing better is known since."""
        return self._state is _State.DOUBTED

    def is_certain(self, now: Instant) -> bool:
        """Return whether nobody waits for a lease: we hold one that lasts, or did not ask."""
        if self._state is _State.HELD:
            return self.until_ms is None or self._voice.wall_ms(now) < self.until_ms
        return self._state is _State.OFF

    # Commands

    def ask(self, now: Instant) -> None:  # noqa: ARG002 - commands know the time
        """Want a lease, or a longer one."""
        if self._state is _State.OFF:
            self._state = _State.ASKING
        self._failures_count = 0
        self._want()

    def hold(self, now: Instant, until_ms: int | None) -> None:
        """Take it that we have a lease."""
        if until_ms is not None:
            self.until_ms = until_ms
            self._renew_before(until_ms, now)
        if self._state is not _State.HELD:
            self._become_held(now)
            self._next_heartbeat = now
            self.hurry(now)

    def let_go(self) -> None:
        """Want no lease any more; the one we have ends by itself."""
        self._state = _State.OFF
        self.wants_lease = False
        self._ask_at = self._next_heartbeat = self._next_try = self._heartbeat = None

    def hurry(self, now: Instant) -> None:
        """Let the next heartbeat go at once: the host does not know where we are, or that it is we who are here."""
        self._is_proved = False
        if self._next_heartbeat is not None:
            self._next_heartbeat = now
            self._beats_left = GREETINGS
            self.wake(now)

    # What became of asking

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
        # Also where its clock went back: from here on its answers count from what it says now.
        self._newest_answer_ms = granted_ms
        self.until_ms = asked_ms + self._settings.lease_ms
        self._voice.tell(LeaseGranted(asked_ms, self.until_ms))
        self._failures_count = 0
        self._renew_before(self.until_ms, now)
        self._become_held(now)

    def refused(self, outcome: RequestOutcome, now: Instant) -> None:
        """Note that there is no lease this time, and plan the next."""
        assert self._state is not _State.OFF
        self._is_asking = False
        self._voice.tell(LeaseRefused(outcome))
        wait_ms = min(self._settings.heartbeat_ms << min(self._failures_count, 32), ASK_AGAIN_MS_MAX)
        self._failures_count += 1
        self._ask_at = after_ms(now, wait_ms)

    def _renew_before(self, until_ms: int, now: Instant) -> None:
        left_ms = until_ms - self._voice.wall_ms(now) - self._settings.lease_ms // 4
        self._ask_at = after_ms(now, max(0, left_ms))

    def _become_held(self, now: Instant) -> None:
        self._state = _State.HELD
        self._missed_count = 0
        if self._next_heartbeat is None:
            self._next_heartbeat = after_ms(now, self._settings.heartbeat_ms)

    # Heartbeats

    def expects(self, packet: Packet) -> Refusal | None:
        """Return why a 200 is not wanted, or None; its signature is not looked at."""
        if self._heartbeat is None:
            return Refusal.UNASKED_ANSWER
        return None if packet.time_ms > self._newest_answer_ms else Refusal.NOT_NEWER

    def take(self, packet: Packet, now: Instant) -> bool:
        """Note a 200 of the host and return whether it ended a doubt."""
        was_doubted = self.is_doubted
        self._newest_answer_ms = packet.time_ms
        self._heartbeat = self._next_try = None
        self._missed_count = 0
        self._voice.tell(HostHeard(packet.time_ms))
        if self._beats_left:
            self._beats_left -= 1
            self._next_heartbeat = after_ms(now, GREETING_MS)
            self._is_greeting = True
        if was_doubted:
            self._state = _State.HELD
            self._failures_count = 0
            self.wants_lease = False
            self._ask_at = None
            if self.until_ms is not None:
                self._renew_before(self.until_ms, now)
        return was_doubted

    def wake(self, now: Instant) -> None:
        """Send the heartbeats that are due, and ask when it is time to."""
        if self._ask_at is not None and now >= self._ask_at:
            self._want()
        if self._next_heartbeat is not None and now >= self._next_heartbeat:
            if not self._is_greeting:
                self._beats_left = max(self._beats_left, 0 if self._is_proved else 1)
            self._is_greeting = False
            self._beat(now)
        elif self._next_try is not None and now >= self._next_try:
            assert self._heartbeat is not None
            self._try(self._heartbeat, now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        due = [at for at in (self._ask_at, self._next_heartbeat, self._next_try) if at is not None]
        return min(due, default=None)

    def _beat(self, now: Instant) -> None:
        if self._heartbeat is not None:
            self._missed_count += 1
            if self._missed_count >= MISSED_MAX and self._state is _State.HELD:
                self._doubt()
        self._heartbeat = self._voice.seal(Command.HEARTBEAT, b"", now)
        self._tries = 0
        self._next_heartbeat = after_ms(now, self._settings.heartbeat_ms)
        self._try(self._heartbeat, now)

    def _try(self, heartbeat: Packet, now: Instant) -> None:
        self._voice.send(heartbeat)
        wait_ms = self._settings.retry_ms << self._tries
        self._tries += 1
        self._next_try = after_ms(now, wait_ms) if self._tries < HEARTBEAT_TRIES else None

    def _doubt(self) -> None:
        self._state = _State.DOUBTED
        self._voice.tell(LeaseDoubted())
        self._want()

    def _want(self) -> None:
        self._ask_at = None
        self.wants_lease = not self._is_asking
