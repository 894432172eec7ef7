"""Where an LPRP host is and which key it has, in one address: ``lprp://KEY@host:port``.

A datagram proves nothing about the address it comes from, so the key belongs to the address: answers count only when
that key has signed them, and packets are made out to it.

What else a client must know beforehand stands behind it where it is not the default, as
``?lease_ms=3600000&byte_order=little``: no answer of the protocol tells it. Spec: LPRP-D2, LPRP-D19.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, decode_id52, decode_key_hex, encode_id52
from waystation.core.settings import check, describe_allowed
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.transport.dial import DEFAULT_UDP_PORT, RelayUrl

__all__ = ["SCHEME", "HostUrl", "parse_key"]

SCHEME: Final = "lprp"
_SCHEMES: Final = (SCHEME, "udp")
_FACTS: Final = ("lease_ms", "byte_order")
_HEX_CHARS: Final = 64
_EXPECTED: Final = "expected lprp://KEY@host:port, KEY as id52 or 64 hexadecimal digits"
_WHERE: Final = "the host's `waystation id` shows its key, and so does the line that `waystation serve` prints"


@dataclass(frozen=True, slots=True)
class HostUrl:
    """One host; ``str`` gives the address back, with the key as id52."""

    key: PublicKey
    host: str
    """Name or IP address, without brackets."""
    port: int
    lease_ms: int | None = None
    """How long its leases last, milliseconds; None where the address does not say."""
    byte_order: str | None = None
    """Of time and command, "big" or "little"; None where the address does not say."""

    @classmethod
    def parse(cls, text: str) -> "HostUrl":
        """Return the host that ``lprp://KEY@host:port`` names; the port may be left out (4810), and so may the rest.

        Raises:
            LocalError: It is no such address; the sentence says what is missing and where to find it.
        """
        full = text.strip() if "://" in text else f"{SCHEME}://{text.strip()}"
        try:
            parts = urlsplit(full)
            port = parts.port
        except ValueError as error:
            raise LocalError(f"not the address of an LPRP host: {text!r} ({error}); {_EXPECTED}") from error
        extra = parts.path.strip("/") or parts.fragment or parts.password is not None
        if parts.scheme not in _SCHEMES or not parts.hostname or extra:
            raise LocalError(f"not the address of an LPRP host: {text!r}; {_EXPECTED}")
        if parts.username is None:
            raise LocalError(f"{text} does not say which key the host has; {_EXPECTED}; {_WHERE}")
        return cls(parse_key(parts.username), parts.hostname, port or DEFAULT_UDP_PORT, **_facts(text, parts.query))

    def settings(self, others: ClientSettings) -> ClientSettings:
        """Return settings that suit this host: what its address says, and ``others`` for the rest."""
        return dataclasses.replace(others, **self._said())

    @property
    def place(self) -> RelayUrl:
        """Where datagrams go."""
        return RelayUrl("udp", self.host, self.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(f"{name}={value}" for name, value in self._said().items())
        return f"{SCHEME}://{encode_id52(self.key)}@{host}:{self.port}{'?' if query else ''}{query}"

    def _said(self) -> dict[str, Any]:
        return {name: value for name in _FACTS if (value := getattr(self, name)) is not None}


def _facts(text: str, query: str) -> dict[str, Any]:
    """Return what an address says behind the question mark."""
    facts: dict[str, Any] = {}
    for name, said in parse_qsl(query, keep_blank_values=True):
        if name not in _FACTS or name in facts:
            raise LocalError(f"{text} says {name!r}; behind the ? there may be {' and '.join(_FACTS)}, each once")
        facts[name] = int(said) if said.isascii() and said.isdigit() else said
        try:
            check(ClientSettings, name, facts[name])
        except LocalError as error:
            allowed = describe_allowed(ClientSettings, name)
            raise LocalError(f"{text} says {name}={said}; it is {allowed}") from error
    return facts


def parse_key(text: str | bytes) -> PublicKey:
    """Return the 32 bytes of a public key: as they are, as 64 hexadecimal digits, or as an id52.

    Raises:
        LocalError: It is none of these.
    """
    if isinstance(text, bytes):
        if len(text) != _HEX_CHARS // 2:
            raise LocalError(f"a key has {_HEX_CHARS // 2} bytes, this has {len(text)}")
        return PublicKey(text)
    stripped = text.strip()
    try:
        return decode_key_hex(stripped) if len(stripped) == _HEX_CHARS else decode_id52(stripped)
    except LocalError as error:
        raise LocalError(
            f"a key has 64 hexadecimal digits, or 52 characters as id52; this is neither: {text}"
        ) from error
