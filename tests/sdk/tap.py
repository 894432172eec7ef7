"""A TCP proxy in front of a relay that keeps every byte and every frame that passes, and who said it."""

import asyncio

from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import FrameType

_LARGE = 2_000_000


class Passage:
    """One connection through a tap: what each side said."""

    def __init__(self):
        self.bytes = {"client": bytearray(), "relay": bytearray()}
        self.frames = {"client": [], "relay": []}
        """Type and payload of each frame, by who said it."""
        limits = {int(kind): _LARGE for kind in FrameType}
        self._buffers = {side: wire.FrameBuffer(limits) for side in self.bytes}

    def note(self, side, data):
        """Keep what a side said."""
        self.bytes[side] += data
        self._buffers[side].feed(data)
        while (frame := self._buffers[side].next_frame()) is not None:
            self.frames[side].append((FrameType(frame[0]), frame[1]))

    def types(self, side):
        """Return the types of the frames that a side said, in order."""
        return tuple(kind for kind, _ in self.frames[side])

    def sizes(self, side, kind):
        """Return the payload sizes of a side's frames of a type."""
        return [len(payload) for each, payload in self.frames[side] if each == kind]


class Tap:
    """Listens on a port of its own and passes everything on to ``target`` (``tcp://host:port``)."""

    def __init__(self, target=""):
        self.target = target
        self.passages = []
        self.url = ""
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader, writer):
        task = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader, writer):
        host, _, port = self.target.removeprefix("tcp://").rpartition(":")
        passage = Passage()
        self.passages.append(passage)
        try:
            there, back = await asyncio.open_connection(host, int(port))
            ways = (
                self._pass(passage, "client", reader, back, writer),
                self._pass(passage, "relay", there, writer, back),
            )
            await asyncio.gather(*ways)
        except OSError:
            pass  # the relay has gone; so does this connection
        finally:
            writer.close()

    def forward(self, _side, _frames, data, onward, _back):
        """Pass on what a side has just said; ``frames`` are those that it completed."""
        onward.write(data)

    async def _pass(self, passage, side, reader, writer, back):
        try:
            while data := await reader.read(65_536):
                known = len(passage.frames[side])
                passage.note(side, data)
                self.forward(side, passage.frames[side][known:], data, writer, back)
                await writer.drain()
        except OSError:
            pass  # the other side has gone
        finally:
            writer.close()
