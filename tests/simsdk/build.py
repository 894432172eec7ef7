"""What the tests of the SDK's simulator share: a loop that runs a story, and a protocol that notes."""

import asyncio

from waystation.simsdk.loop import VirtualLoop

DELAY_S = 0.01


def run(story, delay_s=DELAY_S):
    """Run a coroutine function on a virtual loop, and return what it returns."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: delay_s)) as runner:
        return runner.run(story())


class Noting(asyncio.Protocol):
    """Notes what comes, and when."""

    def __init__(self):
        self.transport = None
        self.got = b""
        self.at_s = []
        self.ended = None

    def connection_made(self, transport):
        self.transport = transport
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.got += data
        self.at_s.append(asyncio.get_running_loop().time())

    def connection_lost(self, exc):
        self.ended.set_result(exc)
