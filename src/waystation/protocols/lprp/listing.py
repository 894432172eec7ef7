"""Commands 108 and 808: the whitelist of a tenant. Spec: lprp 4, LPRP-D11, LPRP-D12, LPRP-D14; LPRP-C6."""

from typing import Final

from waystation.core.ids import PublicKey
from waystation.protocols.lprp.ledger import Ledger
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.tenants import Tenant
from waystation.protocols.lprp.whitelist import (
    WHITELIST_KEYS_MAX,
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

    def __init__(self, ledger: Ledger) -> None:
        """Tell ``ledger`` what changed."""
        self._ledger = ledger

    def asked(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Verdict:
        """Judge a 108."""
        update = read_update(packet.payload)
        if is_comparison(update):
            if whitelist_hash(tenant.whitelist) == update.hash:
                return Reply(Command.WHITELIST_DONE, packet)
            return refuse(Refusal.WHITELIST_HASH, packet)
        # A whitelist that never changed has no last change to be close to (LPRP-FIRST).
        if tenant.whitelist_at_ms and wall_ms - tenant.whitelist_at_ms <= _FREE_AFTER_MS:
            return Demand(Kind.WHITELIST, packet, tenant.key, 0.0)
        return self.apply(tenant, packet, wall_ms)

    def apply(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Reply:
        """Carry a 108 out, the work for it done; a newer one may have come meanwhile (LPRP-OVERTAKEN)."""
        update = read_update(packet.payload)
        if packet.time_ms <= tenant.state_ts:
            return refuse(Refusal.OVERTAKEN, packet)
        if has_zero_key(update):
            return refuse(Refusal.ZERO_KEY, packet)
        keys = toggled(tenant.whitelist, update.keys)
        if len(keys) > WHITELIST_KEYS_MAX:
            return refuse(Refusal.WHITELIST_FULL, packet)
        if whitelist_hash(keys) != update.hash:
            return refuse(Refusal.WHITELIST_HASH, packet)
        self._change(tenant, keys, packet, wall_ms)
        return Reply(Command.WHITELIST_DONE, packet)

    def cleared(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Reply:
        """Carry an 808 out."""
        self._change(tenant, _NOBODY, packet, wall_ms)
        return Reply(Command.WHITELIST_DONE, packet)

    def _change(self, tenant: Tenant, keys: frozenset[PublicKey], packet: Packet, wall_ms: int) -> None:
        tenant.whitelist = keys
        tenant.whitelist_at_ms = wall_ms
        tenant.state_ts = packet.time_ms
        self._ledger.note_whitelist(tenant)
