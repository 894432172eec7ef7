"""Invariants of LPRP leases, whitelists, refusals and table sizes, one checker class each.

``LprpScenario`` has each observation passed to them. ``Bookkeeping`` runs first: it updates the shared model and never
fails. ``mail_invariants`` has the mail invariants.
Spec: specs/lprp.md 4 to 8.
"""

from typing import Final

from waystation.core.instant import Instant
from waystation.sim.invariants import Invariant
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.model import Model, tenants_of
from waystation.sim.lprp.packets import Seen
from waystation.sim.observations import DiskLost, Sized

__all__ = [
    "Bookkeeping",
    "Bounded",
    "FairRefusal",
    "LeaseKept",
    "ModelInvariant",
    "SignedInvariant",
    "Whitelists",
]

SURE_MS: Final = 3_000
QUEUE_MAX: Final = 256
UNLISTED_MAX: Final = 64
UNLISTED_SENDER_MAX: Final = 16
ROOM: Final = 12  # ours: what may be on its way in or out while a host decides
LATE_US: Final = 120_000_000  # a client may receive a 208 so late, by its own repeats
LIMITS: Final = {
    "tenants": 65_536,
    "challenges": 16_384,
    "answers": 32_768,
    "seen": 262_144,
    "sources": 65_536,
    "prefixes": 65_536,
}
"""Spec: lprp 7."""
EMPTY: Final = ("challenges", "deliveries", "under_way")


class SignedInvariant(Invariant):
    """Looks at packets with a right signature: their sender's on the way in, the host's own on the way out."""

    def _on_received(self, received: seen.Received, now: Instant) -> None:
        if received.packet is not None and received.is_signed:
            self._look_in(received, received.packet, now)

    def _on_sent(self, sent: seen.Sent, now: Instant) -> None:
        if sent.packet is not None and sent.is_signed:
            self._look_out(sent, sent.packet, now)

    def _look_in(self, received: seen.Received, packet: Seen, now: Instant) -> None:
        """Look at a packet that the host received."""

    def _look_out(self, sent: seen.Sent, packet: Seen, now: Instant) -> None:
        """Look at a packet that the host sent."""


class ModelInvariant(SignedInvariant):
    """Compares with a model of the hosts, and writes into it."""

    def __init__(self, model: Model) -> None:
        """Share ``model`` with others."""
        self._model = model


class Bookkeeping(ModelInvariant):
    """Nothing; it keeps the model."""

    name = "bookkeeping"

    def _on_clock(self, clocked: seen.Clocked, _now: Instant) -> None:
        leases = self._model.leases[clocked.host]
        leases.passed(clocked.wall_ms)
        leases.stepped(clocked.step_ms)

    def _on_measured(self, measured: seen.Measured, _now: Instant) -> None:
        self._model.leases[measured.host].passed(measured.wall_ms)

    def _on_disk_lost(self, lost: DiskLost, _now: Instant) -> None:
        assert isinstance(lost.node, int)
        for key in tenants_of(lost):
            self._model.leases[lost.node].forget(key)
            self._model.contact(lost.node, key).forget()
            self._model.lists(lost.node, key).forget()

    def _on_began(self, began: seen.HostStarted, _now: Instant) -> None:
        for contact in self._model.contacts(began.host):
            contact.restarted()

    def _look_in(self, received: seen.Received, packet: Seen, now: Instant) -> None:
        model = self._model
        is_relay = packet.command == 0x102
        if not is_relay and packet.recipient != model.hosts[received.host]:
            return
        is_tenant = model.leases[received.host].is_sure(packet.sender, received.wall_ms, SURE_MS)
        model.contact(received.host, packet.sender).received(packet, received.address, now, is_tenant=is_tenant)
        if packet.command in {0x104, 0x108, 0x808}:
            model.lists(received.host, packet.sender).received(packet)

    def _look_out(self, sent: seen.Sent, packet: Seen, now: Instant) -> None:
        model = self._model
        if packet.command == 0x204:
            if model.leases[sent.host].granted(packet.recipient, packet.reference, sent.wall_ms):
                model.contact(sent.host, packet.recipient).granted(sent.address, now)
        elif packet.command == 0x200:
            model.contact(sent.host, packet.recipient).answered(sent.address)


