"""What must hold of leases, whitelists and sizes in every LPRP town, one checker for each law.

The first of them, ``Bookkeeping``, keeps the books for all others and is never broken; ``lprp_mail_laws`` has the laws
about mail. Spec: specs/lprp.md 4 to 8.
"""

from typing import Any, Final

from waystation.core.instant import Instant
from waystation.sim import lprp_observations as seen
from waystation.sim.invariants import Handler, Invariant
from waystation.sim.lprp_books import Books
from waystation.sim.lprp_packets import Seen

__all__ = [
    "Bookkeeping",
    "Bounded",
    "FairRefusal",
    "LeaseKept",
    "Liveness",
    "Whitelists",
]

SURE_MS: Final = 3_000
QUEUE_MAX: Final = 256
STRANGERS_MAX: Final = 64
STRANGER_MAX: Final = 16
ROOM: Final = 12  # ours: what may be on its way in or out while a host decides
TOLD_US: Final = 120_000_000  # a client may hear a 208 so late, by its own repeats
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

Handlers = dict[type[Any], Handler]


class Bookkeeping(Invariant):
    """Nothing; it keeps the books."""

    name = "bookkeeping"

    def __init__(self, books: Books) -> None:
        """Keep ``books``."""
        self._books = books

    def handlers(self) -> Handlers:
        """Look at the wires."""
        return {
            seen.HostBegan: self._on_began,
            seen.Heard: self._on_heard,
            seen.Said: self._on_said,
            seen.Clocked: self._on_clock,
            seen.Measured: self._on_measured,
        }

    def _on_clock(self, clocked: seen.Clocked, _now: Instant) -> None:
        leases = self._books.leases[clocked.host]
        leases.passed(clocked.wall_ms)
        leases.stepped(clocked.step_ms)

    def _on_measured(self, measured: seen.Measured, _now: Instant) -> None:
        self._books.leases[measured.host].passed(measured.wall_ms)

    def _on_began(self, began: seen.HostBegan, _now: Instant) -> None:
        for contact in self._books.contacts(began.host):
            contact.restarted()

    def _on_heard(self, heard: seen.Heard, now: Instant) -> None:
        packet, books = heard.packet, self._books
        if packet is None or not heard.is_signed:
            return
        is_relay = packet.command == 0x102
        if not is_relay and packet.recipient != books.hosts[heard.host]:
            return
        is_tenant = books.leases[heard.host].is_sure(packet.sender, heard.wall_ms, SURE_MS)
        books.contact(heard.host, packet.sender).heard(packet, heard.address, now, is_tenant=is_tenant)
        if packet.command in {0x104, 0x108, 0x808}:
            books.lists(heard.host, packet.sender).heard(packet)

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        packet, books = said.packet, self._books
        if packet is None or not said.is_signed:
            return
        if packet.command == 0x204:
            if books.leases[said.host].granted(packet.recipient, packet.reference, said.wall_ms):
                books.contact(said.host, packet.recipient).granted(said.address, now)
        elif packet.command == 0x200:
            books.contact(said.host, packet.recipient).answered(said.address)


class Whitelists(Invariant):
    """A host's answers about a whitelist are true, and it keeps the list that its tenant made, restarts included."""

    name = "whitelist"

    def __init__(self, books: Books) -> None:
        """Write into ``books`` what was answered."""
        self._books = books

    def handlers(self) -> Handlers:
        """Look at 208 and 408, at what hosts show, and at what clients believe."""
        return {
            seen.Said: self._on_said,
            seen.Measured: self._on_measured,
            seen.WhitelistTold: self._on_told,
        }

    def _on_said(self, said: seen.Said, now: Instant) -> None:
        packet = said.packet
        if packet is None or not said.is_signed or packet.command not in {0x208, 0x408}:
            return
        lists = self._books.lists(said.host, packet.recipient)
        if lists.is_answered(packet.reference):
            return
        request = lists.request(packet.reference)
        if request is None:
            raise self.broken(f"host {said.host} says {packet.command:x} to nothing that it was asked")
        if packet.command == 0x208:
            is_true = lists.done(request, now, said.wall_ms)
        else:  # whoever has no lease any more has no list either
            has_lease = self._books.leases[said.host].is_sure(packet.recipient, said.wall_ms, SURE_MS)
            is_true = lists.differs(request) or not has_lease
        if not is_true:
            raise self.broken(
                f"host {said.host} says {packet.command:x} to {packet.recipient.hex()[:16]}, which is untrue"
            )

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        for key, view in measured.views.items():
            counts = {len(keys) for keys in self._books.lists(measured.host, key).recent(now, self._books.grace_us)}
            if view["whitelist"] not in counts:
                raise self.broken(
                    f"host {measured.host} has {view['whitelist']} keys of {key.hex()[:16]}, not {sorted(counts)}"
                )

    def _on_told(self, told: seen.WhitelistTold, now: Instant) -> None:
        if frozenset(told.keys) not in self._books.lists(told.host, told.key).recent(now, TOLD_US):
            raise self.broken(f"{told.key.hex()[:16]} believes in a whitelist that host {told.host} does not have")


