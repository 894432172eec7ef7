"""A Bhumi device that answers and a sender that asks it, over TLS."""

import asyncio
from typing import Any

import waystation
from soak.load import Load
from tools.served import ServedNode
from waystation.sdk.bhumi import BhumiClient, Disconnected, Listening, PeerRecord, Request
from waystation.sdk.outcome import Sent

__all__ = ["BhumiLoad"]


class BhumiLoad(Load):
    """Requests to one device; an answer is the acknowledgement."""

    protocol = "bhumi"
    # Requests to one peer run one after the other: behind 40 that waited, what was sent after a fault had its answer
    # after 28 s on a busy machine, although the first answer came after 3 s.
    under_way_max = 8
    disconnects = (Disconnected,)

    async def open(self, node: ServedNode) -> None:
        """Open both, and pair them."""
        self._listening = asyncio.Event()
        url = f"tls://{node.address_of('bhumi').partition('://')[2]}"
        tls = waystation.tls(node.home / "tls" / "ca.pem")
        device = await self.enter(waystation.bhumi.open(self.folder / "device", url, tls=tls, on_event=self.on_event))
        self._sender: BhumiClient = await self.enter(waystation.bhumi.open(self.folder / "sender", url, tls=tls))
        self.receive(device.serve(self._answer))
        await self._listening.wait()
        self._peer: PeerRecord = await self._sender.accept(device.invite("sender"), alias="device")

    async def send(self, serial: str) -> Sent[Any]:
        """Ask the device."""
        return await self._sender.send(self._peer, serial)

    async def _answer(self, request: Request) -> str:
        self._ledger.arrive(request.text)
        return "answer"

    def on_event(self, event: object) -> None:
        """Note that the device can be asked."""
        super().on_event(event)
        if isinstance(event, Listening):
            self._listening.set()
