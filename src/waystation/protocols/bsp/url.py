"""The address of a BSP peer, with its key: ``bsp+tls://KEY@host:port``.

Settings, commands and the SDK parse it before they dial. Certificates are self-made and prove nothing; the key
authenticates the peer. So dialling an address needs a key, in the address or given separately.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52

__all__ = ["DEFAULT_BSP_PORT", "PLAIN", "TLS", "WSS", "BspUrl"]

TLS: Final = "bsp+tls"
WSS: Final = "bsp+wss"
PLAIN: Final = "bsp+tcp"
"""Bare records without a handshake, for tests and for other implementations on the same machine."""
DEFAULT_BSP_PORT: Final = 7443  # the bsp listener, docs/configuration.md
_ALIASES: Final = {"tls": TLS, "wss": WSS}
_HTTPS_PORT: Final = 443
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_EXPECTED: Final = (
    "expected bsp+tls://KEY@host:port or bsp+wss://KEY@host:port/path, KEY as id52 or 64 hexadecimal digits"
)


@dataclass(frozen=True, slots=True)
class BspUrl:
    """One address; ``str`` gives the text back, with the key as id52."""

    scheme: str
    """``bsp+tls``, ``bsp+wss`` or ``bsp+tcp``."""
    host: str
    """Name or IP address, without brackets."""
    port: int
    path: str = ""
    """With ``bsp+wss`` what follows the port, from the slash on."""
    key: PublicKey | None = None
    """Whom we expect there; None where the text does not say."""

    @classmethod
    def parse(cls, text: str) -> "BspUrl":
        """Return the address that a text names; without a scheme it is ``bsp+tls``, without a port 7443 (wss: 443).

        ``tls://`` and ``wss://`` mean the same as with ``bsp+`` before them: so a node writes where it listens.

        Raises:
            LocalError: It is no such address; the sentence says what is expected.
        """
        full = text.strip() if "://" in text else f"{TLS}://{text.strip()}"
        try:
            parts = urlsplit(full)
            port = parts.port
        except ValueError as error:
            raise LocalError(f"not the address of a BSP peer: {text!r} ({error}); {_EXPECTED}") from error
        scheme = _ALIASES.get(parts.scheme, parts.scheme)
        path = parts.path if scheme == WSS else parts.path.strip("/")
        wrong = scheme not in (TLS, WSS, PLAIN) or not parts.hostname or (scheme != WSS and path)
        if wrong or parts.password is not None or parts.fragment or parts.query:
            raise LocalError(f"not the address of a BSP peer: {text!r}; {_EXPECTED}")
        assert parts.hostname is not None
        if scheme == PLAIN and parts.hostname not in _LOOPBACK:
            raise LocalError(f"{PLAIN} has neither secrecy nor proof, so it leads to this machine only, not {text!r}")
        default = _HTTPS_PORT if scheme == WSS else DEFAULT_BSP_PORT
        key = PublicKey.parse(parts.username) if parts.username is not None else None
        return cls(scheme, parts.hostname, default if port is None else port, path, key)

    @property
    def place(self) -> str:
        """The address without the key, as it is kept and dialled."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    def __str__(self) -> str:
        scheme, _, rest = self.place.partition("://")
        return self.place if self.key is None else f"{scheme}://{encode_id52(self.key)}@{rest}"
