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
    disconnects = (LeaseDoubted,)

    @property
    def settings(self) -> dict[str, object]:
        """No work is demanded."""
        return {"lprp.pow_adaptive": False, "lprp.pow_base_bits_lease": 0, "lprp.pow_base_bits_whitelist": 0}

    async def open(self, node: ServedNode) -> None:
        """Get a lease, and let the sender in."""
        place = node.address_of("lprp").partition("://")[2]
        url = f"lprp://{waystation.PublicKey(node.public_key).id52}@{place}"
        self._tenant: LprpTenant = await self.enter(
            waystation.lprp.open(self.folder / "tenant", url, on_event=self.on_event)
        )
        self._sender: LprpSender = await self.enter(
            waystation.lprp.open_sender(self.folder / "sender", url, works=False)
        )
        await self._tenant.allow(self._sender.public_key)
        self.receive(self.read(self._tenant.messages()))

    async def send(self, serial: str) -> Sent[Any]:
        """Send mail."""
        return await self._sender.send(self._tenant.public_key, serial)
