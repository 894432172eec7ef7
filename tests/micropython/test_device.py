"""Laws of device and tls: what a relay or a peer can do to a device, in both interpreters."""

import json
import struct
from pathlib import Path

import pytest

from tests.micropython.build import INTERPRETERS, MICROPYTHON, Asker, Board, ask, connected, delivery_of, on_board
from waystation.cli.mcu.folder import MAIN, Relay
from waystation.cli.mcu.package import device_module
from waystation.core.ids import PublicKey
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    Command,
    ContentType,
    DeviceMessage,
    encode_command,
    encode_payload,
)
from waystation.protocols.bhumi.payload.pairing import (
    PairedSuite,
)
from waystation.protocols.bhumi.payload.suites import Direction, SharedSecrets, Suite, seal_static


def test_introduction_is_signed(make, relay):
    """I_AM names the identity, is signed over the nonce, and hands over the commits of every preimage."""
    board = make()
    asker = Asker(board.folder)
    board.start()
    relay.accept()

    introduced = wire.decode_i_am(relay.welcome())

    assert introduced.identity == asker.identity
    assert verify(PublicKey(asker.identity), wire.signed_bytes(7, asker.identity), introduced.signature)
    commits = {device_module("frames").commit_of(preimage) for preimage in asker.preimages}
    assert commits < set(introduced.commits) and len(introduced.commits) == 17


def test_new_commits_come_before_the_answer(make, relay):
    """The preimage in an answer can be used when the answer arrives: its commit was sent before, and it is on disk."""
    board = make()
    asker = connected(board, relay)
    relay.say(FrameType.DELIVER, asker.delivery(5, b"hello"))

    (kind, commits), (then, ack) = relay.frame(), relay.frame()

    message_id, answer = asker.opened(ack)
    assert (kind, then, message_id) == (FrameType.UPDATE_COMMITS, FrameType.ACK, 5)
    assert commits == struct.pack(">H", 1) + device_module("frames").commit_of(answer.next_preimage)
    assert (answer.status, answer.content, answer.url) == (0, b"heard hello", relay.url)
    kept = device_module("state").State(str(board.folder / "bhumi.state"))
    assert answer.next_preimage in kept.preimages() and asker.preimage not in kept.preimages()


def test_second_delivery_gets_the_same_bytes(make, relay):
    """A request that comes again, on this connection or after a restart, is answered alike and handled once."""
    board = make()
    asker = connected(board, relay)
    delivered = asker.delivery(1, b"hello")
    relay.say(FrameType.DELIVER, delivered)
    first = relay.until(FrameType.ACK)
    relay.say(FrameType.DELIVER, struct.pack(">I", 2) + delivered[4:])
    second = relay.until(FrameType.ACK)
    board.kill()
    relay.hang_up()
    board.start()
    relay.accept()
    introduced = wire.decode_i_am(relay.welcome())
    relay.say(FrameType.DELIVER, struct.pack(">I", 3) + delivered[4:])
    third = relay.until(FrameType.ACK)

    assert first[4:] == second[4:] == third[4:]
    assert [(each.preimage, each.response) for each in introduced.responses] == [(asker.preimage, first[8:])]
    board.until("listening")
    assert sum(line.startswith("asked") for line in board.lines) == 1


RENAME_FAILS_ONCE = """
from bhumi import port

replaced = port.replace


def replace(source, target):
    port.replace = replaced
    raise OSError(5)


port.replace = replace
"""


def test_rename_that_fails(make, relay):
    """What reached the medium holds: the relay is told its commits before the answer leaves at the next try."""
    board = make(patches=RENAME_FAILS_ONCE)
    asker = connected(board, relay)
    delivered = asker.delivery(5, b"hello")
    relay.say(FrameType.DELIVER, delivered)
    board.until("trouble")

    relay.accept()
    introduced = wire.decode_i_am(relay.welcome())
    relay.say(FrameType.DELIVER, delivered)
    _, answer = asker.opened(relay.until(FrameType.ACK))

    assert device_module("frames").commit_of(answer.next_preimage) in introduced.commits
    assert sum(line.startswith("asked") for line in board.lines) == 1


KEEP_FAILS_ONCE = """
from bhumi import port

kept = port.keep


def keep(path, parts):
    port.keep = kept
    raise OSError(28)


port.keep = keep
"""


