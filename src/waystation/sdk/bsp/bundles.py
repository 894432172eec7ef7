"""Seals the records due for a peer into a bundle, opens received bundles, and stores their records.

``BspPeer`` (files) and its carriers call it: due records go in and sealed bytes come out, or the reverse. Records of a
received bundle are stored before it counts as received, so a carrier may forget it then.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.crypto.agreement import SECRET_BYTES
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.bundle import Bundle, bundle_room, open_bundle, seal_bundle
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.protocols.bsp.device.sync import BspDevice, Draft
from waystation.protocols.bsp.messages import Ack, Message, Record
from waystation.sdk.bsp.connections import BspConnections
from waystation.sdk.connection import now

__all__ = ["Bundles", "Received"]

_RECORDS_PER_TURN: Final = 1_000  # received before the loop may do something else; some 20 ms


class Received(NamedTuple):
    """What records brought."""

    messages_count: int
    new_count: int
    """Messages that we did not have."""
    refused_count: int
    """Messages that we do not take."""
    acks_count: int


class Bundles:
    """Seals and opens for one device."""

    def __init__(
        self,
        device: BspDevice,
        connections: BspConnections,
        key_pair: KeyPair,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        """Work for ``device``; ``rng`` gives the key of each bundle and must be a strong one."""
        self._device = device
        self._connections = connections
        self._key_pair = key_pair
        self._rng = rng
        self._now_ms = now_ms
        self._number = 0

    @contextlib.contextmanager
    def drafted(
        self, peer: PublicKey, terms: LinkTerms, bundle_bytes_max: int, *, again: bool = False
    ) -> Iterator[Draft]:
        """Give what is due for a peer: it counts as sent when the block ends, and not when the block raises.

        Args:
            peer: A known one.
            terms: Of the way to it.
            bundle_bytes_max: Most bytes of the bundle that the records go into.
            again: As for ``BspDevice.draft``.
        """
        draft = self._device.draft(peer, terms, now(), bundle_room(bundle_bytes_max), again=again)
        is_sent = False
        try:
            yield draft
            is_sent = bool(draft.records)
        finally:
            (self._device.sent if is_sent else self._device.abandon)(draft, now())
            self._connections.changed()

    def seal(self, draft: Draft, peer: PublicKey, number: int | None = None) -> bytes:
        """Return a bundle of what a draft says; None numbers it by the time of day, higher than the one before.

        Raises:
            RemoteError: The peer's key is none that anything can be sealed for.
        """
        if number is None:
            number = self._number = max(self._number + 1, self._now_ms())
        return seal_bundle(draft.records, self._key_pair, peer, number, self._rng.randbytes(SECRET_BYTES))

    def open(self, data: bytes) -> Bundle:
        """Return what a bundle says.

        Raises:
            MalformedError: It is not for us, of an unknown sender, or not what it should be.
        """
        return open_bundle(data, self._key_pair, self._device.profile, self._device.knows)

    async def receive(self, bundle: Bundle, link: int | None = None) -> Received:
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
            received = self._receive_some(bundle.sender, bundle.records[start : start + _RECORDS_PER_TURN], link)
            total = [before + count for before, count in zip(total, received, strict=True)]
            self._connections.changed()
        await self._connections.durable()
        return Received(*total)

    def _receive_some(self, sender: PublicKey, records: list[Record], link: int | None) -> Received:
        before, at = self._device.sizes()["messages"], now()
        for record in records:
            self._device.receive(sender, record, at, link)
        messages = [record for record in records if isinstance(record, Message)]
        return Received(
            len(messages),
            self._device.sizes()["messages"] - before,
            sum(not self._knows(message) for message in messages),
            sum(len(record.ids) for record in records if isinstance(record, Ack)),
        )

    def _knows(self, message: Message) -> bool:
        if not self._device.is_member(message.group_id):
            return False
        message_id = self._device.profile.message_id(message.group_id, message.timestamp, message.body)
        return self._device.vertex(message.group_id, message_id) is not None
