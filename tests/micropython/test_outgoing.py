"""Laws of outgoing: what a device tells reaches its peer's handler once, whatever relays and power do."""

import struct

import pytest

from tests.micropython.build import INTERPRETERS, Asker, Board, described
from waystation.cli.mcu.package import device_module
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import Command, ContentType, decode_command
from waystation.transport.tls import authority_der

MAIN = """
import sys
import settings
from bhumi import device, outgoing
from bhumi.state import State

PATCHES
device._RETRY_MS = device._RETRY_MAX_MS = 20
outgoing._DELAY_MS = 50
one = device.Device(State("bhumi.state"), settings.RELAYS, lambda request: "heard")
while not one.listening:
    one.step()


def show(notice):
    print("outcome", notice.outcome, notice.answer.decode(), notice.reason)


def tell(text):
    notice = one.notify("bob", text)
    last = notice.outcome
    while not notice.is_over:
        one.step()
        if notice.outcome != last:
            last = notice.outcome
            show(notice)


PROGRAM
print("done", len(one._state.notices), [len(peer.rights) for peer in one._state.peers])
while True:
    one.step()
"""


@pytest.fixture(params=INTERPRETERS)
def make(request, tmp_path, home, relay):
    """Makes a device's folder for one interpreter; what runs is ended with the test."""
    made = []

    def board(program, patches=""):
        main = MAIN.replace("PROGRAM", program).replace("PATCHES", patches)
        made.append(Board(tmp_path / "device", request.param, described(relay, authority_der(home.ca_path)), main))
        return made[-1]

    yield board
    for each in made:
        each.__exit__()


def begun(board, relay, **options):
    """Start a device whose peer listens; return the peer."""
    asker = Asker(board.folder, listens=True, **options)
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")
    return asker


def spares(relay_line, asker):
    """Answer the device's question for more permissions with none."""
    send = relay_line.until(FrameType.SEND)
    message = asker.told(send)[0]
    assert message.content_type is ContentType.COMMAND and decode_command(message.content) == Command(
        "spares", {"n": 2}
    )
    relay_line.say(FrameType.SEND_RESULT, asker.reply(send, b'{"ok":true,"data":{"spares":[]}}'))


def state_of(board):
    return device_module("state").State(str(board.folder / "bhumi.state"))


