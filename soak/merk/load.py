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

    async def open(self, node: ServedNode) -> None:
        """Open both."""
        url = node.address_of("merk")
        self._clients: list[MerkClient] = []
        for name in ("one", "other"):
            client = await self._stack.enter_async_context(
                waystation.merk.open(self.folder / name, url, only=True, on_event=self._on_event)
            )
            self._clients.append(client)
            self.receive(self._read(client))

    async def send(self, serial: str) -> Sent[Any]:
        """Write from the one whose turn it is to the other."""
        self._clients.reverse()
        sender, recipient = self._clients
        return await sender.send(recipient.public_key, serial)

    async def _read(self, client: MerkClient) -> None:
        async for message in client.messages():
            self._ledger.arrive(message.text or "")

    def _on_event(self, event: object) -> None:
        if isinstance(event, Disconnected):
            self._ledger.disconnect(self.protocol)
