"""When mail leaves: at once while there is room, again after c1 times the number of tries, and not for ever.

Each letter has its own time, so a tenant that confirms one gets the next one and not all of them again; the tries are
the tenant's (LPRP-TIMERS). Mail goes only to an address that was heard from lately, and to one that proved nothing only
for as many bytes as it has paid for. Spec: lprp 5, LPRP-D18, LPRP-D21; LPRP-C1, LPRP-C2.
"""

from collections.abc import Callable

from waystation.core.alarms import Alarms
from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.lprp.mailbox import Letter
from waystation.protocols.lprp.tenants import Tenant

__all__ = ["Delivery"]


class Delivery:
    """Sends the mail of all tenants in time."""

    def __init__(self, retry_ms: int, tries_max: int, send: Callable[[Address, bytes], None]) -> None:
        """Start with nobody to send to.

        Args:
            retry_ms: The text's c1.
            tries_max: The text's c2.
            send: Hands one datagram on.
        """
        self._retry_us = retry_ms * MICROSECONDS_PER_MS
        self._tries_max = tries_max
        self._send = send
        self._alarms = Alarms()
        self._ringing: dict[int, Tenant] = {}

    def __len__(self) -> int:
        """Return how many tenants have mail under way."""
        return len(self._ringing)

    def pump(self, tenant: Tenant, now: Instant) -> None:
        """Send what may leave now, and remember when to look again."""
        if not tenant.mailbox or tenant.dormant or not tenant.is_reachable(now):
            self.stop(tenant)
            return
        if now < tenant.sent_at + self._retry_us * tenant.tries:
            self._send_all(tenant, [letter for letter in tenant.mailbox.window() if letter.sent_at is None], now)
            self._look_again(tenant, now)
            return
        due = [letter for letter in tenant.mailbox.window() if self._may_go(letter, now)]
        if due and tenant.tries >= self._tries_max:
            tenant.dormant = True
            self.stop(tenant)
            return
        if self._send_all(tenant, due, now):
            tenant.sent_at = now
            tenant.tries += 1
        self._look_again(tenant, now)

    def stop(self, tenant: Tenant) -> None:
        """Send nothing until the next ``pump``."""
        if self._ringing.pop(tenant.number, None) is not None:
            self._alarms.cancel(tenant.number)

    def wake(self, now: Instant) -> None:
        """Look after those whose time has come."""
        for number in self._alarms.due(now):
            tenant = self._ringing.get(number)
            if tenant is not None:
                self.pump(tenant, now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._alarms.next_at()

    def _may_go(self, letter: Letter, now: Instant) -> bool:
        return letter.sent_at is None or now - letter.sent_at >= self._retry_us

    def _send_all(self, tenant: Tenant, letters: list[Letter], now: Instant) -> bool:
        """Send what the address has earned, a small letter before a large one if need be; return whether any left."""
        source = tenant.source
        assert source is not None
        room = source.tenant_room(tenant.key)
        any_left = False
        for letter in letters:
            size = len(letter.data)
            if size > room:
                continue
            room -= size
            source.sent_to_tenant(size)
            self._send(source.address, letter.data)
            letter.sent_at = now
            any_left = True
        return any_left

    def _look_again(self, tenant: Tenant, now: Instant) -> None:
        """Set the alarm for the next try of a letter that left before.

        One that the address has not earned has no time: the tenant's next packet pays for it (LPRP-DRY).
        """
        round_at = tenant.sent_at + self._retry_us * tenant.tries
        times = [letter.sent_at + self._retry_us for letter in tenant.mailbox.window() if letter.sent_at is not None]
        at = min((max(round_at, time) for time in times if max(round_at, time) > now), default=None)
        if at is None:
            self.stop(tenant)
            return
        self._ringing[tenant.number] = tenant
        self._alarms.set_by(tenant.number, Instant(at))
