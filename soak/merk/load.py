"""Two MERK clients that write to each other."""

from typing import Any

import waystation
from soak.load import Load
from tools.served import ServedNode
from waystation.sdk.merk import Disconnected, MerkClient
from waystation.sdk.outcome import Sent

__all__ = ["MerkLoad"]


class MerkLoad(Load):
    """Messages each way in turn; "delivered" is the acknowledgement."""

    protocol = "merk"
    disconnects = (Disconnected,)

    async def open(self, node: ServedNode) -> None:
        """Open both."""
        self._clients: list[MerkClient] = []
        for name in ("one", "other"):
            opening = waystation.merk.open(
                self.folder / name, node.address_of("merk"), only=True, on_event=self.on_event
            )
            self._clients.append(await self.enter(opening))
            self.receive(self.read(self._clients[-1].messages()))

    async def send(self, serial: str) -> Sent[Any]:
        """Write from the one whose turn it is to the other."""
        self._clients.reverse()
        sender, recipient = self._clients
        return await sender.send(recipient.public_key, serial)
