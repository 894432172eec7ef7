"""A node process that long tests share: one protocol, a fixed key, and the same port at every start."""

from pathlib import Path
from typing import Any, Final

from soak.shims.power_cut import Power, cut_when_killed
from tools.served import LISTENERS, ServedNode, free_port
from waystation.crypto.signing import KeyPair

KEY: Final = KeyPair.from_seed(b"n" * 32)


class SoakNode(ServedNode):
    """A node with nothing but one protocol."""

    def __init__(
        self,
        home: Path,
        only: str,
        *,
        key: KeyPair = KEY,
        port: int | None = None,
        tables: str = "",
        power: Power | None = None,
        **settings: Any,
    ) -> None:
        """Write key and configuration of a node.

        Args:
            home: Its folder, made if absent.
            only: The protocol.
            key: Its identity.
            port: Where it listens on this machine; a free one by default.
            tables: Configuration that is more than a setting, as TOML.
            power: Makes every kill a power cut; None keeps what was written and not synced.
            settings: Settings of the protocol's table.
        """
        self.port = port if port is not None else free_port()
        self.key = key.public
        self.url = f"{LISTENERS[only]}://127.0.0.1:{self.port}/{only}"
        self.store = home / "store.sqlite"
        """The file with everything it keeps."""
        chosen = {LISTENERS[only]: f"127.0.0.1:{self.port}"} | settings
        named = {f"{only}__{name}": value for name, value in chosen.items()}
        super().__init__(home, only, key=key, tables=tables, **named)
        if power is not None:
            cut_when_killed(self, home, power)
