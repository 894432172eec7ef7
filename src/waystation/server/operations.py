"""The operator's functions on a running node: status, lists of connections and limits, and bans.

``NodeServer`` makes it from the node's parts, and the admin port offers it over HTTP. Answers are plain values for
JSON. A change (a ban, a lifted ban) returns after it is on disk.
"""

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from waystation.core.ids import encode_id52
from waystation.engine.bans import Ban, BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.server.commit import GroupCommit
from waystation.server.config.values import Config
from waystation.server.home import Home
from waystation.server.hosted import ProtocolHost, host_class
from waystation.server.hub import Hub, monotonic_now
from waystation.server.limits_view import limit_uses, limit_views
from waystation.server.listeners import Listeners
from waystation.server.logs import short_peer
from waystation.server.policy_reader import RULES_SHOWN_MAX, PolicyReader
from waystation.server.registry import PROTOCOLS, hiding_protocols
from waystation.server.status.clock_watch import ClockWatch
from waystation.server.status.connections import connected, connection_views, hidden_networks
from waystation.server.status.disk import disk_view, retention_bytes
from waystation.server.status.trouble import troubles
from waystation.server.status.twin_watch import TwinWatch
from waystation.server.status.wall_clock import clock_trouble
from waystation.server.written import Written
from waystation.store.damage import Damage
from waystation.version import __version__

__all__ = ["Operations"]

_log = structlog.get_logger("waystation.server")


