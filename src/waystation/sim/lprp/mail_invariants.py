"""Invariants of LPRP mail from the sender's request to the recipient's disk, one checker class each.

Spec: specs/lprp.md 4, 5, 7, LPRP-D9, LPRP-D10.

``LprpScenario`` has each observation passed to them. They compare what a host accepted with what is on disk and what
applications got.
"""

from collections.abc import Collection
from typing import Any, Final

from waystation.core.instant import Instant
from waystation.sim.invariants import Invariant
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.invariants import SignedInvariant
from waystation.sim.lprp.model import is_lost, tenants_of
from waystation.sim.lprp.packets import Seen, read_packet
from waystation.sim.observations import DiskLost

__all__ = ["DeliveredOnce", "Honest", "OnlySent", "PromiseKept", "TrueOutcome"]

SIGNATURE_BYTES: Final = 64

Honest = Collection[tuple[bytes, int]]
"""Keys of honest tenants, with their hosts."""


class PromiseKept(SignedInvariant):
    """What a host accepts with 202 is on its disk first, in its queue over restarts, and in the end with its tenant.

    It asks nothing of what the disk lost, nor of mail for a tenant of whom the disk lost a row.
    """

    name = "promise-kept"

    def __init__(self, honest: Honest) -> None:
        """Judge mail of ``honest`` tenants, who always come back."""
        self._honest = honest
        self._mail: dict[bytes, Seen] = {}
        self._waiting: dict[tuple[int, bytes], dict[bytes, None]] = {}
        self._promised: dict[tuple[int, bytes], Seen] = {}
        self._confirmed: set[tuple[int, bytes, bytes]] = set()
        self._kept: set[tuple[bytes, bytes]] = set()

    def _look_in(self, received: seen.Received, packet: Seen, _now: Instant) -> None:
        if packet.command == 0x102:
            self._mail[packet.signature] = packet
        elif packet.command == 0x802:
            self._confirmed.add((received.host, packet.sender, packet.reference))
            self._waiting.get((received.host, packet.sender), {}).pop(packet.reference, None)

    def _look_out(self, sent: seen.Sent, packet: Seen, _now: Instant) -> None:
        if packet.command != 0x202:
            return
        mail = self._mail.get(packet.reference)
        if mail is None or (sent.host, mail.signature) in self._promised:
            return
        is_confirmed = (sent.host, mail.recipient, mail.signature) in self._confirmed
        if not sent.is_stored and not is_confirmed:
            raise self.broken(f"host {sent.host} says 202 to {mail.signature.hex()[:16]}, which is not on its disk")
        self._promised[sent.host, mail.signature] = mail
        if not is_confirmed:
            self._waiting.setdefault((sent.host, mail.recipient), {})[mail.signature] = None

    def _on_kept(self, kept: seen.AppKept, _now: Instant) -> None:
        self._kept.add((kept.key, kept.signature))

    def _on_disk_lost(self, lost: DiskLost, _now: Instant) -> None:
        keys = tenants_of(lost)
        for host, signature in list(self._promised):
            mail = self._promised[host, signature]
            if host == lost.node and (mail.recipient in keys or is_lost(signature, lost)):
                del self._promised[host, signature]
                self._waiting.get((host, mail.recipient), {}).pop(signature, None)

    def _on_began(self, began: seen.HostStarted, _now: Instant) -> None:
        self._compare(began.host, began.views)

    def _on_measured(self, measured: seen.Measured, _now: Instant) -> None:
        self._compare(measured.host, measured.views)
        if measured.phase != "healed":
            return
        for (host, signature), mail in self._promised.items():
            is_due = host == measured.host and (mail.recipient, host) in self._honest
            if is_due and (mail.recipient, signature) not in self._kept:
                raise self.broken(f"host {host} sent 202 to {signature.hex()[:16]}, and it never arrived")
        for key, view in measured.views.items():
            if view["queue"] and (key, measured.host) in self._honest:
                raise self.broken(f"host {measured.host} still has {view['queue']} packets for {key.hex()[:16]}")

    def _compare(self, host: int, views: dict[bytes, dict[str, Any]]) -> None:
        for (at, key), waiting in self._waiting.items():
            has = views[key]["queue"] if key in views else 0
            if at == host and has < len(waiting):
                raise self.broken(f"host {host} has {has} packets for {key.hex()[:16]}, accepted {len(waiting)}")


