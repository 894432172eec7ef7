"""Whitelist commands of the host: 108 adds and removes keys or compares the set, 808 clears it.

The relay passes verified packets of a tenant, ``work`` those whose proof of work is good; a ``Reply`` or a ``Demand``
comes out. Only a newer packet than the last change is taken, since datagrams may be reordered. Spec: lprp 4, LPRP-D11,
LPRP-D12, LPRP-D14; LPRP-C6.
"""

from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.ledger import Ledger
from waystation.protocols.lprp.relay.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.relay.tenants import Tenant
from waystation.protocols.lprp.whitelist import (
    has_zero_key,
    is_comparison,
    read_update,
    toggled,
    whitelist_hash,
)

__all__ = ["Listing"]

_FREE_AFTER_MS: Final = CLOCK_WINDOW_MS  # an update within this of the last one costs work
_NOBODY: Final[frozenset[PublicKey]] = frozenset()


class Listing:
    """Changes whitelists and compares them."""

    def __init__(self, ledger: Ledger, limits: InForce[LprpLimits]) -> None:
        """Gather changes in ``ledger``; lists are as long as ``limits`` say."""
        self._ledger = ledger
        self._limits = limits

    def asked(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Verdict:
        """Handle a 108."""
        update = read_update(packet.payload)
        if is_comparison(update):
            # Spec 4: only compares: 208 or 408 by the hash; no time moves (LPRP-D11).
            if whitelist_hash(tenant.whitelist) == update.hash:
                return Reply(Command.WHITELIST_DONE, packet)
            return refuse(Refusal.WHITELIST_HASH, packet)
        # A whitelist that never changed has no last change to be close to (LPRP-FIRST).
        if tenant.whitelist_at_ms and wall_ms - tenant.whitelist_at_ms <= _FREE_AFTER_MS:
            # Spec 4: within 2^19 ms of the last change: 608.
            return Demand(Kind.WHITELIST, packet, tenant.key, 0.0)
        return self.apply(tenant, packet, wall_ms)

    def apply(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Reply:
        """Carry a 108 out, the work for it done; a newer one may have come meanwhile (LPRP-OVERTAKEN)."""
        update = read_update(packet.payload)
        # LPRP-OVERTAKEN: the set that this update was computed for is gone.
        if packet.time_ms <= tenant.state_ts:
            return refuse(Refusal.OVERTAKEN, packet)
        # LPRP-D11: a zero key among others: 408.
        if has_zero_key(update):
            return refuse(Refusal.ZERO_KEY, packet)
        # Spec 4: the keys are applied to a copy; equal hash and at most 256 keys: 208, else 408.
        keys = toggled(tenant.whitelist, update.keys)
        if len(keys) > max(len(tenant.whitelist), self._limits.now.whitelist_keys):
            return refuse(Refusal.WHITELIST_FULL, packet)
        if whitelist_hash(keys) != update.hash:
            return refuse(Refusal.WHITELIST_HASH, packet)
        self._change(tenant, keys, packet, wall_ms)
        return Reply(Command.WHITELIST_DONE, packet)

    def cleared(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Reply:
        """Carry an 808 out."""
        # Spec 4: 808: the whitelist is empty: 208.
        self._change(tenant, _NOBODY, packet, wall_ms)
        return Reply(Command.WHITELIST_DONE, packet)

    def _change(self, tenant: Tenant, keys: frozenset[PublicKey], packet: Packet, wall_ms: int) -> None:
        tenant.whitelist = keys
        tenant.whitelist_at_ms = wall_ms
        tenant.state_ts = packet.time_ms
        self._ledger.note_whitelist(tenant)