@dataclass(kw_only=True, slots=True)
class Operations:
    """The operator's view of one node, over the parts of the node that report to it."""

    config: Callable[[], Config]
    """Returns the configuration in force."""
    name: str
    """Shown to people."""
    home: Home
    identity: Mapping[str, str]
    hosts: Mapping[str, ProtocolHost]
    node: Node
    hub: Hub
    listeners: Listeners
    certificates: Callable[[], list[dict[str, Any]]]
    """Returns what each TLS listener shows."""
    recorder: Recorder
    written: Written
    policy_reader: PolicyReader
    ban_list: BanList
    commits: GroupCommit
    urls: Callable[[], dict[str, str]]
    """Returns where every listener is reached, by name."""
    damage: Damage = field(default_factory=Damage)
    """The damaged rows of the store."""
    proxy_troubles: Callable[[], list[str]]
    """Returns a sentence for each thing that proxies did wrong lately."""
    clock: ClockWatch
    twins: TwinWatch
    started_at: float = field(default_factory=time.monotonic)
    draining: bool = False
    reload_refused: str = ""
    """Why the last reload was refused; empty once one succeeds."""

    def status(self) -> dict[str, Any]:
        """Return what an operator looks at first."""
        status: dict[str, Any] = {
            "version": __version__,
            "name": self.name,
            "draining": self.draining,
            "node": dict(self.identity),
            "listeners": self.urls(),
            "connected": connected(self.recorder.connections, self.hosts),
            "disk": disk_view(self.home, self.written.sealed(), self.stored_beside()),
            **self.counts(),
            "upstreams": {},
            "mesh": {},
            "turned_away": [],
        }
        for host in self.hosts.values():
            status |= host.status()
        now = datetime.datetime.now(datetime.UTC)
        found = troubles(
            status,
            self.clock.trouble() or clock_trouble(self.home, now),
            now.timestamp(),
            fault=self.commits.health.view(),
            reload_refused=self.reload_refused,
            proxies=self.proxy_troubles(),
            twins=self.twins.trouble(),
            kept_by=tuple(retention_bytes(self.config())),
        )
        return status | {"trouble": found}

    def counts(self) -> dict[str, Any]:
        """Return the part of the status that metrics show: numbers at hand, without a look at files or connections."""
        return {
            "uptime_s": round(time.monotonic() - self.started_at, 1),
            "clock": self.clock.view()._asdict(),
            "store": {"fault": self.commits.health.view(), **self.commits.health.space()},
            "certificates": self.certificates(),
            "sizes": self.sizes(),
            "traffic": self.node.traffic(),
            "datagrams": {name: counts._asdict() for name, counts in self.listeners.datagrams().items()},
            "totals": self.recorder.totals(),
            "written": self.written.counts(),
            "damaged": {"now": self.damage.counts(), "met": self.damage.totals()},
            "policy": self.policy_reader.status(),
            "relays": self.policy_reader.relays(),
        }

    def connections(self, count_max: int) -> dict[str, Any]:
        """Return the connections that carried most, at most so many, and counts of all of them (NODE-VIEW)."""
        every, hiding = self.recorder.connections, hiding_protocols()
        views = connection_views(every, hiding, self.hub.waiting_bytes, count_max, monotonic_now())
        return {
            "count": len(every),
            "protocols": connected(every, self.hosts),
            "connections": [view._asdict() for view in views],
            "hidden": hidden_networks(every, hiding, count_max),
        }

    def limits(self) -> list[dict[str, Any]]:
        """Return every limit with its value, its use, its refusal and the peers that met it last."""
        return [view._asdict() for view in limit_views(self.config(), self.sizes(), self.recorder, monotonic_now())]

    def limit_uses(self) -> list[dict[str, Any]]:
        """Return every limit with its value and its use alone."""
        return [use._asdict() for use in limit_uses(self.config(), self.sizes())]

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return how much of each bounded thing there is, by protocol."""
        sizes = self.node.sizes()
        for host in self.hosts.values():
            sizes |= host.sizes()
        return sizes

    def stored_beside(self) -> int:
        """Return the bytes that protocols keep beside the store."""
        return sum(host.stored_bytes() for host in self.hosts.values())

    def tenants(self, count_max: int) -> tuple[list[dict[str, Any]], int]:
        """Return those who lease something here, oldest lease first, at most so many, and how many there are."""
        found = [host.tenants(count_max) for host in self.hosts.values()]
        return [tenant for tenants, _ in found for tenant in tenants][:count_max], sum(count for _, count in found)

    def viewed(self) -> list[str]:
        """Return the protocols, enabled or not, that have a view of their own."""
        return [name for name in PROTOCOLS if host_class(name).has_view]

    def view(self, protocol: str) -> dict[str, Any] | None:
        """Return the view of one protocol in ``viewed``, None where it is not enabled."""
        host = self.hosts.get(protocol)
        return host.view() if host is not None else None

    def policy(self) -> dict[str, Any]:
        """Return the snapshot in force and its rules with how often each was met."""
        return self.policy_reader.status() | self.policy_reader.policy.view(RULES_SHOWN_MAX)

    def published(self, name: str) -> bytes | None:
        """Return a published table as it was signed, None when there is none."""
        return self.policy_reader.document(name)

    def not_ready(self) -> dict[str, Any]:
        """Return why peers are not served in full, with ``since`` in Unix seconds; empty when they are.

        The node drains, or its store takes no writes.
        """
        if self.draining:
            return {"why": "draining"}
        fault = self.commits.health.view()
        return {"why": f"store: {fault['kind']}", "since": round(fault["since"], 1)} if fault is not None else {}

    def bans(self) -> list[Ban]:
        """Return the operator's list, oldest first."""
        return list(self.ban_list)

    async def ban(self, ban: Ban) -> None:
        """Keep a ban and act on it; returns once it is on disk.

        Raises:
            LocalError: The ban is not well formed, or the list is full.
            HostError: The store refused.
        """
        record = self.ban_list.add(ban)
        self.review()
        await self.commits.write(record)
        _log.info("ban.added", **_shown(ban.subject), reason=ban.reason)

    def review(self) -> None:
        """End the connections of everybody who is refused now, be it by a ban or by a list."""
        self.node.review(time.time_ns() // 1_000, monotonic_now())
        self.hub.plan_turn()

    async def lift_ban(self, subject: str) -> bool:
        """Forget a ban; False when there was none. Returns once that is on disk."""
        record = self.ban_list.lift(subject)
        if record is None:
            return False
        await self.commits.write(record)
        _log.info("ban.lifted", **_shown(subject))
        return True


def _shown(subject: str) -> dict[str, str]:
    """Return a ban's subject for the log: an identity short and as its whole id52, an address as it is."""
    kind, _, rest = subject.partition(":")
    if kind != "id":
        return {"subject": subject}
    public = bytes.fromhex(rest)
    return {"subject": f"id:{short_peer(public)}", "id52": encode_id52(public)}
