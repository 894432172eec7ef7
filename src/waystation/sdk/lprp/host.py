"""The address of an LPRP host, with its key: ``lprp://KEY@host:port``.

A UDP source address proves nothing, so the address includes the key. Answers count only if that key has signed them,
and packets are addressed to that key.

Non-default settings of the host follow as ``?lease_ms=3600000&byte_order=little``, because no answer of the protocol
has them. Spec: LPRP-D2, LPRP-D19.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.core.settings import check, describe_allowed
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.transport.dial import DEFAULT_UDP_PORT, RelayUrl

__all__ = ["SCHEME", "HostUrl"]

SCHEME: Final = "lprp"
_SCHEMES: Final = (SCHEME, "udp")
_FACTS: Final = ("lease_ms", "byte_order")
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
        key = PublicKey.parse(parts.username)
        return cls(key, parts.hostname, port or DEFAULT_UDP_PORT, **_facts(text, parts.query))

    def settings(self, others: ClientSettings) -> ClientSettings:
        """Return settings that suit this host: what its address says, and ``others`` for the rest."""
        return dataclasses.replace(others, **self._said())

    @property
    def address(self) -> RelayUrl:
        """Where datagrams go."""
        return RelayUrl("udp", self.host, self.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(f"{name}={value}" for name, value in self._said().items())
        return f"{SCHEME}://{encode_id52(self.key)}@{host}:{self.port}{'?' if query else ''}{query}"

    def _said(self) -> dict[str, Any]:
        return {name: value for name in _FACTS if (value := getattr(self, name)) is not None}


def _facts(text: str, query: str) -> dict[str, Any]:
    """Return what an address says after the question mark."""
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
