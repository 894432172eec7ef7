"""Sends queued mail to tenants: at once if there is room, then again after c1 times the number of tries.

The relay calls it when mail is queued, a tenant is active, or a timer is due. Each queued packet has its own timer; the
count of tries is per tenant (LPRP-TIMERS). After the last try the tenant gets nothing until it sends a packet. Mail is
sent only to an address that was active lately. An unproved address gets at most the bytes that its own traffic has
earned. Spec: lprp 5, LPRP-D18, LPRP-D21; LPRP-C1, LPRP-C2.
"""

from collections.abc import Callable

from waystation.core.alarms import Alarms
from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.tenants import Tenant

__all__ = ["Delivery"]


class Delivery:
    """Sends the mail of all tenants in time."""

    def __init__(self, retry_ms: int, tries_max: int, send: Callable[[Address, bytes], None]) -> None:
        """Start without tenants.

        Args:
            retry_ms: The text's c1.
            tries_max: The text's c2.
            send: Sends one datagram.
        """
        self._retry_us = retry_ms * MICROSECONDS_PER_MS
        self._tries_max = tries_max
        self._send = send
        self._alarms = Alarms()
        self._scheduled: dict[int, Tenant] = {}

    def __len__(self) -> int:
        """Return how many tenants have mail under way."""
        return len(self._scheduled)

    def pump(self, tenant: Tenant, now: Instant) -> None:
        """Send the packets that may leave now, and set the next alarm."""
        # Spec 5: active: a packet came in the last 2^17 ms and not dormant.
        if not tenant.mailbox or tenant.dormant or not tenant.is_reachable(now):
            self.stop(tenant)
            return
        # Spec 5: what never left leaves at once; the rest waits for c1 * tries.
        if now < tenant.sent_at + self._retry_us * tenant.tries:
            self._send_all(tenant, [queued for queued in tenant.mailbox.window() if queued.sent_at is None], now)
            self._look_again(tenant, now)
            return
        due = [queued for queued in tenant.mailbox.window() if self._may_go(queued, now)]
        # Spec 5: after c2 rounds the tenant is dormant until it sends a packet.
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
        if self._scheduled.pop(tenant.number, None) is not None:
            self._alarms.cancel(tenant.number)

    def wake(self, now: Instant) -> None:
        """Send the mail of tenants whose alarm is due."""
        for number in self._alarms.due(now):
            tenant = self._scheduled.get(number)
            if tenant is not None:
                self.pump(tenant, now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._alarms.next_at()

    def _may_go(self, queued: QueuedPacket, now: Instant) -> bool:
        # Spec 5: nothing that left less than c1 ago is repeated to the same address.
        return queued.sent_at is None or now - queued.sent_at >= self._retry_us

    def _send_all(self, tenant: Tenant, packets: list[QueuedPacket], now: Instant) -> bool:
        """Send what the address has earned, a small queued before a large one if need be; return whether any left."""
        source = tenant.source
        assert source is not None
        # Spec 6: an unproved address gets at most four times the bytes that came from it.
        room = source.tenant_room(tenant.key)
        any_left = False
        for queued in packets:
            size = len(queued.data)
            if size > room:
                continue
            room -= size
            source.sent_to_tenant(size)
            self._send(tenant.address, queued.data)
            queued.sent_at = now
            any_left = True
        return any_left

    def _look_again(self, tenant: Tenant, now: Instant) -> None:
        """Set the alarm for the next try of a queued that left before.

        One that the address has not earned has no time: the tenant's next packet pays for it (LPRP-DRY).
        """
        round_at = tenant.sent_at + self._retry_us * tenant.tries
        times = [queued.sent_at + self._retry_us for queued in tenant.mailbox.window() if queued.sent_at is not None]
        # Spec 5: what is not confirmed leaves again c1 * tries after the last round.
        at = min((max(round_at, time) for time in times if max(round_at, time) > now), default=None)
        if at is None:
            self.stop(tenant)
            return
        self._scheduled[tenant.number] = tenant
        self._alarms.set_by(tenant.number, Instant(at))
