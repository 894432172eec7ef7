"""The tables of the node's configuration that belong to the node itself, and which table holds what.

A protocol declares its own part (``protocols.bhumi.settings``); its table in the file is the union of that part and the
listener part below.
"""

import dataclasses
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from waystation.core.errors import LocalError
from waystation.core.settings import check, describe_allowed, setting
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.merk.settings import MerkSettings
from waystation.protocols.strata.settings import StrataSettings

__all__ = [
    "PARTS",
    "Address",
    "AdminSettings",
    "BhumiListenSettings",
    "BspListenSettings",
    "BusSettings",
    "JournalSettings",
    "LimitSettings",
    "ListenSettings",
    "LprpListenSettings",
    "MerkListenSettings",
    "NodeSettings",
    "Part",
    "PlainValue",
    "PolicySettings",
    "StoreSettings",
    "StrataListenSettings",
    "admit",
    "allowed_values",
    "fields_of",
    "merk_paths",
    "parse_address",
    "plain_value",
]

_PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:\s/]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """Name, IPv4 or IPv6 address; IPv6 without its brackets."""
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
    """Return the address that "host:port" or "[ipv6]:port" names, None for the empty text, which means off.

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
    drain_ms: int = setting(
        5_000, "How long SIGTERM waits for exchanges in flight.", unit="ms", at_least=0, at_most=600_000, reload=True
    )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """``[store]``: where durable records are kept."""

    url: str = setting("sqlite", "A file in the home, or memory that is lost on restart.", choices=("sqlite", "memory"))


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
    """``[admin]``: health, readiness and metrics."""

    listen: Address | None = setting(Address("127.0.0.1", 8081), "HTTP for operators and their tools.")


@dataclass(frozen=True, slots=True)
class BhumiListenSettings:
    """``[bhumi]``, listener part; the protocol part stands in ``protocols.bhumi.settings``."""

    enabled: bool = setting(default=True, help="Run the Bhumi relay.")
    tls: Address | None = setting(Address("0.0.0.0", 8443), "TLS 1.2 and 1.3.")  # noqa: S104
    plain: Address | None = setting(None, "Bare TCP for tests; loopback only.")
    upstream_listen: Address | None = setting(
        None, "For nodes of the original, which expect the preimage in every DELIVER; bare TCP on loopback, else TLS."
    )
    mdns: bool = setting(
        default=False, help="Announce this relay on the local network and find others there (mDNS, _bhumi._tcp)."
    )
    broadcast: bool = setting(
        default=False, help="Ask for relays on the local network by UDP broadcast too, and answer (port 4820)."
    )
    cert: str = setting("", "Certificate chain in PEM; empty takes tls/cert.pem of the home.", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes tls/key.pem of the home.", reload=True)


@dataclass(frozen=True, slots=True)
class LprpListenSettings:
    """``[lprp]``, listener part; the protocol part stands in ``protocols.lprp.settings``."""

    enabled: bool = setting(default=True, help="Run the LPRP host.")
    udp: Address | None = setting(Address("0.0.0.0", 4810), "UDP; [::] takes IPv4 and IPv6.")  # noqa: S104


@dataclass(frozen=True, slots=True)
class BspListenSettings:
    """``[bsp]``, listener part; the protocol part stands in ``protocols.bsp.settings``."""

    enabled: bool = setting(default=True, help="Run the BSP peer.")
    tls: Address | None = setting(Address("0.0.0.0", 7443), "TLS 1.3; the peer proves its key inside.")  # noqa: S104
    plain: Address | None = setting(
        None, "Bare records of the peer that plain_peer names, without any proof; loopback only."
    )
    path: str = setting("/bsp", "Path of bsp+wss on the ports of MERK and Strata, where those speak TLS; empty is off.")
    box: Address | None = setting(
        None, "HTTP box for sealed files of people who are let in; HTTPS unless the address is loopback."
    )
    box_mib_max: int = setting(1_024, "Most bytes of files in the box.", unit="MiB", at_least=1, at_most=1_048_576)
    cert: str = setting("", "Certificate chain in PEM; empty takes tls/cert.pem of the home.", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes tls/key.pem of the home.", reload=True)


@dataclass(frozen=True, slots=True)
class StrataListenSettings:
    """``[strata]``, listener part; the protocol part stands in ``protocols.strata.settings``."""

    enabled: bool = setting(default=True, help="Run the Strata relay.")
    ws: Address | None = setting(Address("0.0.0.0", 8080), "WebSocket and plain HTTP of the relay.")  # noqa: S104
    path: str = setting("/strata", "Path of the WebSocket.")
    tls: bool = setting(default=False, help="Speak wss:// and https:// instead of ws:// and http://.")
    cert: str = setting("", "Certificate chain in PEM; empty takes tls/cert.pem of the home.", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes tls/key.pem of the home.", reload=True)


@dataclass(frozen=True, slots=True)
class MerkListenSettings:
    """``[merk]``, listener part; the protocol part stands in ``protocols.merk.settings``."""

    enabled: bool = setting(default=True, help="Run the MERK relay.")
    ws: Address | None = setting(
        Address("0.0.0.0", 8080),  # noqa: S104
        "WebSocket and plain HTTP of the relay; the address of strata.ws makes them share it.",
    )
    paths: list[str] = setting(["/", "/merk"], "Paths of the WebSocket.")
    mesh_path: str = setting(
        "/mesh", "Path for nodes of the original, which expect to be greeted by nobody; empty is off."
    )
    tls: bool = setting(default=False, help="Speak wss:// and https:// instead of ws:// and http://.")
    cert: str = setting("", "Certificate chain in PEM; empty takes tls/cert.pem of the home.", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes tls/key.pem of the home.", reload=True)


ListenSettings = BhumiListenSettings | BspListenSettings | MerkListenSettings | StrataListenSettings
"""Listener part of a protocol over connections."""


def merk_paths(listen: MerkListenSettings) -> list[str]:
    """Return every path of the MERK listener, that for original nodes last."""
    return [*listen.paths, *([listen.mesh_path] if listen.mesh_path else [])]


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """``[limits]``: protection against those who ask too much."""

    enabled: bool = setting(
        default=True,
        help="False lifts rate limits and ceilings per address, never size or table limits; for load tests.",
    )


class Part(NamedTuple):
    """One settings dataclass and its place."""

    table: str
    """Table of the file."""
    attribute: str
    """Attribute of ``Config``."""
    owner: type[Any]


PARTS: Final = (
    Part("node", "node", NodeSettings),
    Part("store", "store", StoreSettings),
    Part("bus", "bus", BusSettings),
    Part("journal", "journal", JournalSettings),
    Part("policy", "policy", PolicySettings),
    Part("admin", "admin", AdminSettings),
    Part("bhumi", "bhumi_listen", BhumiListenSettings),
    Part("bhumi", "bhumi", BhumiSettings),
    Part("bsp", "bsp_listen", BspListenSettings),
    Part("bsp", "bsp", BspSettings),
    Part("lprp", "lprp_listen", LprpListenSettings),
    Part("lprp", "lprp", LprpSettings),
    Part("merk", "merk_listen", MerkListenSettings),
    Part("merk", "merk", MerkSettings),
    Part("strata", "strata_listen", StrataListenSettings),
    Part("strata", "strata", StrataSettings),
    Part("limits", "limits", LimitSettings),
)

PlainValue = bool | int | str | list[str] | list[dict[str, str | list[str]]] | dict[str, str]
"""What a setting is in the file."""


def allowed_values(owner: type[Any], name: str) -> str:
    """Return in words which values the field ``name`` takes in the file."""
    kind = get_type_hints(owner)[name]
    if kind == Address | None:
        return 'text "host:port" ("[ipv6]:port" for IPv6, port 0 for any free port), or "" for off'
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


def fields_of(table: str) -> list[tuple[Part, dataclasses.Field[Any]]]:
    """Return the fields of one table in their order, each with the part that declares it."""
    return [(part, field) for part in PARTS if part.table == table for field in dataclasses.fields(part.owner)]


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
