"""The device for programs of asyncio: the same one, whose handler is a coroutine and whose steps wait for nothing.

    device = Device(State("bhumi.state"), RELAYS, answer)
    asyncio.run(device.run())

Handlers of different peers run side by side, at most four; one peer's requests run one after the other. The loop is
held up by the look-up of a name, by a signature (two for each connection), and by a relay that takes no more bytes.
"""

import asyncio

from . import device
from .payloads import BINARY, COMMAND, TEXT
from .port import SetupError

__all__ = ["BINARY", "COMMAND", "TEXT", "Device", "SetupError"]

_TURN_S = 0.02  # between two looks at the sockets


class Device(device.Device):
    """A ``bhumi.device.Device`` whose handler is a coroutine function; its arguments are the same."""

    async def run(self) -> None:
        """Listen and answer for ever; when cancelled, the connection ends, and handlers with it."""
        self._tasks = []
        try:
            while True:
                self.step(0)
                self._tasks = [task for task in self._tasks if not task.done()]
                await asyncio.sleep(0 if self._is_pressed() else _TURN_S)
        finally:
            for task in self._tasks:
                task.cancel()
            self.close()

    async def wait(self, notice: object, wait_ms: int = 60_000) -> str:
        """Wait until something is known of a notice while ``run`` runs elsewhere; return its outcome."""
        left = wait_ms // 20
        while notice.outcome == "waiting" and left > 0:
            left -= 1
            await asyncio.sleep(_TURN_S)
        return notice.outcome

    def _work(self, work: object) -> None:
        """Begin the work of the program; its answer leaves when that is done."""
        self._tasks.append(asyncio.create_task(self._handle(work)))

    async def _handle(self, work: object) -> None:
        given = error = None
        try:
            given = await self._handler(work.request)
        except Exception as raised:  # noqa: BLE001 - a program's own mistakes must not end the device
            error = raised
        try:
            self._carry_on(self._answers.finish(work, given, error))
        except (OSError, MemoryError) as failed:
            self._not_kept(failed)

    def _is_pressed(self) -> bool:
        """Whether something is at hand that no socket must be waited for."""
        return self._link is not None and self._link.is_ready
