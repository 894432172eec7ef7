"""Makes the packet in which the relay describes itself (RELAY_DESCRIPTOR), and renews it before it expires.

The relay puts it through its own intake, so it is stored and served like any other packet; ``pages`` shows it too.
Spec: RFC-0007 RELAY_DESCRIPTOR; specs/strata.md 15.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from waystation.core.instant import Instant, after_ms
from waystation.core.packets import PacketRow
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.packet import Packet, make_packet
from waystation.protocols.strata.settings import StrataSettings
from waystation.version import __version__

__all__ = ["DESCRIPTOR", "LIFE_S", "RENEW_BEFORE_S", "Announcer", "make_descriptor", "relay_policy"]

DESCRIPTOR: Final = "RELAY_DESCRIPTOR"
LIFE_S: Final = 30 * 86_400
RENEW_BEFORE_S: Final = 7 * 86_400
LOOK_MS: Final = 3_600_000
_HTTP: Final = {"ws": "http", "wss": "https"}


def make_descriptor(settings: StrataSettings, key_pair: KeyPair, relay_id: str, wall_s: int) -> Packet:
    """Return the signed descriptor of a relay whose ``public_url`` is set, as of ``wall_s`` (Unix seconds)."""
    assert settings.public_url.startswith(("ws://", "wss://"))
    scheme, _, rest = settings.public_url.partition("://")
    content = {
        "type": DESCRIPTOR,
        "descriptor_version": 1,
        "relay_id": relay_id,
        "ws_endpoint": settings.public_url,
        "http_base_url": f"{_HTTP[scheme]}://{rest.partition('/')[0]}",
        "services": {},
        "policy": relay_policy(settings),
        "software": {"name": "waystation", "version": __version__},
    }
    # Spec 15: RELAY_DESCRIPTOR lives 30 days.
    return make_packet(key_pair, content, timestamp=wall_s, expires_at=wall_s + LIFE_S)


class Announcer:
    """Renews the relay's descriptor in time."""

    def __init__(
        self, settings: StrataSettings, key_pair: KeyPair, relay_id: str, newest: Callable[[int], PacketRow | None]
    ) -> None:
        """Announce what ``settings.public_url`` names; ``newest`` finds the stored descriptor as of a time."""
        self._settings = settings
        self._key_pair = key_pair
        self._relay_id = relay_id
        self._newest = newest
        self.look_at = Instant(0)
        """When ``due`` has to be called next."""

    def due(self, now: Instant, wall_s: int) -> Packet | None:
        """Return the descriptor to publish, None while there is one that lives long enough, or nothing to say."""
        if now < self.look_at:
            return None
        self.look_at = after_ms(now, LOOK_MS)
        # Spec 15: published only when strata.public_url is set.
        if not self._settings.public_url:
            return None
        fresh = make_descriptor(self._settings, self._key_pair, self._relay_id, wall_s)
        newest = self._newest(wall_s)
        # Spec 15: renewed 7 days before it expires.
        if newest is None or (newest.expires_at is not None and newest.expires_at - wall_s <= RENEW_BEFORE_S):
            return fresh
        # Changed settings are announced at once, not only when the packet grows old.
        announced = orjson.loads(newest.canonical)["content"]
        return fresh if announced != fresh.body["content"] else None


def relay_policy(settings: StrataSettings) -> dict[str, Any]:
    """Return the ``policy`` of manifest and descriptor."""
    return {
        "accepts_public_packets": "publish" in settings.anonymous or "publish" in settings.auth_grants,
        "default_retention_days": settings.retention_days,
        "max_backfill_seconds": settings.max_backfill_s,
        "protected_accounts": "none",
        "protected_scope": "GLOBAL",
        "supports_social_edges": True,
    }
