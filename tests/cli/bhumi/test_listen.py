"""Laws of cli.bhumi_listen: how a listener answers, what it shows, and when it ends."""

import asyncio
import contextlib
import json
import signal

import pytest

from waystation.cli.bhumi.listen import Listener, handler_of
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.contents import Command, ContentType, encode_command
from waystation.sdk.bhumi import BhumiState, Handled, Listening, PresenceAsserted, Request

PEER = KeyPair.from_seed(bytes(32)).public


def request(content=b"hi", content_type=ContentType.TEXT):
    """Return what Bob asks."""
    return Request(PEER, "bob", content_type, content)


def answered(handler, asked):
    """Return what a handler answers."""
    return asyncio.run(handler(asked))


class Waiting:
    """A device that listens until it is cancelled; it tells these events first."""

    def __init__(self, listener, *events):
        self._listener = listener
        self._events = events
        self.was_cancelled = False

    async def run(self):
        for event in self._events:
            self._listener.show(event)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@pytest.fixture
def state(tmp_path):
    """Somebody."""
    with contextlib.closing(BhumiState(tmp_path)) as made:
        yield made


def test_answers_by_what_was_chosen():
    """An echo, a program's output, or ok."""
    assert answered(handler_of(True, None), request()) == b"hi"
    assert answered(handler_of(False, "tr a-z A-Z"), request()) == b"HI"
    assert answered(handler_of(False, None), request()) == "ok"


def test_echo_of_a_command_is_json():
    """A command comes back as what it said."""
    command = request(encode_command(Command("led", 1)), ContentType.COMMAND)

    assert json.loads(answered(handler_of(True, None), command)) == {"cmd": "led", "args": 1}


def test_program_that_fails_is_an_error():
    """Its exit code is the peer's error."""
    with pytest.raises(RuntimeError, match="false ended with exit code 1"):
        answered(handler_of(False, "false"), request())


@pytest.mark.parametrize(
    ("echo", "execute", "says"), [(True, "cat", "exclude"), (False, "", "no program"), (False, "'", "split")]
)
def test_nonsense_is_refused(echo, execute, says):
    """A choice that cannot be is one sentence."""
    with pytest.raises(LocalError, match=says):
        handler_of(echo, execute)


def test_listener_ends_after_enough_requests(state, capsys):
    """Requests go to stdout, everything else to stderr; the device is ended in good order."""
    listener = Listener(state, 2, as_json=False)
    device = Waiting(listener, Listening("tls://a:1", True), Handled(request(), True), Handled(request(b"b"), True))
    asyncio.run(listener.run(device))
    out, err = capsys.readouterr()

    assert device.was_cancelled
    assert out == "bob: hi\nbob: b\n"
    assert err.startswith("listening on tls://a:1 as ")


def test_hidden_device_says_so(state, capsys):
    """The first line tells what the choice means."""
    Listener(state, 0, as_json=False, hidden=True).show(Listening("tls://a:1", True))

    assert capsys.readouterr().err.endswith("; nobody can look this device up\n")


def test_presence_is_shown_once_a_relay(state, capsys):
    """That it was renewed is no news; that another relay knows now is."""
    listener = Listener(state, 0, as_json=True)
    for relay in ("tls://a:1", "tls://a:1", "tls://b:1", "tls://b:1"):
        listener.show(PresenceAsserted(relay, 600))
    shown = [json.loads(line)["relay"] for line in capsys.readouterr().out.splitlines()]

    assert shown == ["tls://a:1", "tls://b:1"]


@pytest.mark.parametrize(("number", "raises"), [(signal.SIGTERM, None), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_ends_the_listener(state, number, raises, monkeypatch):
    """SIGTERM ends it well, SIGINT as an interruption."""
    monkeypatch.setattr("waystation.cli.bhumi.listen._HARD_END_S", 3_600.0)
    listener = Listener(state, 0, as_json=True)

    async def scenario():
        running = asyncio.create_task(listener.run(Waiting(listener)))
        await asyncio.sleep(0)
        signal.raise_signal(number)
        await running

    with pytest.raises(raises) if raises else contextlib.nullcontext():
        asyncio.run(scenario())
