"""Parses and writes connection URIs: the address of a relay as text or as JSON.

The SDK and ``waystation strata`` parse what a user typed. Connection URIs are untrusted and have no identity. A program
must show the hosts, ask the user, and warn about plain ``http`` and ``ws``. It pins the relay's DID at first use and
never publishes to an unknown relay by itself.
Spec: RFC-0009; specs/strata.md 17.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from waystation.core.errors import LocalError

__all__ = [
    "EXTRA_MAX",
    "LABEL_CHARS_MAX",
    "RelayUri",
    "http_base_of",
    "parse_relay",
    "parse_relay_json",
    "parse_relay_uri",
]

LABEL_CHARS_MAX: Final = 64
EXTRA_MAX: Final = 16  # ours: addresses beside the main one
URI_CHARS_MAX: Final = 4_096  # ours
_TYPE: Final = "strata.relay"
_MODES: Final = ("auto", "manual")
_PATH: Final = "/strata"
_HTTP: Final = ("http", "https")
_WS: Final = ("ws", "wss")


@dataclass(frozen=True, slots=True)
class RelayUri:
    """One relay as a user names it; ``str`` gives the URI back."""

    http: str
    """Base of its HTTP surface, scheme and host only."""
    ws: str
    """WebSocket endpoint."""
    label: str = ""
    """The name that a user gave it; at most 64 characters, none of them a control character."""
    mode: str = "auto"
    """``auto`` or ``manual``."""
    extra_ws: tuple[str, ...] = ()
    """Further endpoints of the same relay."""

    def __str__(self) -> str:
        pairs = [("v", "1"), ("http", self.http)]
        if self.ws != _derived(self.http):
            pairs.append(("ws", self.ws))
        if self.label:
            pairs.append(("label", self.label))
        if self.mode != "auto":
            pairs.append(("mode", self.mode))
        pairs += [("extra_ws", each) for each in self.extra_ws]
        return "strata://relay?" + urlencode(pairs, quote_via=quote)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        body: dict[str, Any] = {"type": _TYPE, "v": 1, "http": self.http, "ws": self.ws, "mode": self.mode}
        if self.label:
            body["label"] = self.label
        if self.extra_ws:
            body["extra_ws"] = list(self.extra_ws)
        return body

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences to show before the user agrees."""
        addresses = (self.http, self.ws, *self.extra_ws)
        # One sentence for one relay: its HTTP and its WebSocket address are the same listener.
        exposed = {urlsplit(each).netloc: each for each in reversed(addresses) if _is_exposed(each)}.values()
        hosts = {urlsplit(each).hostname for each in addresses}
        # Spec 17: show the hosts, warn of http and ws, ask before use.
        found = [f"{each} is not encrypted: others on the way can read and change what is sent" for each in exposed]
        # Pages and packets may go to different owners, which nobody sees in one long line of text.
        if len(hosts) > 1:
            found.append(f"the addresses lead to different hosts: {', '.join(sorted(str(host) for host in hosts))}")
        return tuple(found)


def parse_relay(text: str) -> RelayUri:
    """Return the relay that a connection URI, its JSON form, a ``ws(s)://`` or an ``http(s)://`` address names.

    Raises:
        LocalError: None of these, or one that breaks its rules.
    """
    scheme = text.partition("://")[0].lower()
    if scheme == "strata":
        return parse_relay_uri(text)
    if scheme in _HTTP:
        base = _http_base(text)
        return RelayUri(base, _derived(base))
    if scheme in _WS:
        return RelayUri(http_base_of(text), _ws_url(text))
    raise LocalError(f"not a relay: {text[:80]!r}; expected strata://relay?…, wss://host/strata or https://host")


def parse_relay_uri(text: str) -> RelayUri:
    """Return what a ``strata://relay`` URI says.

    Raises:
        LocalError: The sentence says which rule it breaks.
    """
    # Before anything is parsed: a URI comes from a QR code or a message of somebody unknown.
    if len(text) > URI_CHARS_MAX:
        raise LocalError(f"a relay URI has at most {URI_CHARS_MAX} characters")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise LocalError(f"not a relay URI: {error}") from error
    # Spec 17: another host is refused.
    if parts.scheme != "strata" or parts.netloc != "relay":
        raise LocalError("a relay URI begins with strata://relay")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in pairs if name in _SINGLE]
    # Spec 17: a name given twice is refused, since programs differ in which of the two they take.
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise LocalError(f"a relay URI names {repeated[0]} once")
    single = {name: value for name, value in pairs if name in _SINGLE}
    return _make(single, [value for name, value in pairs if name == "extra_ws"])