class LeaseKept(Invariant):
    """A lease lasts as long as its 204 said, not less, not more, over every restart."""

    name = "lease-kept"

    def __init__(self, books: Books) -> None:
        """Know from ``books`` what was granted."""
        self._books = books

    def handlers(self) -> Handlers:
        """Look at what hosts show."""
        return {seen.HostBegan: self._on_shown, seen.Measured: self._on_shown}

    def _on_shown(self, shown: seen.HostBegan | seen.Measured, _now: Instant) -> None:
        leases = self._books.leases[shown.host]
        for key in leases.granted_keys():
            least_ms, most_ms = leases.bounds(key, shown.wall_ms)
            left_ms = shown.views[key]["lease_ms_left"] if key in shown.views else 0
            if not least_ms - SURE_MS <= left_ms <= most_ms + SURE_MS:
                raise self.broken(
                    f"the lease of {key.hex()[:16]} at host {shown.host} lasts {left_ms} ms, "
                    f"not {least_ms} to {most_ms}"
                )


class FairRefusal(Invariant):
    """402 is said for a queue without room or a recipient without lease, and 404 to nobody while there is room."""

    name = "fair-refusal"

    def __init__(self, books: Books) -> None:
        """Know from ``books`` who has a lease."""
        self._books = books
        self._mail: dict[tuple[int, bytes], tuple[Seen, int]] = {}
        self._outstanding: dict[tuple[int, bytes], dict[bytes, bytes]] = {}

    def handlers(self) -> Handlers:
        """Look at mail that may wait, and at refusals."""
        return {seen.Heard: self._on_heard, seen.Said: self._on_said}

    def _on_heard(self, heard: seen.Heard, _now: Instant) -> None:
        packet = heard.packet
        if packet is None or not heard.is_signed:
            return
        if packet.command == 0x102:
            self._mail.setdefault((heard.host, packet.signature), (packet, heard.wall_ms))
            self._outstanding.setdefault((heard.host, packet.recipient), {})[packet.signature] = packet.sender
        elif packet.command == 0x802:
            self._outstanding.get((heard.host, packet.sender), {}).pop(packet.reference, None)

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        packet = said.packet
        if packet is None or not said.is_signed:
            return
        if packet.command == 0x404:
            raise self.broken(f"host {said.host} refuses a lease to {packet.recipient.hex()[:16]}")
        mail, heard_ms = self._mail.get((said.host, packet.reference), (None, 0))
        if packet.command != 0x402 or mail is None:
            return
        leases = self._books.leases[said.host]
        if not all(leases.is_sure(mail.recipient, wall_ms, SURE_MS) for wall_ms in (heard_ms, said.wall_ms)):
            return
        waiting = self._outstanding[said.host, mail.recipient]
        of_sender = sum(sender == mail.sender for sender in waiting.values())
        if len(waiting) < STRANGERS_MAX - ROOM and of_sender < STRANGER_MAX - ROOM:
            raise self.broken(
                f"host {said.host} refuses {mail.signature.hex()[:16]} with {len(waiting)} packets waiting"
            )


class Bounded(Invariant):
    """Nothing grows beyond its named limit, and nothing goes on when everybody has left for long."""

    name = "bounded"

    def handlers(self) -> Handlers:
        """Look at sizes."""
        return {seen.Sized: self._on_sized, seen.Measured: self._on_measured}

    def _on_sized(self, sized: seen.Sized, _now: Instant) -> None:
        """Look at every step."""
        sizes = sized.sizes
        limits = {**LIMITS, "packets": QUEUE_MAX * (sizes["tenants"] + sizes["leases_kept"])}
        for name, limit in limits.items():
            if sizes[name] > limit:
                raise self.broken(f"{name} of host {sized.host} is {sizes[name]}, at most {limit}")

    def _on_measured(self, measured: seen.Measured, now: Instant) -> None:
        sizes = measured.sizes
        self._on_sized(seen.Sized(measured.host, sizes), now)
        for key, view in measured.views.items():
            if view["queue"] > QUEUE_MAX or view["whitelist"] > QUEUE_MAX:
                raise self.broken(f"{key.hex()[:16]} has {view['queue']} packets and {view['whitelist']} keys")
        if measured.phase == "settled":
            left = {name: sizes[name] for name in EMPTY if sizes[name]}
            if left:
                raise self.broken(f"left over at host {measured.host} when everybody had gone: {left}")


class Liveness(Invariant):
    """After the faults have ended everybody gets what is due."""

    name = "liveness"

    def handlers(self) -> Handlers:
        """Look at complaints."""
        return {seen.LeftHanging: self._on_hanging}

    def _on_hanging(self, hanging: seen.LeftHanging, _now: Instant) -> None:
        raise self.broken(hanging.what)