def test_answer_that_cannot_be_kept(make, relay):
    """Its request comes again over a new connection, gets the first answer, and its handler is not called again."""
    board = make(patches=KEEP_FAILS_ONCE)
    asker = connected(board, relay)
    preimage = asker.preimages[0]
    delivered = asker.delivery(5, b"hello")
    relay.say(FrameType.DELIVER, delivered)
    board.until("trouble the state cannot be kept")
    relay.accept()
    introduced = wire.decode_i_am(relay.welcome())
    relay.say(FrameType.DELIVER, delivered)
    _, answer = asker.opened(relay.until(FrameType.ACK))

    assert device_module("frames").commit_of(preimage) in introduced.commits
    assert answer.content == b"heard hello"
    assert sum(line.startswith("asked") for line in board.lines) == 1


def test_handler_that_fails(make, relay):
    """A handler that raises, returns no text or bytes, or too much, refuses with the reason; the device goes on."""
    board = make()
    asker = connected(board, relay)

    refused = [ask(relay, asker, text) for text in (b"raise", b"wrong", b"large")]

    reasons = [b"out of paper", b"it returned int, not text or bytes", b"the answer is too large"]
    assert [(answer.status, answer.content) for answer in refused] == [(1, reason) for reason in reasons]
    assert ask(relay, asker, b"bytes").content == b"\xff"
    board.until("answered bob: bytes")
    assert "trouble the handler failed: out of paper" in board.lines
    assert any('main.py", line' in line for line in board.lines), "the traceback names the line"
    assert "RuntimeError: out of paper" in board.lines


def test_commands(make, relay):
    """Commands are answered in JSON; the spares command gives at most eight preimages, registered before."""
    board = make()
    asker = connected(board, relay)
    led = ask(relay, asker, encode_command(Command("led", {"on": 1})), ContentType.COMMAND)
    relay.say(
        FrameType.DELIVER, asker.delivery(2, encode_command(Command("spares", {"n": 1_000})), ContentType.COMMAND)
    )

    commits = relay.until(FrameType.UPDATE_COMMITS)

    _, spares = asker.opened(relay.until(FrameType.ACK))
    assert json.loads(led.content) == {"ok": True, "data": {"did": "led"}}
    given = [bytes.fromhex(each) for each in json.loads(spares.content)["data"]["spares"]]
    commit_of = device_module("frames").commit_of
    assert len(given) == 8 and struct.unpack(">H", commits[:2]) == (9,)
    assert commits[2:] == b"".join(commit_of(each) for each in (spares.next_preimage, *given))


def test_unknown_preimage(make, relay):
    """A preimage that was never given out gets an empty answer, and does not reach the handler."""
    board = make()
    asker = connected(board, relay)
    relay.say(FrameType.DELIVER, delivery_of(1, bytes(32), asker.sealed(b"hello")))

    assert relay.until(FrameType.ACK) == struct.pack(">II", 1, 0)
    board.until("trouble a request came with a preimage")
    assert not any(line.startswith("asked") for line in board.lines)


def test_request_that_is_too_large(make, relay):
    """More than the device takes is refused without being held; the peer keeps its right, the connection stands."""
    board = make()
    asker = connected(board, relay)

    refused = ask(relay, asker, bytes(60_000), ContentType.BINARY)

    assert refused.status == 1 and b"too large" in refused.content
    assert ask(relay, asker, b"hello").content == b"heard hello"


def test_request_that_makes_no_sense(make, relay):
    """What does not open, or is in a weaker suite, spends nothing: no answer, no handler, and the commit again."""
    board = make()
    asker = connected(board, relay)
    preimage = asker.preimages[0]
    sealed = asker.sealed(b"hello")
    asker.preimages.insert(0, preimage)
    commit = device_module("frames").commit_of(preimage)
    weak = seal_static(
        Suite.AES_CTR, SharedSecrets(asker.key_pair).with_peer(asker.identity), Direction.REQUEST, preimage,
        encode_payload(DeviceMessage(ContentType.TEXT, b"weak")), asker.rng,
    )  # fmt: skip
    for bent in (sealed[:-1] + bytes((sealed[-1] ^ 1,)), sealed[:20], b"", weak, bytes(60_000)):
        relay.say(FrameType.DELIVER, delivery_of(1, preimage, bent))
        assert relay.until(FrameType.ACK) == struct.pack(">II", 1, 0)
        assert relay.until(FrameType.UPDATE_COMMITS) == struct.pack(">H", 1) + commit
    assert ask(relay, asker, b"hello").content == b"heard hello"
    board.until("answered")
    assert sum(line.startswith("asked") for line in board.lines) == 1


