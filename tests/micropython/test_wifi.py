"""Laws of wifi: a board whose network does not come, goes, or is of no use begins anew; hardware is imitated."""

import pytest

from tests.micropython.build import INTERPRETERS, Board, HandRelay, described
from waystation.cli.mcu.folder import MAIN, Relay
from waystation.server.home import Home
from waystation.transport.tls import authority_der

MACHINE = """
import time

fed = 0
fed_at = time.time()


class WDT:
    def __init__(self, timeout):
        print("watchdog", timeout)

    def feed(self):
        global fed, fed_at
        fed += 1
        fed_at = time.time()


def reset():
    print("reset")
    raise SystemExit(0)
"""
NETWORK = """
import time

import machine

STA_IF = 0
asked = 0


class WLAN:
    def __init__(self, interface):
        self.on = False

    def active(self, on):
        self.on = on
        print("interface", on)

    def connect(self, name, password):
        assert self.on and (name, password) == ("here", "secret")
        print("connect")

    def disconnect(self):
        print("disconnect")

    def isconnected(self):
        global asked
        asked += 1
        if time.time() - machine.fed_at > 2:
            print("starved")
            raise SystemExit(0)
        return CONNECTED
"""


@pytest.fixture(params=INTERPRETERS)
def make(request, tmp_path):
    """Makes the folder of a board with Wi-Fi; what runs is ended with the test."""
    made = []

    def board(connected, *, patches="", relays=None):
        main = "from bhumi import device, wifi\n" + patches + "\n" + MAIN
        one = Board(tmp_path / "device", request.param, relays or [Relay("tcp://127.0.0.1:1", b"")], main)
        settings = one.folder / "settings.py"
        settings.write_text(settings.read_text().replace("WIFI = None", 'WIFI = ("here", "secret")'))
        (one.folder / "machine.py").write_text(MACHINE)
        (one.folder / "network.py").write_text(NETWORK.replace("CONNECTED", connected))
        made.append(one)
        return one

    yield board
    for each in made:
        each.__exit__()


def test_network_that_comes_late(make):
    """Nothing is dialled before the network is there, and the watchdog is fed meanwhile."""
    board = make("asked > 3 and (print('fed', machine.fed) or True)").start()

    assert board.until("watchdog") == "watchdog 30000"
    assert int(board.until("fed").split()[1]) >= 3
    board.until("network connected")
    board.until("connecting to tcp://127.0.0.1:1")


def test_network_that_never_comes(make):
    """It is connected to again, then the interface is switched off and on, twice; then the board is reset."""
    board = make("False", patches="wifi._WAIT_MS = wifi._WAIT_MAX_MS = 20").start()

    board.until("reset")
    assert board.end() == 0
    assert board.lines.count("connect") == 12
    assert [line for line in board.lines if line.startswith("interface")] == [
        "interface True", *["interface False", "interface True"] * 2,
    ]  # fmt: skip
    assert not any(line.startswith("connecting") for line in board.lines)


def test_network_that_goes(make, tmp_path):
    """A network that is lost ends the connection, is connected to again, and the device listens as before."""
    home = Home(tmp_path / "node")
    home.ensure()
    relay = HandRelay(home.tls_path)
    gone = "not (60 < asked < 70)"
    patches = "device._RETRY_MS = device._RETRY_MAX_MS = device._TURN_MS = 20\nwifi._WAIT_MS = 20"
    board = make(gone, patches=patches, relays=described(relay, authority_der(home.ca_path))).start()
    relay.accept()
    relay.welcome()
    board.until("listening")

    assert "the network is gone" in board.until("disconnected")
    board.until("network lost") if "network lost" not in board.lines else None
    relay.accept()
    relay.welcome()
    board.until("listening")
    relay.close()


def test_watchdog_is_not_fed_for_ever(make):
    """When no relay has the board for too long, nothing feeds the watchdog any more."""
    patches = "given = wifi.Wifi.__init__\nwifi.Wifi.__init__ = lambda self, *words: given(self, *words, patience_s=1)"
    board = make("True", patches=patches).start()

    board.until("starved")
    assert board.end() == 0
