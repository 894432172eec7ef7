"""The interface between the node and each protocol that it hosts: ``ProtocolHost``.

``server/<protocol>/host.py`` declares a subclass as ``HOST``. The node builds it, opens the listeners that it names,
and calls ``start``, later ``drain`` and ``close``. Its reports become part of the node's status and public documents.
Only the relay is required; all other methods have defaults.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol

from waystation.core.answers import HttpAnswer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import Clocked
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.engine.access import Access
from waystation.engine.node import DatagramRelay, Relay
from waystation.engine.policy import Policy
from waystation.rules.twins import Twins
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.server.dialling.dialler import Outlet
from waystation.server.home import Home
from waystation.server.hub import Hub
from waystation.server.proxies.rules import ProxyRules
from waystation.server.registry import PROTOCOLS, protocol_table
from waystation.server.sinks import ListenerSink
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext
from waystation.transport.websocket.site import Endpoint

__all__ = [
    "Authorities",
    "HostContext",
    "HostedDatagramRelay",
    "HostedRelay",
    "LeafHashes",
    "MakeContext",
    "MakeSink",
    "PipePort",
    "ProtocolHost",
    "TlsRules",
    "build_hosts",
]

LeafHashes = Callable[[str], bytes]
"""Returns the SHA-256 of the certificate in force for a table of the configuration."""

MakeSink = Callable[[str], ListenerSink]
"""Returns the sink that leads connections to one endpoint of the protocol's relay, "" for the usual one."""


class Limited(Protocol):
    """What has limits that a reload replaces."""

    def use_limits(self, limits: Any) -> None:
        """Hold peers to these from now on: an object of ``ProtocolTable.limits``."""


class HostedRelay(Relay, Clocked, Limited, Protocol):
    """A relay over connections that knows the wall clock."""


class HostedDatagramRelay(DatagramRelay, Clocked, Limited, Protocol):
    """A relay without connections that knows the wall clock."""


@dataclass(frozen=True, slots=True)
class HostContext:
    """What the node gives to every protocol."""

    config: Config
    home: Home
    key_pair: KeyPair
    """The node's identity."""
    store: Store
    rng: random.Random
    """Source of nonces and challenges."""
    admits: Callable[[PublicKey], bool]
    """Asked about every identity that proves itself."""
    access: Access
    """The operator's lists and bans; ``admits`` has asked them already."""
    policy: Policy
    """Asked which clients have to wait and which have to work more."""
    proxies: ProxyRules
    """Who may name the client of a connection."""
    silence: Callable[[], SilencePolicy] = SilencePolicy
    """Returns how long the other side of a new connection may be silent."""
    note_refused: Callable[[str, PublicKey], None] | None = None
    """Called with the protocol and each identity that ``admits`` refused."""
    note_met: Callable[[str, Enum, str], None] | None = None
    """Called with a table of limits, the refusal and the address when a port of a protocol's own refuses a request."""

    def for_protocol(self, name: str) -> "HostContext":
        """Return the context of one protocol, whose refusals are noted under its name."""
        note, admits = self.note_refused, self.admits
        if note is None:
            return self

        def noted(identity: PublicKey) -> bool:
            if admits(identity):
                return True
            note(name, identity)
            return False

        return replace(self, admits=noted, note_refused=None)

    @property
    def rate_limits(self) -> bool:
        """Whether rate limits and ceilings per address are in force."""
        return self.config.limits.enabled


class TlsRules(NamedTuple):
    """How a listener speaks TLS."""

    only_tls13: bool = False
    protocols: tuple[str, ...] = ()
    """ALPN names."""


Authorities = Callable[[str], Sequence[bytes]]
"""Returns the authorities in DER that the certificate of a table comes from and will come from, at most two."""
MakeContext = Callable[[str, TlsRules], TlsContext]
"""Returns the TLS context of a table's listeners, whose certificate the node keeps up to date."""


class PipePort(NamedTuple):
    """A listener whose connections carry the protocol's bytes and nothing else."""

    name: str
    """In the ready line."""
    setting: str
    """That names its address, as "table.key"."""
    address: Address
    tls: TlsRules | None
    """None for bare TCP."""
    endpoint: str = ""
    """Which of the relay's endpoints its connections reach."""
    is_forwarded: bool = False
    """Whether all its connections come from a forwarder on this machine: their address is then counted for nothing."""
    acks_at_once: bool = False
    """Whether the kernel acknowledges what comes at once, for clients that write a frame in pieces (Nagle)."""