def test_commit_is_not_registered_for_ever(make, relay):
    """A relay that uses up a commit by nonsense gets it again sixteen times on a connection, and then no more."""
    board = make()
    asker = connected(board, relay)
    for number in range(17):
        relay.say(FrameType.DELIVER, delivery_of(number, asker.preimages[0], bytes(60)))
        assert relay.until(FrameType.ACK) == struct.pack(">II", number, 0)
        if number < 16:
            relay.until(FrameType.UPDATE_COMMITS)
    relay.say(FrameType.KEEPALIVE)
    asked = ask(relay, asker, b"hello")

    assert asked.content == b"heard hello"


def test_large_request_spends_nothing(make, relay):
    """What is refused unread leaves its preimage good, however often a relay repeats or forges it."""
    board = make()
    asker = connected(board, relay)
    first = asker.preimages[0]
    given = set()
    for number in range(20):
        asker.preimages.insert(0, first)
        relay.say(FrameType.DELIVER, asker.delivery(number, bytes(5_000), ContentType.BINARY))
        given.add(asker.opened(relay.until(FrameType.ACK))[1].next_preimage)
        assert asker.preimages.pop() in given

    asker.preimages.insert(0, first)
    assert len(given) == 1
    assert ask(relay, asker, b"hello").content == b"heard hello"


def test_seed_layout(make, relay):
    """At a relay that leaves the preimage out, the request is found by its hint."""
    board = make()
    asker = connected(board, relay, features=0)
    sealed = asker.sealed(b"hello")
    relay.say(FrameType.DELIVER, struct.pack(">II", 1, len(sealed)) + sealed)

    assert asker.opened(relay.until(FrameType.ACK))[1].content == b"heard hello"


def test_suite_1(make, relay):
    """The answer is in the suite of the request: 3 or 4 for who is paired, 1 or 2 for who was paired before."""
    board = make()
    asker = connected(board, relay)
    asker.suite = PairedSuite.CHACHA
    old = Asker(board.folder, Suite.AES_CTR, number=9)
    board.kill()
    assert board.folder.exists()
    board.start()
    relay.accept()
    relay.welcome()

    assert ask(relay, asker, b"hello").content == b"heard hello"
    assert ask(relay, old, b"hello").content == b"heard hello"
    old.suite = Suite.CHACHA
    assert ask(relay, old, b"again").content == b"heard again"


def test_proof_for_a_relay_that_demands_it(make, relay):
    """Asked for the proof of being at this relay, the device signs the relay's key and challenge, behind I_AM."""
    board = make().start()
    relay.accept()
    relay.say(FrameType.HELLO, struct.pack(">BII", 1, 7, 65_536))
    (_, wanted) = struct.unpack(">HI", relay.until(FrameType.OPTIONS))
    relay.say(FrameType.OPTIONS, struct.pack(">HI", 1, wanted))
    relay.say(FrameType.BIND, bytes(range(64)))
    identity = relay.until(FrameType.I_AM)[:32]

    proof = relay.until(FrameType.BIND)

    assert verify(PublicKey(identity), b"bhumi-bind/1" + bytes(range(64)) + identity, proof)
    relay.say(FrameType.KEEPALIVE)
    relay.say(FrameType.KEEPALIVE)
    relay.say(FrameType.I_AM_OK, struct.pack(">HH", 1, 0))
    board.until("listening")


def test_relay_with_another_key(make, relay):
    """A relay whose key is known must name it; one that names another key gets no signature."""
    board = make(options="relay_ids={settings.RELAYS[0][0]: bytes(32)}").start()
    relay.accept()
    relay.say(FrameType.HELLO, struct.pack(">BII", 1, 7, 65_536))
    relay.until(FrameType.OPTIONS)
    relay.say(FrameType.OPTIONS, struct.pack(">HI", 1, 53))
    relay.say(FrameType.BIND, bytes(range(64)))

    assert "has another key than the one that is known" in board.until("disconnected")


def test_set_of_commits_is_swept(make, relay):
    """Before the relay's room for commits ends, a second I_AM replaces the set by what is valid."""
    board = make(patches="device._COMMITS_MAX = 18")
    asker = connected(board, relay)
    for number in (1, 2):
        relay.say(FrameType.DELIVER, asker.delivery(number, b"hello"))
        introduced = relay.until(FrameType.I_AM if number == 2 else FrameType.UPDATE_COMMITS)
        asker.opened(relay.until(FrameType.ACK))

    commits = wire.decode_i_am(introduced).commits
    assert len(commits) == 17 and device_module("frames").commit_of(asker.preimages[-1]) in commits


