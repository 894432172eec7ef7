"""BHUMI-A11 to BHUMI-A21, each against the relay that must withstand it; 1 to 10: test_abuse."""

import ast
import random
from pathlib import Path

import pytest

import waystation.protocols.bhumi as package
from tests.protocols.bhumi.build import ALICE, CAROL, KEYS, World, commit, i_am, preimage, raw, send
from waystation.core.instant import Instant
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Ack, Deliver, Keepalive, SendResult, UpdateCommits
from waystation.protocols.bhumi.refusals import Refusal


def flood_commits(world, device, frames=3):
    """Register as many commits as the frames carry, all different."""
    for frame in range(frames):
        device.say(UpdateCommits(tuple(commit(frame * 4_096 + n) for n in range(4_096))))


GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
SMALL_ORDER_KEYS = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
]
NON_CANONICAL_KEYS = [b"\xed" + b"\xff" * 30 + b"\x7f", b"\xee" + b"\xff" * 30 + b"\x7f", b"\xff" * 32]


def test_abuse_11_send_flood_with_random_preimages():
    """A flood is slowed to the bucket's rate, costs no state, and reaches no device."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    before = world.relay.sizes()
    rng = random.Random(1)
    sender.say(*(messages.Send(ALICE.public, rng.randbytes(32), b"") for _ in range(5_000)))
    burst = len(sender.statuses())
    world.pass_ms(10_000)

    assert burst == 400
    assert len(sender.statuses()) == 2_000
    assert world.relay.sizes() == before
    assert device.hear() == []


def test_abuse_11_send_flood_without_the_bucket():
    """Proof: with rate limits lifted all of them are served at once."""
    world = World(rate_limits=False)
    sender = world.connect().say(*(send(ALICE, 1) for _ in range(5_000)))

    assert len(sender.statuses()) == 5_000


def queue_flood(world):
    """Send 40 valid messages to one silent device from three senders and return what they hear."""
    device = world.device(commits=range(40))
    senders = [world.connect() for _ in range(3)]
    for number in range(40):
        senders[number // 14].say(send(ALICE, number))
    return device, senders


def test_abuse_12_delivery_queue_flood():
    """32 wait for one device; beyond, 1 at once and the commit stays, so that a later retry works."""
    world = World()
    device, senders = queue_flood(world)
    commits = world.relay.sizes()["commits"]
    delivered = len(device.heard)
    device.answer()
    statuses = [status for line in senders for status in line.statuses()]
    retry = world.connect().say(send(ALICE, 39))

    assert (delivered, commits) == (32, 8)
    assert sorted(statuses) == [0] * 32 + [1] * 8
    assert len(device.hear()) == 1
    assert retry.closed is None
    assert world.refusals() == {"recipient_queue_full": 8}


def test_abuse_12_delivery_queue_flood_without_the_bound():
    """Proof: with a larger bound all 40 pile up at the device."""
    world = World(limits=BhumiLimits(pending_per_recipient=1_000))
    device, _ = queue_flood(world)

    assert len(device.heard) == 40


def test_abuse_12_bad_preimage_in_a_full_queue_is_still_2():
    """A full queue tells nobody anything about preimages (BHUMI-C4)."""
    world = World()
    queue_flood(world)
    sender = world.connect().say(send(ALICE, 999))

    assert sender.hear() == [SendResult(2)]


def test_abuse_12_slow_reader_cannot_pile_up_deliveries():
    """What timed out while its bytes still wait for the device keeps its place in the queue."""
    world = World(ack_timeout_ms=5_000)
    device = world.device(commits=range(200))
    world.congest(device)
    for turn in range(5):
        for sender in range(2):
            first = turn * 32 + sender * 16
            world.connect().say(*(send(ALICE, number) for number in range(first, first + 16)))
        world.pass_ms(5_000)
        world.congest(device)
    piled = len(device.heard)
    world.drain(device)
    world.connect().say(send(ALICE, 199))

    assert piled == 32
    assert len(device.heard) == 33


def test_abuse_13_recipient_never_acks():
    """3 after the timeout; what stays for a late ACK is small, and gone with the cache's lifetime."""
    world = World()
    device = world.device(commits=range(16))
    sender = world.connect().say(*(send(ALICE, number, b"x" * 10_000) for number in range(16)))
    world.pass_ms(30_000)
    statuses, during = sender.statuses(), world.relay.sizes()
    for _ in range(4):
        device.say(Keepalive())
        world.pass_ms(100_000)

    assert statuses == [3] * 16
    assert (during["exchanges"], during["late_acks"]) == (0, 16)
    assert world.relay.sizes()["late_acks"] == 0
    assert device.session().pending_ids == {}


def test_abuse_14_huge_ack():
    """An ACK over the limit closes the device by its header alone, and its sender gets 4."""
    world = World(max_payload_bytes=1_000)
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    (deliver,) = device.hear()
    device.say_bytes(wire.encode(Ack(deliver.message_id, bytes(1_001)))[:6])

    assert device.closed is Refusal.OVERSIZE
    assert sender.hear() == [SendResult(4)]


def test_abuse_14_largest_ack_is_fine():
    """The limit itself is inside."""
    world = World(max_payload_bytes=1_000)
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1))
    device.answer(bytes(1_000))

    assert sender.hear() == [SendResult(0, bytes(1_000))]


def test_abuse_15_response_never_read():
    """A sender with a zero window is cut after 10 s, and its cached answer can still be asked for."""
    world = World(prompt=False)
    device = world.device(commits=[1])
    sender = world.connect().say(send(ALICE, 1))
    device.answer(b"precious")
    sender.say(send(ALICE, 1))
    world.congest(sender)
    world.pass_ms(10_000)
    retry = world.connect().say(send(ALICE, 1))

    assert (sender.closed, sender.aborted) == (Refusal.WRITE_TIMEOUT, True)
    assert retry.hear() == [SendResult(0, b"precious")]


