"""Bundles on both sides of one device: sealed for a peer out of what is due, and heard once they are opened."""

import asyncio
import random
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.crypto.agreement import SECRET_BYTES
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.bundle import Bundle, open_bundle, seal_bundle
from waystation.protocols.bsp.device import BspDevice, Draft
from waystation.protocols.bsp.messages import Ack, Message, Record
from waystation.sdk.bsp_lines import Lines
from waystation.sdk.link import now

__all__ = ["Bundles", "Heard"]

_RECORDS_PER_TURN: Final = 1_000  # heard before the loop may do something else; some 20 ms


class Heard(NamedTuple):
    """What records brought."""

    messages_count: int
    new_count: int
    """Messages that we did not have."""
    refused_count: int
    """Messages that we do not take."""
    acks_count: int


class Bundles:
    """Seals and opens for one device."""

    def __init__(self, device: BspDevice, lines: Lines, key_pair: KeyPair, rng: random.Random) -> None:
        """Work for ``device``; ``rng`` gives the key of each bundle and must be a strong one."""
        self._device = device
        self._lines = lines
        self._key_pair = key_pair
        self._rng = rng

    def seal(self, draft: Draft, peer: PublicKey, number: int) -> bytes:
        """Return a bundle of what a draft says.

        Raises:
            RemoteError: The peer's key is none that anything can be sealed for.
        """
        return seal_bundle(draft.records, self._key_pair, peer, number, self._rng.randbytes(SECRET_BYTES))

    def open(self, data: bytes) -> Bundle:
        """Return what a bundle says.

        Raises:
            MalformedError: It is not for us, of a stranger, or not what it should be.
        """
        return open_bundle(data, self._key_pair, self._device.profile, self._device.knows)

    async def hear(self, bundle: Bundle, link: int | None = None) -> Heard:
        """Take every record of a bundle, and return once what they say is on disk.

        Args:
            bundle: As ``open`` gave it.
            link: The way it came, if it is one that is up.

        Raises:
            HostError: The disk says no.
        """
        total = [0, 0, 0, 0]
        for start in range(0, len(bundle.records), _RECORDS_PER_TURN):
            if start:
                await asyncio.sleep(0)
            heard = self._hear_some(bundle.sender, bundle.records[start : start + _RECORDS_PER_TURN], link)
            total = [before + count for before, count in zip(total, heard, strict=True)]
            self._lines.changed()
        await self._lines.durable()
        return Heard(*total)

    def _hear_some(self, sender: PublicKey, records: list[Record], link: int | None) -> Heard:
        before, at = self._device.sizes()["messages"], now()
        for record in records:
            self._device.hear(sender, record, at, link)
        messages = [record for record in records if isinstance(record, Message)]
        return Heard(
            len(messages),
            self._device.sizes()["messages"] - before,
            sum(not self._knows(message) for message in messages),
            sum(len(record.ids) for record in records if isinstance(record, Ack)),
        )

    def _knows(self, message: Message) -> bool:
        if all(group.group_id != message.group_id for group in self._device.groups()):
            return False
        message_id = self._device.profile.message_id(message.group_id, message.timestamp, message.body)
        return self._device.vertex(message.group_id, message_id) is not None
