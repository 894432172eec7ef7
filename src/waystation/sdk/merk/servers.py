"""The list of relays that a MERK client knows: those of its user first, then those that relays sent, at most 64.

``MerkRelays`` tries them in order, ``waystation merk servers`` edits them. Addresses from relays are unverified. They
are tried last and never replace an address of the user. A relay that has proved its key is pinned to its address; one
that another relay named is pinned from the start to the key that was named with it.

Spec: specs/merk.md 4, 8.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.protocols.merk.client.addresses import check_address, may_learn
from waystation.protocols.merk.messages import ServerEntry
from waystation.sdk.private_table import PrivateTable

__all__ = ["SERVERS_FILE", "SERVERS_MAX", "Server", "Servers"]

SERVERS_FILE: Final = "merk_servers.json"
SERVERS_MAX: Final = 64  # specs/merk.md 8


class Server(NamedTuple):
    """A relay of the list."""

    address: str
    """WebSocket URL."""
    added: bool
    """Whether the user added it; else another relay sent it."""
    key: bytes | None
    """The key that it must prove, 32 bytes: that of its first use, or the one another relay named with it."""


class Servers(PrivateTable):
    """The list of one identity; a change raises HostError as ``PrivateTable``."""

    def __init__(self, path: Path | None = None) -> None:
        """Keep it in the file ``path``, made at the first change; None keeps it in memory."""
        self._servers: dict[str, Server] = {}
        self._selected: str | None = None
        super().__init__(path, "a list of servers")

    @property
    def selected(self) -> str | None:
        """The address that is tried first, if the user has chosen one."""
        return self._selected

    def in_order(self) -> list[Server]:
        """Return all of them in the order in which they are tried."""
        self._refresh()
        return sorted(self._servers.values(), key=lambda each: (each.address != self._selected, not each.added))

    def get(self, address: str) -> Server | None:
        """Return what is known about an address."""
        return self._servers.get(address)

    def add(self, address: str) -> Server:
        """Put an address among those of the user; a learnt one gives way when the list is full.

        Raises:
            LocalError: It is no WebSocket address, or the user has added ``SERVERS_MAX``.
            HostError: The file cannot be written.
        """
        check_address(address)
        self._change(lambda: self._put(address))
        return self._servers[address]

    def remove(self, address: str) -> None:
        """Forget an address and the key pinned to it; raises LocalError when it is not in the list."""
        self._change(lambda: self._drop(address))

    def select(self, address: str) -> None:
        """Try this address first from now on; it is added if need be."""
        check_address(address)
        self._change(lambda: self._select(address))

    def learn(self, entries: Iterable[ServerEntry], *, learnt_from: str) -> list[str]:
        """Take what a relay sent, as far as there is room, and return the addresses that were new.

        Args:
            entries: Untrusted keys and texts.
            learnt_from: Address of the relay.
        """
        if len(self._servers) >= SERVERS_MAX:
            return []
        unknown = {each.address: each.key for each in entries if each.address not in self._servers}
        usable = {address: key for address, key in unknown.items() if may_learn(address, learnt_from)}
        if not usable:  # a relay that says the same again and again costs no file access
            return []
        fresh: list[str] = []
        self._change(lambda: fresh.extend(self._take(usable)))
        return fresh

    def pin(self, address: str, key: bytes) -> None:
        """Remember the key that the relay at a listed address has proved, unless there is one already."""
        self._refresh()
        server = self._servers.get(address)
        if server is not None and server.key is None:
            self._change(lambda: self._servers.update({address: server._replace(key=key)}))

    # Changes

    def _put(self, address: str) -> None:
        known = self._servers.pop(address, None)
        if len(self._servers) >= SERVERS_MAX:
            self._make_room()
        self._servers[address] = Server(address, added=True, key=known.key if known is not None else None)

    def _drop(self, address: str) -> None:
        if self._servers.pop(address, None) is None:
            raise LocalError(f"{address} is not in the list")
        if self._selected == address:
            self._selected = None

    def _select(self, address: str) -> None:
        known = self._servers.get(address)
        if known is None:
            self._put(address)
        elif not known.added:  # what the user chooses is the user's, whoever named it
            self._servers[address] = known._replace(added=True)
        self._selected = address

    def _take(self, named: Mapping[str, bytes]) -> list[str]:
        room = max(0, SERVERS_MAX - len(self._servers))
        fresh = [address for address in named if address not in self._servers][:room]
        self._servers.update({address: Server(address, added=False, key=named[address]) for address in fresh})
        return fresh

    def _make_room(self) -> None:
        learnt = [each.address for each in self._servers.values() if not each.added and each.address != self._selected]
        if not learnt:
            raise LocalError(f"the list holds {SERVERS_MAX} servers; remove one first")
        del self._servers[learnt[-1]]

    # The file

    def _read(self, document: dict[str, Any]) -> None:
        listed = [_server_of(each) for each in document.get("servers", [])]
        selected = document.get("selected")
        self._servers = {server.address: server for server in listed}
        self._selected = selected if selected in self._servers else None

    def _document(self) -> dict[str, Any]:
        servers = [each._asdict() | {"key": each.key and each.key.hex()} for each in self._servers.values()]
        return {"selected": self._selected, "servers": servers}


def _server_of(document: Any) -> Server:
    check_address(document["address"])
    key = document["key"]
    return Server(document["address"], bool(document["added"]), None if key is None else decode_key_hex(key))
