"""A stretch of network that can fail: it carries connections to a relay until a test cuts it, and again afterwards."""

import asyncio
import contextlib


class Stretch:
    """Forwards TCP to a port; while it is down, connections end and new ones are closed at once, or nothing passes."""

    def __init__(self, url):
        self._scheme, _, place = url.partition("://")
        self._port = int(place.rpartition(":")[2])
        self._down = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._tasks = set()
        self.url = ""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host = "localhost" if self._scheme == "tls" else "127.0.0.1"
        self.url = f"{self._scheme}://{host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self):
        """Fail from now on."""
        self._down = True
        for task in tuple(self._tasks):
            task.cancel()

    def silence(self):
        """Let nothing pass from now on and end nothing, as a radio that is out of reach; what comes waits."""
        self._passes.clear()

    def mend(self):
        """Carry again."""
        self._down = False
        self._passes.set()

    async def _carry(self, reader, writer):
        if self._down:
            writer.close()
            return
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with contextlib.closing(writer):
                there, back = await asyncio.open_connection("127.0.0.1", self._port)
                with contextlib.closing(back):
                    ways = [asyncio.create_task(self._pump(*pair)) for pair in ((reader, back), (there, writer))]
                    try:
                        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for way in ways:
                            way.cancel()
        except (OSError, asyncio.CancelledError):
            return  # what the stretch is for
        finally:
            self._tasks.discard(task)

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
            await self._passes.wait()  # the end of a connection is told no sooner than its bytes
