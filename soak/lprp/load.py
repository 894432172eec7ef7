"""An LPRP tenant and a sender on its whitelist."""

from typing import Any

import waystation
from soak.load import Load
from tools.served import ServedNode
from waystation.sdk.lprp import LeaseDoubted, LprpSender, LprpTenant
from waystation.sdk.outcome import Sent

__all__ = ["LprpLoad"]


class LprpLoad(Load):
    """Mail to one tenant; "accepted" (202) is the acknowledgement."""

    protocol = "lprp"

    @property
    def settings(self) -> dict[str, object]:
        """No work is demanded."""
        return {"lprp.pow_adaptive": False, "lprp.pow_base_bits_lease": 0, "lprp.pow_base_bits_whitelist": 0}

    async def open(self, node: ServedNode) -> None:
        """Get a lease, and let the sender in."""
        place = node.address_of("lprp").partition("://")[2]
        url = f"lprp://{waystation.PublicKey(node.public_key).id52}@{place}"
        self._tenant: LprpTenant = await self._stack.enter_async_context(
            waystation.lprp.open(self.folder / "tenant", url, on_event=self._on_event)
        )
        self._sender: LprpSender = await self._stack.enter_async_context(
            waystation.lprp.open_sender(self.folder / "sender", url, works=False)
        )
        await self._tenant.allow(self._sender.public_key)
        self.receive(self._read())

    async def send(self, serial: str) -> Sent[Any]:
        """Send mail."""
        return await self._sender.send(self._tenant.public_key, serial)

    async def _read(self) -> None:
        async for message in self._tenant.messages():
            self._ledger.arrive(message.text or "")

    def _on_event(self, event: object) -> None:
        if isinstance(event, LeaseDoubted):
            self._ledger.disconnect(self.protocol)
