"""Laws of tls, and of a device whose relay is another one than it should be, in both interpreters."""

import contextlib
import struct

import pytest

from tests.micropython.build import HandRelay, ask, connected
from waystation.protocols.bhumi.messages import FrameType
from waystation.server.home import Home
from waystation.transport.tls import authority_der


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack(">HI", FrameType.DELIVER, 2**31),
        struct.pack(">HI", FrameType.DELIVER, 7) + bytes(7),
        struct.pack(">HI", FrameType.DELIVER, 41) + bytes(41),
        struct.pack(">HI", FrameType.SEND_RESULT, 5) + bytes(5),
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["huge", "short", "lying", "foreign", "http"],
)
def test_relay_that_talks_nonsense(make, relay, nonsense):
    """Malformed frames end the connection with a sentence, and the device comes again."""
    board = make()
    connected(board, relay)
    relay.line.sendall(nonsense)

    assert "the relay sent nonsense" in board.until("disconnected")
    relay.accept()
    relay.welcome()
    board.until("listening")


def test_relay_that_hangs_up(make, relay):
    """Lost connections, before HELLO and after, are made again."""
    board = make().start()
    for _ in range(3):
        relay.accept()
        relay.hang_up()
        board.until("disconnected")
    relay.accept()
    relay.welcome()
    board.until("listening")
    relay.hang_up()

    board.until("disconnected")


def test_relay_that_never_shakes_hands(make, relay):
    """A relay that accepts and stalls costs the time for connecting, and the watchdog is fed all along."""
    board = make(patches="tls.CONNECT_MS = 2500").start()
    relay.accept(tls=False)

    assert "did not answer within" in board.until("disconnected")
    assert int(board.until("fed").split()[1]) >= 4


def test_keepalives(make, relay):
    """A device that has nothing to say says so, again and again."""
    board = make(patches="device._KEEPALIVE_MS = 30")
    connected(board, relay)

    relay.until(FrameType.KEEPALIVE)
    relay.until(FrameType.KEEPALIVE)


def test_relay_that_becomes_silent(make, relay):
    """A relay of which nothing is heard is left."""
    board = make(patches="device._SILENCE_MS = 300")
    connected(board, relay)

    assert "has become silent" in board.until("disconnected")


def test_relay_that_does_not_greet(make, relay):
    """A listener that says nothing, or not HELLO, is left."""
    board = make(patches="device._HELLO_MS = 300\ntls.CONNECT_MS = 1500").start()
    relay.accept()

    board.until("disconnected")


def test_plain_listener(make, relay):
    """A relay without TLS is told as such."""
    board = make().start()
    relay.accept(tls=False)
    relay.say(FrameType.HELLO, struct.pack(">BII", 1, 7, 65_536))

    assert board.until("connecting") == f"connecting to {relay.url}"
    assert "is it a plain tcp:// listener?" in board.until("disconnected")
    board.until("connecting")


def test_tls_listener(make, relay):
    """A relay with TLS that is called without is told as such: it says nothing, or hangs up."""
    board = make(url=relay.url.replace("tls:", "tcp:"), patches="device._HELLO_MS = 300").start()
    relay.accept(tls=False)
    assert "does not greet; is this a TLS port?" in board.until("disconnected")
    relay.accept(tls=False)
    relay.hang_up()

    assert "is this a TLS port?" in board.until("disconnected")


def test_other_authority(make, tmp_path):
    """A certificate of another authority is refused."""
    other = Home(tmp_path / "other")
    other.ensure()
    relay = HandRelay(other.tls_path)
    board = make(url=relay.url).start()
    with contextlib.suppress(OSError):
        relay.accept()
        relay.ends()

    assert "certificate that is not trusted" in board.until("disconnected")
    relay.close()


def test_other_host(make, home):
    """A certificate that does not name the host is refused, though its authority is the right one."""
    relay = HandRelay(home.tls_path, "127.0.0.2")
    board = make(url=relay.url).start()
    with contextlib.suppress(OSError):
        relay.accept()
        relay.say(FrameType.HELLO, struct.pack(">BII", 1, 7, 65_536))
        relay.ends()

    assert "not made for this name" in board.until("disconnected")
    relay.close()


OTHER_ADDRESS_FIRST = """
class Resolver:
    def __getattr__(self, name):
        return getattr(whole, name)

    def getaddrinfo(self, host, port, *rest):
        found = whole.getaddrinfo(host, port, *rest)
        return whole.getaddrinfo("127.0.0.3", port, *rest) + found


whole, tls.socket = tls.socket, Resolver()
"""


def test_second_address_is_tried(make, relay):
    """A name with an address at which nobody listens, as localhost has one of IPv6, leads to the relay still."""
    board = make(patches=OTHER_ADDRESS_FIRST)

    connected(board, relay)


def test_nobody_listens(make, relay):
    """A relay that is not there is told as such, and tried again."""
    relay.close()
    board = make().start()

    assert "nobody listens on" in board.until("disconnected")
    board.until("disconnected")


def exchange(relay, tls_folder):
    """Have a relay show the certificate of another authority from now on."""
    relay._context.load_cert_chain(tls_folder / "cert.pem", tls_folder / "key.pem")


def refused_once(relay):
    """Take a connection whose device does not trust what it is shown."""
    with contextlib.suppress(OSError):
        relay.accept()
        relay.take(1)


@pytest.fixture
def following(tmp_path):
    """Certificates for localhost of the next authority."""
    made = Home(tmp_path / "following")
    made.ensure()
    return made


def test_board_follows_its_relay_to_the_next_authority(make, relay, following):
    """BHUMI-AUTHORITY: shown over a verified connection, kept in the file, and used when the old one fails."""
    der = authority_der(following.ca_path)
    board = make()
    connected(board, relay, features=129)
    for _ in range(2):
        relay.say(FrameType.AUTHORITY, struct.pack(">H", len(der)) + der)
    board.until("trusted the next authority")
    exchange(relay, following.tls_path)
    relay.hang_up()
    refused_once(relay)
    relay.accept()
    relay.welcome()
    board.until("listening")
    board.kill()
    relay.hang_up()
    board.start()
    relay.accept()  # what has worked is tried first, after a restart, too
    relay.welcome()

    board.until("listening")
    assert sum(line.startswith("trusted") for line in board.lines) == 1


def test_board_that_was_off_all_the_time_is_told_what_it_needs(make, relay, following):
    """Nothing it trusts vouches for the relay: only a new file helps."""
    board = make()
    connected(board, relay)
    board.kill()
    exchange(relay, following.tls_path)
    relay.hang_up()
    board.start()
    refused_once(relay)

    assert "needs the new ca.pem" in board.until("disconnected")


@pytest.mark.parametrize("features", [1, 129])
def test_authority_that_is_none_or_was_not_asked_for_is_not_kept(make, relay, features):
    """The device goes on; one that is larger than its memory is passed over."""
    board = make()
    asker = connected(board, relay, features=features)
    before = sorted(path.read_bytes() for path in board.folder.glob("relay-*.der"))
    relay.say(FrameType.AUTHORITY, struct.pack(">H", 3) + b"ham")
    relay.say(FrameType.AUTHORITY, struct.pack(">H", 4_096) + bytes(4_096))
    answer = ask(relay, asker, b"hello")
    board.until("answered bob")

    assert answer.content == b"heard hello"
    assert sorted(path.read_bytes() for path in board.folder.glob("relay-*.der")) == before
    assert any("cannot be kept" in line for line in board.lines) is (features == 129)