class DeliveredOnce(Invariant):
    """An application gets a packet once, and again only when it lost it: by its own word, or by a restart."""

    name = "delivered-once"

    def __init__(self) -> None:
        self._lost: list[DiskLost] = []
        self._handed: set[tuple[bytes, int, int, bytes]] = set()
        self._confirmed: set[tuple[bytes, bytes]] = set()
        self._kept: set[tuple[bytes, bytes]] = set()

    def _on_disk_lost(self, lost: DiskLost, _now: Instant) -> None:
        self._lost.append(lost)

    def _on_got(self, got: seen.AppGot, _now: Instant) -> None:
        signature = got.data[:SIGNATURE_BYTES]
        if any(is_lost(signature, lost) for lost in self._lost):
            return
        place = (got.key, got.host, got.life, signature)
        if place in self._handed or (got.key, signature) in self._confirmed:
            raise self.broken(f"{got.key.hex()[:16]} got {signature.hex()[:16]} again")
        self._handed.add(place)

    def _on_back(self, back: seen.HandedBack, _now: Instant) -> None:
        self._handed.discard((back.key, back.host, back.life, back.signature))

    def _on_confirmed(self, confirmed: seen.Confirmed, _now: Instant) -> None:
        self._confirmed.add((confirmed.key, confirmed.signature))

    def _on_kept(self, kept: seen.AppKept, _now: Instant) -> None:
        if (kept.key, kept.signature) in self._kept and not any(is_lost(kept.signature, lost) for lost in self._lost):
            raise self.broken(f"{kept.key.hex()[:16]} keeps {kept.signature.hex()[:16]} twice")
        self._kept.add((kept.key, kept.signature))


class OnlySent(Invariant):
    """An application gets, byte for byte, what somebody signed for it."""

    name = "only-sent"

    def __init__(self) -> None:
        self._made: dict[bytes, bytes] = {}

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._made[made.signature] = made.data

    def _on_got(self, got: seen.AppGot, _now: Instant) -> None:
        packet = read_packet(got.data)
        if packet is None or self._made.get(packet.signature) != got.data or not packet.is_signed_by(packet.sender):
            raise self.broken(f"{got.key.hex()[:16]} got a packet that nobody signed")
        if packet.recipient != got.key or packet.command != 0x102:
            raise self.broken(f"{got.key.hex()[:16]} got a packet that is not for it")


class TrueOutcome(SignedInvariant):
    """A client reports to its application what its host sent, each outcome once."""

    name = "true-outcome"

    def __init__(self) -> None:
        self._said: set[tuple[int, int, bytes]] = set()
        self._leases: set[tuple[int, bytes]] = set()
        self._open: set[tuple[bytes, int, bytes]] = set()

    def _look_out(self, sent: seen.Sent, packet: Seen, _now: Instant) -> None:
        self._said.add((sent.host, packet.command, packet.reference))
        if packet.command in {0x204, 0x200}:
            self._leases.add((sent.host, packet.recipient))

    def _on_sending(self, sending: seen.Sending, _now: Instant) -> None:
        self._open.add((sending.sender, sending.host, sending.ticket))

    def _on_finished(self, finished: seen.Finished, _now: Instant) -> None:
        place = (finished.sender, finished.host, finished.ticket)
        if place not in self._open:
            raise self.broken(f"{finished.sender.hex()[:16]} gets an outcome twice")
        self._open.discard(place)
        needed = {"ACCEPTED": 0x202, "REFUSED": 0x402}.get(finished.outcome)
        if needed is not None and (finished.host, needed, finished.ticket) not in self._said:
            raise self.broken(f"{finished.sender.hex()[:16]} gets {finished.outcome}, which its host never sent")

    def _on_lease(self, report: seen.LeaseReported, _now: Instant) -> None:
        if (report.host, report.key) not in self._leases:
            raise self.broken(f"{report.key.hex()[:16]} gets a lease that host {report.host} never gave")
