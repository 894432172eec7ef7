"""Changes the groups and peers of a running BSP peer, and which group is shared with which peer.

``BspPeer`` inherits it; every change is written to the home's tables first and then carried out on the device, so a
restart finds it.
"""

import random
from collections.abc import Mapping
from typing import NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.records import Record
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.orders import OrderTaker
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import ClientFormat
from waystation.protocols.bsp.home.alignment import Tables
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.sdk.bsp.bundles import Bundles
from waystation.sdk.bsp.carrier import CarrierSession
from waystation.sdk.bsp.connections import BspConnections
from waystation.sdk.bsp.home import BspHome, HomePeer
from waystation.sdk.bsp.hosting import Hosting
from waystation.sdk.connection import now
from waystation.sdk.life import Client, Life

__all__ = ["Membership", "Parts"]


class Parts(NamedTuple):
    """What a running peer is made of."""

    home: BspHome
    device: BspDevice
    connections: BspConnections
    tables: Tables
    hosting: Hosting
    orders: OrderTaker
    bundles: Bundles


class Membership(Client):
    """The part of a ``BspPeer`` that changes groups, peers, and who shares what."""

    def __init__(self, formats: Mapping[str, ClientFormat], rng: random.Random) -> None:
        """Begin closed.

        Args:
            formats: What reads the messages of groups, by name.
            rng: Source of identifiers of groups.
        """
        self._formats = formats
        self._rng = rng
        self._life = Life("the BSP client")
        self._carrier_sessions: list[CarrierSession] = []
        self._parts: Parts | None = None

    @property
    def _running(self) -> "Parts":
        self._life.check()
        return self._life.part(self._parts)

    @property
    def _writing(self) -> "Parts":
        """The parts, for a change; raises HostError while the disk refuses."""
        parts = self._running
        parts.connections.check_store()
        return parts

    @property
    def home(self) -> BspHome:
        """The folder; change it through this peer's methods only while it runs."""
        return self._life.part(self._parts).home

    async def create_group(self, name: str = "", *, format: str = "opaque", descriptor: bytes = b"") -> Group:  # noqa: A002 - as in Group
        """Make a new group with a random client identifier, and become its first member.

        Raises:
            LocalError: The descriptor or name is too long, a group has the name already, or nothing reads this format.
        """
        if name and any(entry.name == name for entry in self._running.home.groups()):
            raise LocalError(f"there is a group {name!r} already: `group({name!r})` returns it")
        group = self._running.home.profile.group(self._rng.randbytes(ID_BYTES), descriptor, format)
        await self.join(group, name)
        return group

    async def join(self, group: Group, name: str | None = None) -> None:
        """Become a member of a group; once more changes its name, unless that is None. Raises as ``create_group``."""
        if group.format not in self._formats:
            raise LocalError(f"no format {group.format!r} here; known: {', '.join(sorted(self._formats))}")
        self._running.tables.check_free(group.group_id)
        if name is None:
            name = next((entry.name for entry in self._running.home.groups() if entry.group == group), "")
        await self._write([self._running.home.put_group(name, group)])

    async def leave(self, group: Group | bytes | str) -> None:
        """Forget a group with all its messages; raises LocalError when it is unknown."""
        await self._write(self._running.home.remove_group(self.group(group).group_id))

    async def meet(self, peer: bytes | str, name: str | None = None, url: str | None = None) -> PublicKey:
        """Make a peer known, or change its name and address; return its key.

        Args:
            peer: Its key.
            name: For people; None leaves it as it is.
            url: Where to dial it, from now on and for ever; "" for one that comes to us; None leaves it as it is.

        Raises:
            LocalError: One of them is not of its form.
        """
        key = PublicKey.parse(peer)
        before = next((entry for entry in self._running.home.peers() if entry.key == key), HomePeer("", key, ""))
        name, url = (old if new is None else new for old, new in ((before.name, name), (before.url, url)))
        await self._write([self._running.home.put_peer(name, key, url)])
        return key

    async def part(self, peer: bytes | str) -> None:
        """Make a peer unknown; raises LocalError when it is."""
        await self._write(self._running.home.remove_peer(self.peer(peer)))

    async def share(
        self, group: Group | bytes | str, peer: bytes | str, visibility: Visibility = Visibility.SHARED
    ) -> None:
        """Share a group with a peer, or stop (``INVISIBLE``); raises LocalError when one of them is unknown."""
        await self._write([self._running.home.put_share(self.group(group).group_id, self.peer(peer), visibility)])

    def group(self, group: Group | bytes | str) -> Group:
        """Return a group of ours; raises LocalError when there is none of this name."""
        return self._running.home.group(group if isinstance(group, str) else _id_of(group).hex()).group

    def _group_id(self, group: Group | bytes | str) -> bytes:
        return self._running.home.group(group).group.group_id if isinstance(group, str) else _id_of(group)

    def peer(self, peer: bytes | str) -> PublicKey:
        """Return the key of a known peer; raises LocalError when there is none of this name."""
        return self._running.home.peer(peer if isinstance(peer, str) else peer.hex()).key

    async def _write(self, records: list[Record]) -> None:
        """Change the tables of the home, and do what they say."""
        parts = self._writing
        for record in records:
            parts.device.keep(record)
        parts.connections.changed()
        await parts.connections.durable()
        parts.tables.align(now())
        for session in self._carrier_sessions:
            session.meet_all()
        parts.connections.changed()


def _id_of(group: Group | bytes) -> bytes:
    return group.group_id if isinstance(group, Group) else group
