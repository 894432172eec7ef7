"""The list of relays that a MERK client knows: those of its user first, then those that relays sent, at most 64.

Addresses from relays are unverified. They are tried last and never replace an address of the user. A relay that has
proved its key is pinned to its address.

Spec: specs/merk.md 4, 8.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import decode_key_hex
from waystation.protocols.merk.client.addresses import check_address, may_learn
from waystation.sdk.private_file import read_private_json, write_private

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
    """The key that it proved when it was first used, 32 bytes."""


class Servers:
    """The list of one identity; every change is written at once, and what other programs wrote is read before."""

    def __init__(self, path: Path | None = None) -> None:
        """Keep it in the file ``path``, made at the first change; None keeps it in memory."""
        self._path = path
        self._servers: dict[str, Server] = {}
        self._selected: str | None = None
        self._refresh()

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
        self._refresh()
        known = self._servers.pop(address, None)
        if len(self._servers) >= SERVERS_MAX:
            self._make_room()
        server = Server(address, added=True, key=known.key if known is not None else None)
        self._servers[address] = server
        self._save()
        return server

    def remove(self, address: str) -> None:
        """Forget an address and the key pinned to it; raises LocalError when it is not in the list."""
        self._refresh()
        if self._servers.pop(address, None) is None:
            raise LocalError(f"{address} is not in the list")
        if self._selected == address:
            self._selected = None
        self._save()

    def select(self, address: str) -> None:
        """Try this address first from now on; it is added if need be."""
        self._refresh()
        if address not in self._servers:
            self.add(address)
        self._selected = address
        self._save()

    def learn(self, addresses: Iterable[str], *, learnt_from: str) -> list[str]:
        """Take what a relay sent, as far as there is room, and return what was new.

        Args:
            addresses: Untrusted texts.
            learnt_from: Address of the relay.
        """
        if len(self._servers) >= SERVERS_MAX:
            return []
        unknown = [each for each in dict.fromkeys(addresses) if each not in self._servers]
        usable = [each for each in unknown if may_learn(each, learnt_from)]
        if not usable:  # a relay that says the same again and again costs no file access
            return []
        self._refresh()
        room = max(0, SERVERS_MAX - len(self._servers))
        fresh = [address for address in usable if address not in self._servers][:room]
        self._servers.update({address: Server(address, added=False, key=None) for address in fresh})
        self._save()
        return fresh

    def pin(self, address: str, key: bytes) -> None:
        """Remember the key that the relay at a listed address has proved, unless there is one already."""
        self._refresh()
        server = self._servers.get(address)
        if server is not None and server.key is None:
            self._servers[address] = server._replace(key=key)
            self._save()

    def _make_room(self) -> None:
        learnt = [each.address for each in self._servers.values() if not each.added and each.address != self._selected]
        if not learnt:
            raise LocalError(f"the list holds {SERVERS_MAX} servers; remove one first")
        del self._servers[learnt[-1]]

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            document = read_private_json(self._path)
            listed = [_server_of(each) for each in document.get("servers", [])]
            selected = document.get("selected")
        except (KeyError, TypeError, ValueError, LocalError) as error:
            raise HostError(f"{self._path} does not hold a list of servers; fix or remove it") from error
        self._servers = {server.address: server for server in listed}
        self._selected = selected if selected in self._servers else None

    def _save(self) -> None:
        if self._path is not None:
            servers = [each._asdict() | {"key": each.key and each.key.hex()} for each in self._servers.values()]
            document = {"selected": self._selected, "servers": servers}
            write_private(self._path, json.dumps(document, indent=1) + "\n")


def _server_of(document: Any) -> Server:
    check_address(document["address"])
    key = document["key"]
    return Server(document["address"], bool(document["added"]), None if key is None else decode_key_hex(key))
