"""Laws of aio: the same device for asyncio, in both interpreters."""

import struct

import pytest

from tests.micropython.build import INTERPRETERS, Asker, Board, described
from waystation.protocols.bhumi.messages import FrameType
from waystation.transport.tls import authority_der

MAIN = """
import asyncio
import sys

import settings
from bhumi import aio, device
from bhumi.state import State

device._RETRY_MS = device._RETRY_MAX_MS = 20
free, there = asyncio.Event(), asyncio.Event()


def told(kind, text):
    print(kind, text)
    if kind == "listening":
        there.set()


async def answer(request):
    print("asked", request.alias, request.text)
    if request.text == "wait":
        await free.wait()
    if request.text == "free":
        free.set()
    if request.text == "fail":
        raise ValueError("out of paper")
    return "heard " + request.text


one = aio.Device(State("bhumi.state"), settings.RELAYS, answer, on_event=told)


async def main():
    running = asyncio.create_task(one.run())
    await there.wait()
    PROGRAM
    await running


asyncio.run(main())
"""


@pytest.fixture(params=INTERPRETERS)
def make(request, tmp_path, home, relay):
    """Makes a device's folder for one interpreter; what runs is ended with the test."""
    made = []

    def board(program="pass"):
        main = MAIN.replace("PROGRAM", program)
        made.append(Board(tmp_path / "device", request.param, described(relay, authority_der(home.ca_path)), main))
        return made[-1]

    yield board
    for each in made:
        each.__exit__()


def begun(board, relay, *askers):
    """Start the device."""
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")
    return askers


def acknowledged(relay, count):
    """Return so many ACKs by their message ids."""
    acks = [relay.until(FrameType.ACK) for _ in range(count)]
    return {struct.unpack(">I", ack[:4])[0]: ack for ack in acks}


def test_requests_run_side_by_side(make, relay):
    """One peer's request is answered while another's is at work; a second delivery of that waits for it."""
    board = make()
    slow, quick = begun(board, relay, Asker(board.folder), Asker(board.folder, number=9))
    delivered = slow.delivery(1, b"wait")
    relay.say(FrameType.DELIVER, delivered)
    board.until("asked bob wait")
    relay.say(FrameType.DELIVER, struct.pack(">I", 2) + delivered[4:])
    relay.say(FrameType.DELIVER, quick.delivery(3, b"free"))

    acks = acknowledged(relay, 3)

    assert quick.opened(acks[3])[1].content == b"heard free"
    assert acks[1][4:] == acks[2][4:] and slow.opened(acks[1])[1].content == b"heard wait"
    board.until("answered bob: wait")
    assert [line for line in board.lines if line.startswith("asked")] == ["asked bob wait", "asked bob free"]


def test_requests_of_one_peer_run_one_after_the_other(make, relay):
    """A second request waits for the first, two wait at most, and the next is refused with the reason."""
    board = make()
    one, other = begun(board, relay, Asker(board.folder), Asker(board.folder, number=9))
    tags = {}
    for number, text in enumerate((b"wait", b"second", b"third", b"fourth")):
        relay.say(FrameType.DELIVER, one.delivery(number, text))
        tags[number] = (one.preimage, one.tag)
    busy = relay.until(FrameType.ACK)
    assert one.opened(busy)[1].content == b"the device is busy; ask again"
    relay.say(FrameType.DELIVER, other.delivery(9, b"free"))

    acks = acknowledged(relay, 4)

    for number, text in enumerate((b"wait", b"second", b"third")):
        one.preimage, one.tag = tags[number]
        assert one.opened(acks[number])[1].content == b"heard " + text
    assert other.opened(acks[9])[1].content == b"heard free"


def test_handler_that_fails(make, relay):
    """Its reason reaches the peer, and the device goes on."""
    board = make()
    (asker,) = begun(board, relay, Asker(board.folder))
    relay.say(FrameType.DELIVER, asker.delivery(1, b"fail"))
    failed = asker.opened(relay.until(FrameType.ACK))[1]
    relay.say(FrameType.DELIVER, asker.delivery(2, b"hello"))

    assert (failed.status, failed.content) == (1, b"out of paper")
    assert asker.opened(relay.until(FrameType.ACK))[1].content == b"heard hello"


def test_answer_after_a_break(make, relay):
    """What a handler returns after its connection has ended is carried by the next one."""
    board = make()
    slow, quick = begun(board, relay, Asker(board.folder), Asker(board.folder, number=9))
    relay.say(FrameType.DELIVER, slow.delivery(1, b"wait"))
    board.until("asked bob wait")
    relay.hang_up()
    board.until("disconnected")
    relay.accept()
    relay.welcome()
    board.until("listening")
    relay.say(FrameType.DELIVER, quick.delivery(2, b"free"))
    assert quick.opened(relay.until(FrameType.ACK))[1].content == b"heard free"
    board.until("answered bob: wait")
    relay.hang_up()
    relay.accept()
    introduced = relay.welcome()

    assert slow.preimage in introduced and slow.tag not in introduced


def test_notice_is_awaited(make, relay):
    """A notice is sent while the device runs, and its outcome is waited for without holding up the loop."""
    board = make('notice = one.notify("bob", "warm")\n    print("outcome", await one.wait(notice), notice.answer)')
    (asker,) = begun(board, relay, Asker(board.folder, listens=True))
    with relay.another() as anonymous:
        send = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, asker.reply(send, b"noted"))

        assert board.until("outcome") == "outcome answered b'noted'"