def test_presence(make, relay, home):
    """Where it was asked for and granted, presence is asserted with the owner's signature for ten minutes."""
    relay_id = bytes(range(32))
    board = make(options="relay_ids={settings.RELAYS[0][0]: bytes(range(32))}")
    asker = connected(board, relay, features=5)

    record = relay.until(FrameType.PRESENCE)

    digest = device_module("frames").sha256(b"bhumi-presence/1" + record[:76]).digest()
    assert record[:64] == asker.identity + relay_id and struct.unpack(">I", record[72:76]) == (600,)
    assert verify(PublicKey(asker.identity), digest, record[76:])


def test_next_presence_is_later(make, relay):
    """What is said last is what counts, at whatever relay and within whatever second it is said."""
    options = "relay_ids={settings.RELAYS[0][0]: bytes(range(32))}"
    board = make(options=options, patches="device.unix_s = lambda: 1800000000").start()
    dates = []
    for _ in range(2):
        relay.accept()
        relay.welcome(features=5)
        dates += struct.unpack(">Q", relay.until(FrameType.PRESENCE)[64:72])
        relay.hang_up()
        board.until("disconnected")

    assert dates == [1800000000, 1800000001]


def test_native_signer(tmp_path):
    """A native signer is used instead of the arithmetic, until it is taken out."""
    keys = device_module("keys")
    seed = bytes(32)
    keys.use_native(lambda given, message: given + message)
    native = keys.sign(seed, bytes(32), b"message")
    keys.use_native(None)

    assert native == seed + b"message"
    assert len(keys.sign(seed, keys.public_of(seed), b"message")) == 64


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_curves_feed_the_watchdog(interpreter, tmp_path):
    """Long arithmetic calls the watchdog several times."""
    fed = []
    device_module("ed25519").sign(bytes(32), bytes(32), b"", lambda: fed.append(1))
    signing = len(fed)
    device_module("x25519").agree(bytes(32), b"\x09" + bytes(31), lambda: fed.append(1))

    assert signing >= 8 and len(fed) - signing >= 8
    assert on_board(interpreter, tmp_path, [("names", "id52", bytes(32))]) == ["0" * 52]


def test_interpreters():
    """The names under which the tests run are those of the two interpreters."""
    assert INTERPRETERS[0] == "cpython" and set(INTERPRETERS[1:]) <= {MICROPYTHON}


RELAYS_OF_PEOPLE = {
    "tls://a:1": ["tls", "a", 1],
    "tcp://127.0.0.1:2": ["tcp", "127.0.0.1", 2],
    "localhost:3": ["tls", "localhost", 3],
    "tls://localhost": ["tls", "localhost", 8443],
    "localhost": ["tls", "localhost", 8443],
    "tls://[::1]:4": ["tls", "::1", 4],
    "tls://[::1]": ["tls", "::1", 8443],
}
NO_RELAYS = (
    "",
    "8443",
    "tls://8443",
    "tls://8443:8443",
    "tls://",
    "tls://:1",
    "tls://a:b",
    "tls://a:0",
    "tls://a:65536",
)
NO_RELAYS += ("http://a:1", "tls://::1:1", "tls://a/b:1", "tls://a b:1", "tls://[a]:1")


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_addresses_of_relays(interpreter, tmp_path):
    """Scheme and port may be left out, a host may not; digits alone are none."""
    texts = [*RELAYS_OF_PEOPLE, *NO_RELAYS]
    found = on_board(interpreter, tmp_path, [("names", "split_relay", text) for text in texts])
    whole = on_board(interpreter, tmp_path, [("names", "join_relay", "tls", host, 1) for host in ("a", "::1")])

    assert found == [*RELAYS_OF_PEOPLE.values(), *["ValueError"] * len(NO_RELAYS)]
    assert whole == ["tls://a:1", "tls://[::1]:1"]


@pytest.mark.micropython
def test_deep_sleep_as_documented(tmp_path):
    """The example of docs/micropython.md stops listening after a while without anything, and sleeps."""
    text = (Path(__file__).parents[2] / "docs" / "micropython.md").read_text()
    example = text.partition("### Deep sleep")[2].partition("```python\n")[2].partition("```")[0]
    main = MAIN.partition("try:\n")[0] + example.replace("10_000", "300")
    board = Board(tmp_path / "device", MICROPYTHON, [Relay("tcp://127.0.0.1:1", b"")], main)
    (board.folder / "machine.py").write_text("def deepsleep(duration_ms):\n    print('sleeps', duration_ms)\n")

    with board:
        board.until("connecting to")
        assert board.until("sleeps") == "sleeps 600000"
        assert board.end() == 0