class Whitelists(ModelInvariant):
    """A host's answers about a whitelist are true, and it keeps the list that its tenant made, restarts included."""

    name = "whitelist"

    def _look_out(self, sent: seen.Sent, packet: Seen, now: Instant) -> None:
        if packet.command not in {0x208, 0x408}:
            return
        lists = self._model.lists(sent.host, packet.recipient)
        if lists.is_answered(packet.reference):
            return
        request = lists.request(packet.reference)
        if request is None:
            raise self.broken(f"host {sent.host} says {packet.command:x} to nothing that it was asked")
        if packet.command == 0x208:
            is_true = lists.done(request, now, sent.wall_ms)
        else:  # whoever has no lease any more has no list either
            has_lease = self._model.leases[sent.host].is_sure(packet.recipient, sent.wall_ms, SURE_MS)
            is_true = lists.differs(request) or not has_lease
        if not is_true:
            raise self.broken(
                f"host {sent.host} says {packet.command:x} to {packet.recipient.hex()[:16]}, which is untrue"
            )

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        for key, view in measured.views.items():
            lists = self._model.lists(measured.host, key)
            counts = {len(keys) for keys in lists.recent(now, self._model.grace_us)}
            if view["whitelist"] not in counts and not lists.is_unknown:
                raise self.broken(
                    f"host {measured.host} has {view['whitelist']} keys of {key.hex()[:16]}, not {sorted(counts)}"
                )

    def _on_report(self, report: seen.WhitelistReported, now: Instant) -> None:
        lists = self._model.lists(report.host, report.key)
        if not lists.is_unknown and frozenset(report.keys) not in lists.recent(now, LATE_US):
            raise self.broken(f"{report.key.hex()[:16]} believes in a whitelist that host {report.host} does not have")


class LeaseKept(ModelInvariant):
    """A lease lasts as long as its 204 sent, not less, not more, over every restart."""

    name = "lease-kept"

    def _on_shown(self, shown: seen.HostStarted | seen.Measured, _now: Instant) -> None:
        leases = self._model.leases[shown.host]
        for key in leases.granted_keys():
            least_ms, most_ms = leases.bounds(key, shown.wall_ms)
            left_ms = shown.views[key]["lease_ms_left"] if key in shown.views else 0
            if not least_ms - SURE_MS <= left_ms <= most_ms + SURE_MS:
                raise self.broken(
                    f"the lease of {key.hex()[:16]} at host {shown.host} lasts {left_ms} ms, "
                    f"not {least_ms} to {most_ms}"
                )


class FairRefusal(ModelInvariant):
    """402 is sent for a queue without room or a recipient without lease, and 404 to nobody while there is room."""

    name = "fair-refusal"

    def __init__(self, model: Model) -> None:
        """Know from ``model`` who has a lease."""
        super().__init__(model)
        self._mail: dict[tuple[int, bytes], tuple[Seen, int]] = {}
        self._outstanding: dict[tuple[int, bytes], dict[bytes, bytes]] = {}

    def _look_in(self, received: seen.Received, packet: Seen, _now: Instant) -> None:
        if packet.command == 0x102:
            self._mail.setdefault((received.host, packet.signature), (packet, received.wall_ms))
            self._outstanding.setdefault((received.host, packet.recipient), {})[packet.signature] = packet.sender
        elif packet.command == 0x802:
            self._outstanding.get((received.host, packet.sender), {}).pop(packet.reference, None)

    def _look_out(self, sent: seen.Sent, packet: Seen, _now: Instant) -> None:
        if packet.command == 0x404:
            raise self.broken(f"host {sent.host} refuses a lease to {packet.recipient.hex()[:16]}")
        mail, received_ms = self._mail.get((sent.host, packet.reference), (None, 0))
        if packet.command != 0x402 or mail is None:
            return
        leases = self._model.leases[sent.host]
        if not all(leases.is_sure(mail.recipient, wall_ms, SURE_MS) for wall_ms in (received_ms, sent.wall_ms)):
            return
        waiting = self._outstanding[sent.host, mail.recipient]
        of_sender = sum(sender == mail.sender for sender in waiting.values())
        if len(waiting) < UNLISTED_MAX - ROOM and of_sender < UNLISTED_SENDER_MAX - ROOM:
            raise self.broken(
                f"host {sent.host} refuses {mail.signature.hex()[:16]} with {len(waiting)} packets waiting"
            )


class Bounded(Invariant):
    """Nothing grows beyond its named limit, and nothing goes on when everybody has left for long."""

    name = "bounded"

    def _on_sized(self, sized: Sized, _now: Instant) -> None:
        """Look at every step."""
        sizes = sized.sizes
        limits = {**LIMITS, "packets": QUEUE_MAX * (sizes["tenants"] + sizes["leases_kept"])}
        for name, limit in limits.items():
            if sizes[name] > limit:
                raise self.broken(f"{name} of host {sized.node} is {sizes[name]}, at most {limit}")

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        sizes = measured.sizes
        self._on_sized(Sized(measured.host, sizes), now)
        for key, view in measured.views.items():
            if view["queue"] > QUEUE_MAX or view["whitelist"] > QUEUE_MAX:
                raise self.broken(f"{key.hex()[:16]} has {view['queue']} packets and {view['whitelist']} keys")
        if measured.phase == "settled":
            left = {name: sizes[name] for name in EMPTY if sizes[name]}
            if left:
                raise self.broken(f"left over at host {measured.host} when everybody had gone: {left}")