@pytest.mark.parametrize("key", SMALL_ORDER_KEYS + NON_CANONICAL_KEYS, ids=bytes.hex)
def test_abuse_16_weak_identity(key):
    """A key for which anybody can make signatures is nobody: small order and non-canonical are refused."""
    world = World()
    for signature in (bytes(64), key + bytes(32), b"\x01" + bytes(63), key[:32] + b"\x01" + bytes(31)):
        line = world.connect().say(messages.IAm(key, signature))

        assert line.closed is Refusal.BAD_SIGNATURE
    assert world.relay.sizes()["identities"] == 0


def test_abuse_16_signature_with_a_large_scalar():
    """S at or above the group order is a second form of a valid signature, and refused."""
    world = World()
    line = world.connect()
    good = i_am(ALICE, line.nonce).signature
    scalar = int.from_bytes(good[32:], "little") + GROUP_ORDER
    line.say(messages.IAm(ALICE.public, good[:32] + scalar.to_bytes(32, "little")))

    assert line.closed is Refusal.BAD_SIGNATURE


def test_abuse_17_cache_probing():
    """Guessing finds nothing, and no fact that leaves the relay holds a preimage or an answer."""
    world = World(rate_limits=False)
    device, sender = world.device(commits=[1], responses=[(2, b"the answer")]), world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 2))
    device.answer(b"the answer")
    rng = random.Random(2)
    near = [preimage(1)[:31] + bytes([preimage(1)[31] ^ 1]), commit(1), rng.randbytes(32)]
    sender.say(*(messages.Send(ALICE.public, guess, b"") for guess in near))
    told = repr(world.facts)

    assert sender.statuses() == [0, 0, 2, 2, 2]
    for secret in (preimage(1), preimage(2), commit(1), b"the answer"):
        assert secret.hex() not in told
        assert repr(secret)[2:-1] not in told


def test_abuse_18_no_clock_in_the_room():
    """Time comes in as ``now``: no module here imports a clock, so a jump of the wall clock cannot be seen."""
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", None) or ""
            assert not {"time", "datetime", "asyncio", "threading"} & {name.split(".")[0] for name in [*names, module]}


@pytest.mark.parametrize("zero", [0, 1_000, 10**15, 2**62])
def test_abuse_18_time_jumps(zero):
    """Only differences of ``now`` count: the same story at any zero of the clock has the same effects."""
    worlds = [World(), World()]
    worlds[1].now = Instant(zero)
    told = []
    for world in worlds:
        device, sender = world.device(commits=[1, 2]), world.connect()
        sender.say(send(ALICE, 1), send(ALICE, 2))
        device.say(Ack(device.hear()[0].message_id, b"x"))
        device.say(Keepalive())
        world.pass_ms(31_000)
        sender.say(send(ALICE, 1))
        world.pass_ms(400_000)
        told.append([effect for effect in world.trace if hasattr(effect, "peer")][:-2])

    assert told[0] == told[1]


def test_abuse_19_relay_restart():
    """A new relay knows nothing: 2 if the commit is not registered again, a second delivery if it is."""
    before = World()
    device, sender = before.device(commits=[1]), before.connect()
    sender.say(send(ALICE, 1))
    device.answer(b"first time")
    after = World(seed=2)
    after.device(ALICE)
    careful = after.connect().say(send(ALICE, 1))
    careless = after.device(commits=[1])
    after.connect().say(send(ALICE, 1))

    assert careful.hear() == [SendResult(2)]
    assert len(careless.hear()) == 1


def test_abuse_19_carried_answer_closes_the_gap():
    """A device that carries its last answer over is not bothered again, even if it registers the commit again."""
    after = World()
    device = after.device(commits=[1], responses=[(1, b"first time")])
    sender = after.connect().say(send(ALICE, 1))

    assert sender.hear() == [SendResult(0, b"first time")]
    assert device.hear() == []


@pytest.mark.parametrize("frame_type", range(0x44, 0x4D))
def test_abuse_20_gossip_and_presence(frame_type):
    """This version speaks no gossip: such frames are counted, answered to nobody and passed on to nobody."""
    world = World()
    lines = [world.device(KEYS[n]) for n in range(3)] + [world.connect()]
    sent_before = sum(line.out_bytes for line in lines)
    lines[-1].say_bytes(raw(frame_type, random.Random(1).randbytes(140)) * 50)
    lines[0].say_bytes(raw(frame_type, b"\xff" * 8_000) * 10)

    assert sum(line.out_bytes for line in lines) == sent_before
    assert [line.closed for line in lines] == [None] * 4
    assert world.refusals() == {"unknown_extension": 60}
    assert world.relay.sizes()["cached_bytes"] == 0


def test_abuse_21_half_frames_between_deliveries():
    """A device that writes its ACKs byte by byte while deliveries come keeps its stream in step."""
    world = World()
    device = world.device(CAROL, commits=range(16))
    sender = world.connect()
    for number in range(16):
        sender.say(send(CAROL, number, b"%d" % number))
        (deliver,) = [message for message in device.hear() if isinstance(message, Deliver)]
        ack = wire.encode(Ack(deliver.message_id, deliver.payload)) + wire.encode(Keepalive())
        for at in range(len(ack)):
            device.say_bytes(ack[at : at + 1])
            if at == 7 and number < 15:
                world.connect().say(send(CAROL, 99))
    world.settle()

    assert [message.payload for message in sender.hear()] == [b"%d" % number for number in range(16)]
    assert device.closed is None