def parse_relay_json(body: Mapping[str, Any]) -> RelayUri:
    """Return what the JSON form says; raises LocalError as ``parse_relay_uri``."""
    if body.get("type") != _TYPE:
        raise LocalError(f'the JSON form of a relay has "type": "{_TYPE}"')
    extra = body.get("extra_ws")
    if extra is not None and (not isinstance(extra, list) or not all(isinstance(each, str) for each in extra)):
        raise LocalError("extra_ws is a list of addresses")
    version = body.get("v")
    single = {name: body[name] for name in _SINGLE if name != "v" and body.get(name) is not None}
    if not all(isinstance(value, str) for value in single.values()):
        raise LocalError("http, ws, label and mode are texts")
    # A JSON 1 is a version; true, 1.0 and "1.0" are not and become one that is unknown.
    if version is not None:
        single["v"] = str(version) if type(version) is int else "?"
    return _make(single, extra or [])


def http_base_of(ws: str) -> str:
    """Return the HTTP base that belongs to a WebSocket address; raises LocalError."""
    parts = urlsplit(_ws_url(ws))
    # Spec 17: HTTP and WebSocket share a listener.
    return f"{parts.scheme.replace('ws', 'http')}://{parts.netloc}"


def _make(single: Mapping[str, str], extra: list[str]) -> RelayUri:
    # Spec 17: another ``v`` is refused, because its names may mean something else.
    if single.get("v", "1") != "1":
        raise LocalError("this relay URI has a version that is not known here")
    if "http" not in single:
        raise LocalError("a relay URI names http")
    mode = single.get("mode", "auto")
    if mode not in _MODES:
        raise LocalError("mode is auto or manual")
    # Spec 17: at most 16 ``extra_ws``.
    if len(extra) > EXTRA_MAX:
        raise LocalError(f"at most {EXTRA_MAX} extra_ws")
    base = _http_base(single["http"])
    # Spec 17: without ``ws`` it is the base with ws or wss and ``/strata``.
    ws = _ws_url(single["ws"]) if "ws" in single else _derived(base)
    return RelayUri(base, ws, _label(single.get("label", "")), mode, tuple(_ws_url(each) for each in extra))


def _label(text: str) -> str:
    """Return a label that cannot steer a terminal or a page's direction of writing."""
    # Spec 17: printable characters; the label is shown to a user who is about to agree.
    shown = "".join(each for each in text if each.isprintable()).strip()
    if len(shown) > LABEL_CHARS_MAX:
        raise LocalError(f"a label has at most {LABEL_CHARS_MAX} characters")
    return shown


def _http_base(text: str) -> str:
    scheme, netloc, _, query = _split(text)
    if scheme not in _HTTP:
        raise LocalError(f"http is an http:// or https:// address, not {text[:80]!r}")
    if query:
        raise LocalError("http has no query")
    # Spec 17: the path of ``http`` is dropped.
    return f"{scheme}://{netloc}"


def _ws_url(text: str) -> str:
    scheme, netloc, path, query = _split(text)
    if scheme not in _WS:
        raise LocalError(f"a WebSocket address begins with ws:// or wss://, not {text[:80]!r}")
    return urlunsplit((scheme, netloc, path or _PATH, query, ""))


def _split(text: str) -> tuple[str, str, str, str]:
    """Return scheme, host with port, path and query of an address without user and fragment."""
    try:
        parts = urlsplit(text)
        # ``port`` raises ValueError for what is no port number.
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise LocalError(f"not an address: {text[:80]!r} ({error})") from error
    # A user part hides the host from people: ``https://known.example@other.example``.
    unwanted = parts.username is not None or parts.fragment or not text.isprintable() or " " in text
    # Browsers read a backslash as a slash, urllib as part of the host.
    if not usable or unwanted or "\\" in text:
        raise LocalError(f"not an address: {text[:80]!r}")
    return parts.scheme, parts.netloc.lower(), parts.path, parts.query


def _is_exposed(address: str) -> bool:
    """Return whether what is sent there leaves this machine in the clear."""
    parts = urlsplit(address)
    return parts.scheme in ("http", "ws") and not _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _derived(base: str) -> str:
    return f"ws{base.removeprefix('http')}{_PATH}"


_SINGLE: Final = ("v", "http", "ws", "label", "mode")
