"""Two BSP devices that share a group with a node and meet nowhere else."""

import random
from pathlib import Path
from typing import Any

from soak.bsp.device import GROUP
from soak.bsp.nodes import kept_messages, share_table
from soak.ledger import Ledger
from soak.load import Load
from tools.served import ServedNode
from waystation.sdk.bsp import BspHome, BspPeer, PeerDown, PeerUnreachable, deps_v1_body, deps_v1_content
from waystation.sdk.outcome import Sent

__all__ = ["BspLoad"]


class BspLoad(Load):
    """Messages from each device in turn; that the node holds one is the acknowledgement."""

    protocol = "bsp"
    disconnects = (PeerDown, PeerUnreachable)

    def __init__(self, folder: Path, ledger: Ledger, rng: random.Random) -> None:
        """Make the devices' keys, which the node must know."""
        super().__init__(folder, ledger, rng)
        self._homes = [BspHome(self.folder / name) for name in ("one", "other")]
        self._authors: dict[str, BspPeer] = {}
        self._serials: dict[bytes, str] = {}

    @property
    def tables(self) -> str:
        """The group."""
        return share_table([home.key for home in self._homes])

    async def open(self, node: ServedNode) -> None:
        """Open both, and let them dial the node for ever."""
        url = node.address_of("bsp")
        self._devices: list[BspPeer] = []
        for home in self._homes:
            self._stack.callback(home.close)
            device = await self.enter(BspPeer(home, on_event=self.on_event))
            await device.join(GROUP, "soak")
            await device.share(GROUP, await device.meet(node.public_key, "node", url))
            self._devices.append(device)
            self.receive(self._read(device))

    async def send(self, serial: str) -> Sent[Any]:
        """Write on the device whose turn it is, and return once the node holds it."""
        self._devices.reverse()
        device = self._devices[0]
        self._authors[serial] = device
        sent = await device.send(GROUP, deps_v1_body((), serial.encode()))
        self._serials[sent.message.message_id] = serial
        await sent.settled()
        return sent

    def kept_at_node(self, store: Path) -> set[str]:
        """Return the serials of the messages that the node holds."""
        return {self._serials[each.message_id] for each in kept_messages(store) if each.message_id in self._serials}

    async def _read(self, device: BspPeer) -> None:
        """Note what the other device has written."""
        async for message in device.messages(GROUP):
            serial = deps_v1_content(message.body or b"").decode()
            if self._authors[serial] is not device:
                self._ledger.arrive(serial)
