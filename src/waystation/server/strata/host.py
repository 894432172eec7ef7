"""Runs the Strata relay in a node: its web endpoint and pages, and the relays that it reads from.

The node builds it where ``[strata]`` is on and calls the methods of ``server.hosted``; the relay in
``protocols.strata`` decides.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.answers import HttpAnswer
from waystation.core.errors import ConfigError, RemoteError
from waystation.core.instant import Instant
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.relay.pages import LogPolicy
from waystation.protocols.strata.relay.policy import Policy
from waystation.protocols.strata.settings import StrataSettings, read_upstreams
from waystation.server.config.values import Config
from waystation.server.hosted import HostContext, MakeSink, ProtocolHost
from waystation.server.hub import Hub, monotonic_now
from waystation.server.strata.bootstrap import read_bootstrap, with_bootstrap
from waystation.server.strata.documents import DocumentFetcher
from waystation.server.strata.operator_keys import read_operator_keys
from waystation.server.strata.tables import StrataListenSettings
from waystation.server.strata.upstreams import Upstreams
from waystation.transport.websocket.site import Endpoint

__all__ = ["HOST", "StrataHost"]

_is_host: Final = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?").fullmatch
_DAY_HOURS: Final = 24
_FEATURES: Final = ("publish", "subscribe", "replication", "auth", "key_events")


class StrataHost(ProtocolHost):
    """Hosts ``StrataRelay``."""

    relay: StrataRelay

    def __init__(self, context: HostContext) -> None:
        super().__init__(context)
        self._listen = context.config.of(StrataListenSettings)
        settings = context.config.of(StrataSettings)
        self._bootstrap = read_bootstrap(settings, int(time.time()))
        self._settings = with_bootstrap(settings, self._bootstrap)
        self.relay = _build_relay(self._settings, context)
        self._upstreams: Upstreams | None = None
        self._documents: DocumentFetcher | None = None

    def endpoints(self, sink: MakeSink, has_page: Callable[[str], bool]) -> dict[str, Endpoint]:  # noqa: ARG002
        """Return the one path of the relay, which has no page."""
        return {self._listen.path: Endpoint(sink(""))}

    def start(self, hub: Hub, urls: Mapping[str, str]) -> None:  # noqa: ARG002 - upstreams do not ask for them
        """Dial the upstreams, and fetch the DID documents that they and bootstrap data name."""
        upstreams, context = read_upstreams(self._settings.upstreams), self.context
        self._upstreams = Upstreams(hub, self.relay, upstreams, context.rng, context.policy, context.silence)
        self._documents = DocumentFetcher(self.relay, upstreams, self._bootstrap)
        self._documents.start(self._upstreams.start)

    def reload(self, config: Config) -> None:
        """Use the block lists as they are now."""
        lists = config.of(StrataSettings)
        self.relay.use_policy(Policy(lists.blocked_authors, lists.blocked_packets, lists.blocked_media))

    def drain(self) -> None:
        """Dial no upstream again."""
        for each in (self._upstreams, self._documents):
            if each is not None:
                each.close()

    def status(self) -> dict[str, Any]:
        """Return the upstreams, and the last clients that the relay rejected."""
        views = self.relay.upstreams(monotonic_now())
        return {
            "upstreams": {relay_id: view._asdict() for relay_id, view in views.items()},
            "turned_away": [entry._asdict() for entry in self.relay.authorizer.rejected],
        }

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return address, path, features and limits."""
        listen, settings = self._listen, self._settings
        return {
            "url": settings.public_url or None,
            "port": ports.get("strata"),
            "paths": [listen.path],
            "tls": listen.tls,
            "version": 1,
            "features": list(_FEATURES),
            "limits": {
                "max_packet_bytes": settings.max_packet_bytes,
                "max_age_s": settings.max_age_s,
                "anonymous": settings.anonymous,
            },
        }

    def pages(self) -> Callable[[str, str, Instant, str], HttpAnswer]:
        """Return the relay's own pages; without ``public_url`` its address is the one that the client asked."""
        scheme, path = "wss" if self._listen.tls else "ws", self._listen.path

        def answer(asked: str, address: str, now: Instant, host: str) -> HttpAnswer:
            endpoint = f"{scheme}://{host}{path}" if _is_host(host) else ""
            return self.relay.answer(asked, address, now, endpoint)

        return answer


def _build_relay(settings: StrataSettings, context: HostContext) -> StrataRelay:
    pinned, documents = read_operator_keys(settings)
    try:
        return StrataRelay(
            settings,
            context.key_pair,
            context.store,
            context.rng,
            limits=context.config.of(StrataLimits),
            rate_limits=context.rate_limits,
            static_dids=pinned,
            documents=documents,
            logs=_log_policy(context.config),
            admits=context.admits,
            access=context.access,
            waits=lambda identity, now: (
                0 if context.access.is_unlimited(identity) else context.policy.throttle(identity, now)
            ),
        )
    except RemoteError as error:
        raise ConfigError(f"strata.did_documents: {error}", origin=settings.did_documents) from error


def _log_policy(config: Config) -> LogPolicy:
    """Return what the journal keeps about packets, and whether lines of the log name addresses."""
    journal = config.journal
    days = [journal.retention_days, *([journal.archive_retention_days] if journal.archive else [])]
    return LogPolicy(max(days) * _DAY_HOURS if journal.enabled else 0, config.node.connection_log == "address")


HOST: Final = StrataHost
