"""Counts what proxies do wrong, logs it once per burst, and says it in the trouble sentences of the status.

``proxies.rules`` reports faults here, ``server.operations`` shows the sentences. Anybody can send the first bytes of a
PROXY header. So an address that is public, and no trusted proxy, is counted and logged and is no trouble.
"""

import ipaddress
from typing import Final

import structlog

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.engine.admission import AdmissionRefusal, address_key
from waystation.engine.recorder import Recorder
from waystation.server.bursts import Bursts
from waystation.server.hub import monotonic_now
from waystation.server.registry import PROTOCOLS
from waystation.transport.proxies import ProxyFault

__all__ = ["ProxyFaults"]

_LATELY_S: Final = 3_600

_WHY: Final = {
    ProxyFault.NO_HEADER: "no PROXY header where node.proxy_protocol asks for one, or too many connections without a "
    "client",
    ProxyFault.HEADER_NOT_READ: "a PROXY header where none is read; node.proxy_protocol does not name the listener, or "
    "node.trusted_proxies not the proxy",
    ProxyFault.NO_CLIENT: "no client in the header that node.proxy_header names",
}
_TROUBLE: Final = {
    ProxyFault.NO_HEADER: "refused connections of a trusted proxy in the last hour, because they named no client "
    "(proxy_header); have the proxy send the PROXY header, or take the listener out of node.proxy_protocol",
    ProxyFault.HEADER_NOT_READ: "got connections of a proxy in the last hour that begin with a PROXY header, and reads "
    "none there (proxy_header_not_read); name the listener in node.proxy_protocol and the proxy in "
    "node.trusted_proxies",
    ProxyFault.NO_CLIENT: "served requests of a trusted proxy in the last hour that named no client "
    "(proxy_names_nobody), so that they count as one address; have the proxy set the header that node.proxy_header "
    "names, unless programs of that machine connect themselves",
}

_log = structlog.get_logger("waystation.server")


class ProxyFaults:
    """What the proxies of one node did wrong. Cost: O(1) per fault."""

    def __init__(self, recorder: Recorder) -> None:
        """Count with ``recorder``."""
        self._recorder = recorder
        self._bursts = Bursts(monotonic_now())
        self._last: dict[tuple[str, ProxyFault], Instant] = {}
        """When each was last a trouble, by protocol."""

    def note(self, protocol: str, host: str, fault: ProxyFault, *, is_trusted: bool) -> None:
        """Take one fault.

        Args:
            protocol: Whose listener it is; "admin" for the admin port.
            host: Where the connection comes from.
            fault: What is wrong.
            is_trusted: Whether ``host`` is a trusted proxy.
        """
        now, refusal = monotonic_now(), AdmissionRefusal(fault.value)
        if protocol in PROTOCOLS:
            self._recorder.refused_by_admission(protocol, refusal, now, address_key(host))
        else:
            self._recorder.refused_in_memory(protocol, refusal, now, address_key(host))
        if is_trusted or _is_inside(host):
            self._last[protocol, fault] = now
        if self._bursts.begins((protocol, host, fault), now):
            _log.warning("proxy.fault", protocol=protocol, proxy=host, reason=fault.value, why=_WHY[fault])

    def troubles(self) -> list[str]:
        """Return a sentence for each fault of the last hour that an operator can mend."""
        since = monotonic_now() - _LATELY_S * MICROSECONDS_PER_SECOND
        return [f"{protocol} {_TROUBLE[fault]}" for (protocol, fault), last in self._last.items() if last >= since]


def _is_inside(host: str) -> bool:
    """Return whether an address is none of the public internet, as those of most proxies are."""
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return False
