"""Relays that lie, are slow, or stall."""

import asyncio

from tests.sdk.bhumi.build_open import OpenRelay
from tests.sdk.build import _Relay
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType


def sends_lie(result):
    """Return a lie about requests: the relay answers each by itself, with (status, payload); None swallows it."""

    def report(relay, peer, payload):
        answer = result(payload) if callable(result) else result
        if answer is not None:
            relay.pipes[peer].write([wire.encode(messages.SendResult(*answer))])

    return report


def _delivers_something_else(relay, peer, payload):
    """Change the last byte of what is to be delivered."""
    send = wire.decode_send(payload)
    changed = send.payload[:-1] + bytes([send.payload[-1] ^ 1])
    frame = wire.encode(messages.Send(send.recipient, send.preimage, changed))
    relay.pass_on(peer, frame)


LIES = {
    "garbage": sends_lie((0, b"\x05" * 200)),
    "nothing": sends_lie((0, b"")),
    "the request itself": sends_lie(lambda payload: (0, payload[68:])),
    "not connected": sends_lie((1, b"")),
    "bad preimage": sends_lie((2, b"")),
    "another request": _delivers_something_else,
}


class Liar(OpenRelay):
    """Registers devices as it should; what it does with requests is another matter."""

    def __init__(self, number, lie, delay_s=0.0, **settings):
        super().__init__(number, **settings)
        self._lie = lie
        self._delay_s = delay_s

    def pass_on(self, peer, data):
        """Let the honest relay have some bytes."""
        pipe = self.pipes.get(peer)
        if pipe is not None:
            super().received_by_machine(pipe, data)

    def received(self, pipe, data):
        before = len(self.frames)
        _Relay.received(self, pipe, data)
        requests = [payload for _, kind, payload in self.frames[before:] if kind == FrameType.SEND]
        if not requests:
            super().received_by_machine(pipe, data)
        elif self._lie is None:
            asyncio.get_running_loop().call_later(self._delay_s, self.pass_on, pipe.peer, data)
        else:
            for payload in requests:
                self._lie(self, pipe.peer, payload)


class Stalling(_Relay):
    """Accepts connections and says nothing."""
