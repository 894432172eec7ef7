"""Files that people carry between devices: what is due goes into one, and counts as sent once that is safe on its disk.

The order is: choose, write down the file's number, seal, write under another name, sync, put in place, mark as sent. So
a crash anywhere in between loses nothing: at worst a file is there whose messages go out once more.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from waystation.core.ids import PublicKey
from waystation.protocols.bsp.bundle import bundle_room
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.links import FILE_TERMS
from waystation.sdk.bsp_bundles import Bundles
from waystation.sdk.bsp_files import ExportResult, ImportResult, read_bundle_file, write_bundle_file
from waystation.sdk.bsp_home import BspHome
from waystation.sdk.bsp_lines import Lines
from waystation.sdk.link import now

__all__ = ["Courier"]


class Courier:
    """Writes and reads the files of one device."""

    def __init__(
        self, home: BspHome, device: BspDevice, lines: Lines, bundles: Bundles, clock: Callable[[], float]
    ) -> None:
        """Work for a device whose changes ``lines`` makes durable; ``clock`` is in Unix seconds."""
        self._home = home
        self._device = device
        self._lines = lines
        self._bundles = bundles
        self._clock = clock

    async def write(self, peer: PublicKey, path: Path, *, bytes_max: int, again: bool, replace: bool) -> ExportResult:
        """Write what is due for a peer; see ``BspPeer.export_file``."""
        await self._settle()  # what was added a moment ago goes with it
        draft = self._device.draft(peer, FILE_TERMS, now(), bundle_room(bytes_max), again=again)
        written = False
        try:
            if not draft.records:
                return ExportResult(None, peer, 0, 0, 0, 0, 0, complete=True)
            number, record = self._home.next_file_number(int(self._clock() * 1_000))
            self._device.keep(record)
            await self._settle()
            data = self._bundles.seal(draft, peer, number)
            await asyncio.to_thread(write_bundle_file, path, data, replace=replace)
            written = True
        finally:
            (self._device.sent if written else self._device.abandon)(draft, now())
        await self._settle()
        counts = (len(draft.bodies), len(draft.acks), len(draft.requests))
        return ExportResult(path, peer, number, len(data), *counts, complete=self._is_all_said(peer))

    async def read(self, path: Path) -> ImportResult:
        """Read a file of a peer; see ``BspPeer.import_file``."""
        data = await asyncio.to_thread(read_bundle_file, path)
        bundle = self._bundles.open(data)
        heard = await self._bundles.hear(bundle)
        return ImportResult(bundle.sender, bundle.number, len(data), *heard)

    def _is_all_said(self, peer: PublicKey) -> bool:
        """Return whether another file would hold nothing: over a faster way all goes out as if there were no file."""
        link = self._device.link_of(peer)
        terms = self._device.link_terms(link) if link is not None else None
        return (terms is not None and terms.base_ms < FILE_TERMS.base_ms) or not self._device.is_due(peer, now())

    async def _settle(self) -> None:
        self._lines.changed()
        await self._lines.durable()