def test_notice_is_anonymous_and_kept_before_it_leaves(make, relay):
    """It leaves over a connection without I_AM; when it arrives, its bytes and its permission are in the state."""
    board = make('tell("21 degrees")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        kind, send = anonymous.frame()
        message, preimage, sealed = asker.told(send)
        (notice,) = state_of(board).notices
        anonymous.say(FrameType.SEND_RESULT, asker.reply(send, b"noted"))
        spares(anonymous, asker)

        assert board.until("outcome") == "outcome answered noted "
        assert board.until("done") == "done 0 [1]" or board.lines[-1].startswith("done")
    assert (kind, message.content, message.content_type) == (FrameType.SEND, b"21 degrees", ContentType.TEXT)
    assert (notice.right[:32], notice.body) == (preimage, sealed) and preimage == asker.granted[0]
    assert message.url == relay.url


def result(status):
    return bytes((status,)) + bytes(4)


@pytest.mark.parametrize("ending", ["hang-up", "timeout", "gone", "unreadable", "kill"])
def test_same_bytes_until_an_answer_opens(make, relay, ending):
    """After a break, 3, 4, what is no answer, or a power cut the same bytes leave under the same permission."""
    board = make('if not one._state.notices:\n    tell("alarm")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        first = anonymous.until(FrameType.SEND)
        if ending == "kill":
            board.kill()
        elif ending == "timeout":
            anonymous.say(FrameType.SEND_RESULT, result(3))
        elif ending == "gone":
            anonymous.say(FrameType.SEND_RESULT, result(4))
        elif ending == "unreadable":
            anonymous.say(FrameType.SEND_RESULT, b"\0" + struct.pack(">I", 90) + bytes(90))
            board.until("outcome uncertain")
    if ending == "kill":
        board.start()
        relay.accept()
        relay.welcome()
        board.until("listening")
    with relay.another() as anonymous:
        second = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, asker.reply(second, b"noted"))
        spares(anonymous, asker)

    assert second == first


def test_status_2_in_doubt_is_doubt(make, relay):
    """What may have arrived spends no second permission, even when the relay knows the first no more."""
    board = make('tell("alarm")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        first = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, result(3))
    sends = []
    with relay.another() as anonymous:
        for _ in range(3):
            sends.append(anonymous.until(FrameType.SEND))
            anonymous.say(FrameType.SEND_RESULT, result(2))

    assert sends == [first] * 3 and asker.told(first)
    assert [notice.body for notice in state_of(board).notices] == [first[68:]]


def test_permission_that_is_not_valid(make, relay):
    """Status 2 with nothing in doubt is asked thrice, then told; the permission goes behind the others."""
    board = make('tell("alarm")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        for _ in range(3):
            send = anonymous.until(FrameType.SEND)
            anonymous.say(FrameType.SEND_RESULT, result(2))
        assert "outcome no permission" in board.until("outcome")
        assert board.until("done") == "done 0 [1]"
    (right,) = state_of(board).peers[0].rights
    assert right[:32] == asker.granted[0] and right[32:] == send[68 + 21 : 68 + 37]


def test_peer_that_is_away(make, relay):
    """Status 1 is told as offline, and the same bytes leave later."""
    board = make('tell("alarm")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        first = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, result(1))
        assert "outcome offline" in board.until("outcome")
    with relay.another() as anonymous:
        second = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, asker.reply(second, b"noted"))
        assert "outcome answered noted" in board.until("outcome")

    assert second == first


def test_what_cannot_be_told(make, relay):
    """An unknown peer, too much, and a ninth notice are refused; a peer without permissions is told as such."""
    program = """
for peer, content in (("nobody", "x"), ("bob", "x" * 513)):
    try:
        one.notify(peer, content)
    except ValueError as error:
        print("refused", error)
peer = one._state.peers[0]
right, peer.rights = peer.rights, []
show(one.notify("bob", "x"))
peer.rights = right
kept = [one.notify("bob", "x") for _ in range(8)]
try:
    one.notify("bob", "x")
except ValueError as error:
    print("refused", error)
print("dropped", one.drop(kept[0]), len(one._state.notices))
"""
    board = make(program)
    begun(board, relay)

    assert board.until("refused") == "refused there is no peer 'nobody'"
    assert board.until("refused") == "refused 513 bytes; at most 512 can be sent"
    assert "no permission" in board.until("outcome")
    assert board.until("refused") == "refused 8 notices wait to be sent already"
    assert board.until("dropped") == "dropped True 7"


NO_ROOM_FOR_TWO = """
from bhumi import relays as places

connects = places.Relays.connect


def connect(self, *words):
    if one._link is not None:
        raise MemoryError
    return connects(self, *words)


places.Relays.connect = connect
"""


def test_listening_makes_way(make, relay):
    """Where two connections do not fit, the one that listens ends, everything is told, and it comes back."""
    board = make('tell("alarm")', patches=NO_ROOM_FOR_TWO)
    asker = begun(board, relay)
    with relay.another() as alone:
        relay.ends()
        send = alone.until(FrameType.SEND)
        alone.say(FrameType.SEND_RESULT, asker.reply(send, b"noted"))
        spares(alone, asker)
        alone.ends()
    relay.accept()
    relay.welcome()

    board.until("listening")
    assert any(line.startswith("outcome answered noted") for line in board.lines)


def test_answer_of_what_left_before(make, relay):
    """A relay that said 2 and had delivered: the old answer is known by its tag, and the new content leaves anew."""
    board = make('tell("first")\ntell("second")')
    asker = begun(board, relay)
    with relay.another() as anonymous:
        for _ in range(3):
            first = anonymous.until(FrameType.SEND)
            anonymous.say(FrameType.SEND_RESULT, result(2))
        second = anonymous.until(FrameType.SEND)
        assert second[32:64] == first[32:64] and asker.told(second)[0].content == b"second"
        anonymous.say(FrameType.SEND_RESULT, asker.reply(first, b"noted"))
        third = anonymous.until(FrameType.SEND)
        anonymous.say(FrameType.SEND_RESULT, asker.reply(third, b"noted, too"))
        assert "outcome no permission" in board.until("outcome")

        assert "outcome answered noted, too" in board.until("outcome")
    assert third[32:64] == asker.granted[1] and asker.told(third)[0].content == b"second"


NO_ROOM_ONCE = """
from bhumi import answers

keeps = answers.Answers._keep
refused = []


def keep(self, *words):
    if not refused:
        refused.append(1)
        raise MemoryError
    return keeps(self, *words)


answers.Answers._keep = keep
"""


def test_sending_makes_way_for_a_request(make, relay):
    """What has left gets its answer first; then the connection ends, and the request is answered where it came from."""
    board = make('one._handler = lambda request: print("asked") or "heard"\ntell("alarm")', patches=NO_ROOM_ONCE)
    asker = begun(board, relay)
    with relay.another() as anonymous:
        send = anonymous.until(FrameType.SEND)
        relay.say(FrameType.DELIVER, asker.delivery(1, b"warm?"))
        board.until("asked")
        anonymous.say(FrameType.SEND_RESULT, asker.reply(send, b"noted"))
        anonymous.ends()
    message_id, answer = asker.opened(relay.until(FrameType.ACK))

    assert (message_id, answer.content) == (1, b"heard")
    assert board.until("outcome") == "outcome answered noted "
    assert board.lines.count("asked") == 1