class ProtocolHost:
    """One protocol of a running node."""

    relay: HostedRelay | HostedDatagramRelay

    has_view: ClassVar[bool] = False
    """Whether the admin port shows ``view`` under the protocol's name."""

    def __init__(self, context: HostContext) -> None:
        """Build the relay, over what the node gives to every protocol.

        Raises:
            ConfigError: The configuration names something that cannot be used.
            HostError: A file or a record in the store cannot be used.
        """
        self.context = context

    # Listeners

    def pipe_ports(self) -> Sequence[PipePort]:
        """Return the listeners of bare connections that are on."""
        return ()

    def datagram_address(self) -> Address | None:
        """Return the UDP address to bind, None for none; the listener is named as the protocol."""
        return None

    def endpoints(self, sink: MakeSink, has_page: Callable[[str], bool]) -> dict[str, Endpoint]:  # noqa: ARG002
        """Return what answers at each path of the protocol's own web port.

        Args:
            sink: Makes the sinks.
            has_page: Returns whether a public page has this path too.
        """
        return {}

    def carried_endpoint(self, table: str, sink: MakeSink) -> Endpoint:
        """Return what answers at the protocol's path on the web port of another table."""
        raise AssertionError(f"no path of this protocol is on the web port of {table}, so {sink} makes nothing")

    def use_certificates(self, hashes: LeafHashes) -> None:
        """Take over the certificates in force; called before listeners open, and again when one has changed."""

    def use_authorities(self, authorities: Authorities) -> None:
        """Take over the authorities of the certificates; called at the same times."""

    async def open(self, contexts: MakeContext) -> None:
        """Open what the protocol listens on beside the ports above.

        Raises:
            HostError: A port is taken, or a certificate cannot be used.
        """

    # Life

    def outlet(self) -> Outlet | None:
        """Return what carries out the relay's ``Dial`` effects, None where it emits none.

        Called once, in the event loop.

        Raises:
            HostError: A file that it needs cannot be read.
        """
        return None

    def start(self, hub: Hub, urls: Mapping[str, str]) -> None:
        """Begin the background work, once every listener is open.

        Args:
            hub: Gets connections that the protocol dials by itself.
            urls: Where the listeners are reached, by name.
        """

    def reload(self, config: Config) -> None:
        """Take over the settings that can change while the node runs."""

    def drain(self) -> None:
        """Dial no more and end the background work; connections stay."""

    async def close(self) -> None:
        """End everything; harmless when nothing was opened or started."""
        self.drain()

    # What is shown

    def urls(self) -> dict[str, str]:
        """Return where the ports of ``open`` are reached, by name."""
        return {}

    def twins(self) -> Twins | None:
        """Return what the relay has met under a key that two nodes have; None where it looks for none."""
        return None

    def has_node(self, key: bytes) -> bool:  # noqa: ARG002 - most protocols have clients alone
        """Return whether a key that came to us is that of a node, or of a device that others know by it."""
        return False

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return how much of each bounded thing there is beside the relay, by what has it."""
        return {}

    def stored_bytes(self) -> int:
        """Return the bytes of the files that it keeps beside the store."""
        return 0

    def status(self) -> dict[str, Any]:
        """Return entries of the node's status."""
        return {}

    def view(self) -> dict[str, Any]:
        """Return what the admin port shows of the protocol; asked only where ``has_view``."""
        return {}

    def tenants(self, count_max: int) -> tuple[list[dict[str, Any]], int]:  # noqa: ARG002 - there are none
        """Return those who lease something here, at most so many, and how many there are."""
        return [], 0

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:  # noqa: ARG002 - nothing is described
        """Return what a client must know, for the node's public document.

        Args:
            ports: Port of each open listener, by name.
        """
        return {}

    def documents(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Return public JSON documents by path."""
        return {}

    def pages(self) -> Callable[[str, str, Instant, str], HttpAnswer] | None:
        """Return what answers a plain GET (path, address, time, ``Host``) of any path that nothing else answers."""
        return None


def build_hosts(context: HostContext) -> dict[str, ProtocolHost]:
    """Return each protocol that the configuration enables, by name.

    Raises:
        ConfigError: As ``ProtocolHost``.
        HostError: As ``ProtocolHost``.
    """
    enabled = [name for name in PROTOCOLS if context.config.of(protocol_table(name).listen).enabled]
    return {name: host_class(name)(context.for_protocol(name)) for name in enabled}


def host_class(name: str) -> type[ProtocolHost]:
    """Return the class that hosts a protocol."""
    found: type[ProtocolHost] = import_module(f"waystation.server.{name}.host").HOST
    return found
