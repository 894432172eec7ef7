"""The node's own configuration tables, and the value types that settings may have.

``config.load`` fills them, the rooms of the server read them through ``Config``. A protocol declares its table in
``server/<protocol>/tables.py``; ``config.parts`` lists all of them.
"""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from waystation.core.errors import LocalError
from waystation.core.settings import check, describe_allowed, limit, setting
from waystation.engine.admission import AdmissionRefusal
from waystation.transport.proxies import FORWARDED, X_FORWARDED_FOR
from waystation.transport.silence import SILENCE_MS, SILENCE_S_MAX, SILENCE_S_MIN

__all__ = [
    "ADMIN_SOCKET",
    "AccessSettings",
    "Address",
    "AdminSettings",
    "BusSettings",
    "JournalSettings",
    "LimitSettings",
    "NodeSettings",
    "PlainValue",
    "PolicySettings",
    "StoreSettings",
    "admit",
    "allowed_values",
    "parse_address",
    "plain_value",
]

ADMIN_SOCKET: Final = "admin.sock"
_PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:\s/]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """Name, IPv4 or IPv6 address; IPv6 without its brackets. "*" is every address of both families (NODE-DUAL)."""
    port: int
    """0..65535; 0 takes any free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> Address | None:
    """Return the address that "host:port", "*:port" or "[ipv6]:port" names, None for the empty text, which means off.

    Raises:
        LocalError: Anything else.
    """
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _PORT_MAX:
        raise LocalError(f"{text!r} is not an address")
    if match["v6"] and not _is_ipv6(match["v6"]):
        raise LocalError(f"{text!r} is not an address")
    return Address(match["v6"] or match["host"], int(match["port"]))


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """``[node]``: the process itself."""

    home: Path = setting(
        Path("./waystation"), "Folder of keys, certificates, store and journal; relative to the working directory."
    )
    name: str = setting("waystation", "Name shown to people.")
    log_level: str = setting(
        "info", "Least level that is logged.", choices=("debug", "info", "warning", "error"), reload=True
    )
    log_format: str = setting(
        "auto",
        "Lines for people or for machines; auto takes console on a terminal.",
        choices=("auto", "console", "json"),
        reload=True,
    )
    connection_log: str = setting(
        "off",
        "A log line at both ends of a connection: off, with its journal reference or network, or with its address.",
        choices=("off", "reference", "address"),
        reload=True,
    )
    trusted_proxies: list[str] = setting(
        [],
        "Networks of the proxies before this node, such as 127.0.0.1 or 10.0.0.0/8; they name the clients.",
        reload=True,
    )
    proxy_header: str = setting(
        X_FORWARDED_FOR,
        "The one header of requests in which trusted proxies name the client; the other one is never read.",
        choices=(X_FORWARDED_FOR, FORWARDED),
        reload=True,
    )
    proxy_protocol: list[str] = setting(
        [],
        'TCP listeners, such as "bhumi.tls", where connections of trusted proxies begin with a PROXY header.',
        reload=True,
    )
    cert: str = setting(
        "",
        "Certificate chain in PEM of every TLS listener whose table names none; empty takes tls/cert.pem of the home.",
        reload=True,
    )
    key: str = setting("", "Key of the certificate in PEM; empty takes tls/key.pem of the home.", reload=True)
    silence_ms: int = setting(
        SILENCE_MS,
        "A connection on which nothing arrives any more ends within this time; for new connections.",
        unit="ms",
        at_least=SILENCE_S_MIN * 1_000,
        at_most=SILENCE_S_MAX * 1_000,
        reload=True,
    )
    drain_ms: int = setting(
        5_000, "How long SIGTERM waits for exchanges in flight.", unit="ms", at_least=0, at_most=600_000, reload=True
    )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """``[store]``: where durable records are kept."""

    url: str = setting("sqlite", "A file in the home, or memory that is lost on restart.", choices=("sqlite", "memory"))
    free_mib_least: int = setting(
        64,
        "Below this nothing new is stored, and peers are refused, until there is room; 0 for no floor.",
        unit="MiB",
        at_least=0,
        at_most=1_048_576,
        reload=True,
    )


@dataclass(frozen=True, slots=True)
class BusSettings:
    """``[bus]``: the link between several processes of one node."""

    url: str = setting("", "Empty: one process.", choices=("",))


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """``[journal]``: what the node records about its work, never payloads; and its archive of signed packets."""

    enabled: bool = setting(default=True, help="Record events for the pipeline.")
    segment_seconds: int = setting(
        60, "Oldest event of a segment when it is closed.", unit="s", at_least=1, at_most=86_400
    )
    segment_rows: int = setting(20_000, "Most events of a segment.", unit="rows", at_least=1, at_most=1_000_000)
    retention_days: int = setting(
        14, "How long closed segments are kept.", unit="days", at_least=1, at_most=3_650, reload=True
    )
    retention_mib: int = setting(
        2_048,
        "Most space of closed segments; the oldest go first.",
        unit="MiB",
        at_least=1,
        at_most=1_048_576,
        reload=True,
    )
    archive: bool = setting(
        default=True, help="Keep the signed packets that were stored, for the pipeline to check again."
    )
    archive_retention_days: int = setting(
        14, "How long closed segments of the archive are kept.", unit="days", at_least=1, at_most=3_650, reload=True
    )
    archive_retention_mib: int = setting(
        2_048,
        "Most space of closed segments of the archive; the oldest go first.",
        unit="MiB",
        at_least=1,
        at_most=1_048_576,
        reload=True,
    )


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """``[policy]``: what the pipeline published about peers, sources and other relays."""

    path: str = setting("", "Folder of what was published; empty takes lake/published of the home, if there is one.")
    key: str = setting(
        "",
        "Public key that must have signed, in hexadecimal; empty trusts the key of a lake in the home, and no other.",
    )
    poll_s: int = setting(30, "How often a new snapshot is looked for.", unit="s", at_least=1, at_most=3_600)
    mode: str = setting(
        "shadow",
        "Carry out what rules enforce, only count what they would do, or leave them alone.",
        choices=("shadow", "enforce", "off"),
        reload=True,
    )
    allow: list[str] = setting(
        [], "Whom no rule touches: keys (id52 or hexadecimal), DIDs and IP addresses.", reload=True
    )


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """``[admin]``: what the operator asks and changes while the node runs."""

    listen: Address | None = setting(Address("127.0.0.1", 8081), "HTTP for operators and their tools.")
    socket: str = setting(
        ADMIN_SOCKET, "The same at a unix socket that only this user may open; relative to the home, empty is off."
    )
    hosts: list[str] = setting(
        [], "More names that requests may ask for, such as that of a proxy: admin.example.org.", reload=True
    )
    metrics: str = setting(
        "open", "Whether /metrics is read without a token, or only with it.", choices=("open", "token"), reload=True
    )


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """``[access]``: who may use this node, and whom no rate touches."""

    allow: list[str] = setting(
        [],
        "Who alone may use the node: keys (id52, hexadecimal), DIDs, IP addresses and networks; empty is everybody. "
        "Keys and networks together demand both. Keys shut out who proves none: anonymous Strata clients, but not "
        "Bhumi senders, who never do.",
        reload=True,
    )
    deny: list[str] = setting(
        [], "Who may not use the node, whatever allow says: keys, DIDs, IP addresses and networks.", reload=True
    )
    unlimited: list[str] = setting(
        [], "Keys and DIDs whose rates do not bind, from their next handshake on; limits of sizes do.", reload=True
    )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """``[limits]``: protection against those who ask too much."""

    enabled: bool = setting(
        default=True,
        help="False lifts rate limits and ceilings per address, never size or table limits; for load tests.",
    )
    gets_per_minute: int = limit(
        600,
        "GETs of public pages and documents of one address; more get 429.",
        unit="per min",
        at_most=1_000_000,
        refusal=AdmissionRefusal.GETS_RATE,
    )


PlainValue = bool | int | str | list[str] | list[dict[str, str | list[str]]] | dict[str, str]
"""What a setting is in the file."""


def allowed_values(owner: type[Any], name: str) -> str:
    """Return in words which values the field ``name`` takes in the file."""
    kind = get_type_hints(owner)[name]
    if kind == Address | None:
        forms = '"*:port" for IPv4 and IPv6, "[ipv6]:port" for IPv6, port 0 for any free port'
        return f'text "host:port" ({forms}), or "" for off'
    if kind is Path:
        return "text, the path of a folder"
    return describe_allowed(owner, name)


def admit(owner: type[Any], name: str, value: object) -> Any:
    """Return ``value`` as the field ``name`` holds it.

    Raises:
        LocalError: The value is not allowed; the text says what is.
    """
    kind = get_type_hints(owner)[name]
    if kind != Address | None and kind is not Path:
        check(owner, name, value)
        return value
    try:
        if not isinstance(value, str) or (kind is Path and not value):
            raise LocalError("not a text")
        return Path(value) if kind is Path else parse_address(value)
    except LocalError as error:
        raise LocalError(f"{name} = {value!r} is not allowed; allowed: {allowed_values(owner, name)}") from error


def plain_value(value: object) -> PlainValue:
    """Return a field's value as the file writes it: addresses and paths as text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | list | dict):
        return value
    if isinstance(value, Path) and not value.is_absolute():
        return f"./{value}"
    return str(value)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
