"""A Strata writer and a reader that follows."""

from contextlib import closing
from pathlib import Path
from typing import Any

import waystation
from soak.ledger import Claim
from soak.load import Load
from soak.strata.nodes import stored_rows
from tools.served import ServedNode
from waystation.sdk.outcome import Sent
from waystation.sdk.strata import Disconnected, Filters, ManyRelays, Outcome
from waystation.store.sqlite import SqliteStore

__all__ = ["StrataLoad"]


class StrataLoad(Load):
    """Packets of one author; the relay's OK is the acknowledgement."""

    protocol = "strata"
    disconnects = (Disconnected,)

    async def open(self, node: ServedNode) -> None:
        """Open both."""
        url = node.address_of("strata")
        self._serials: dict[bytes, str] = {}
        self._writer: ManyRelays = await self.enter(
            waystation.strata.open(
                self.folder / "writer", url, only=True, on_event=lambda event: self.on_event(event.event)
            )
        )
        self._reader: ManyRelays = await self.enter(waystation.strata.open(self.folder / "reader", url, only=True))
        self.receive(self._read())

    async def send(self, serial: str) -> Sent[Any]:
        """Publish a packet."""
        sent = await self._writer.send({"type": "POST", "text": serial})
        self._serials[sent.packet.packet_id] = serial
        return sent

    def kept_at_node(self, store: Path) -> set[str]:
        """Return the serials of the stored packets."""
        with closing(SqliteStore(store)) as opened:
            return {self._serials[row.packet_id] for row in stored_rows(opened) if row.packet_id in self._serials}

    def claim_of(self, sent: Sent[Any]) -> Claim:
        """Return what an outcome says; a packet may always be sent again, even one that is stored."""
        return Claim.UNKNOWN if sent.outcome is Outcome.UNKNOWN else super().claim_of(sent)

    def word_of(self, sent: Sent[Any]) -> str:
        """Return the code of a refusal."""
        return str(getattr(sent.failure, "code", sent.outcome.value))

    async def _read(self) -> None:
        filters = Filters(authors=(self._writer.public_key.did,), types=("POST",))
        async for delivery in self._reader.messages(filters, keep_trying=True):
            self._ledger.arrive(delivery.packet.body["content"]["text"])
