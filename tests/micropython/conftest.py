"""A device in each interpreter, and a relay on which a test says every byte."""

import pytest

from tests.micropython.build import INTERPRETERS, Board, HandRelay, described
from waystation.server.home import Home
from waystation.transport.tls import authority_der

MAIN = """
import settings
from bhumi import device, tls
from bhumi.state import State

fed = 0


def feed():
    global fed
    fed += 1


def told(kind, text):
    print(kind, text)
    if kind == "disconnected":
        print("fed", fed)


def answer(request):
    print("asked", request.alias, request.content_type, len(request.content))
    if request.content_type == 2:
        return {"did": request.command()[0]}
    if request.text == "raise":
        raise RuntimeError("out of paper")
    return {"large": "x" * 2000, "wrong": 7, "bytes": b"\\xff"}.get(request.text, "heard " + request.text)


PATCHES
device._RETRY_MS = device._RETRY_MAX_MS = 20
one = device.Device(State("bhumi.state"), settings.RELAYS, answer, on_event=told, feed=feed, OPTIONS)
one._delay_ms = 10
one.run()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Certificates for localhost."""
    made = Home(tmp_path_factory.mktemp("node"))
    made.ensure()
    return made


@pytest.fixture
def relay(home):
    """A relay on which the test says every byte."""
    made = HandRelay(home.tls_path)
    yield made
    made.close()


@pytest.fixture(params=INTERPRETERS)
def make(request, tmp_path, home, relay):
    """Makes a device's folder for one interpreter; what runs is ended with the test."""
    made = []

    def board(*, patches="", options="", url=None, authority=None):
        main = MAIN.replace("PATCHES", patches).replace("OPTIONS", options)
        told = described(url or relay, authority_der(home.ca_path) if authority is None else authority)
        made.append(Board(tmp_path / "device", request.param, told, main))
        return made[-1]

    yield board
    for each in made:
        each.__exit__()
