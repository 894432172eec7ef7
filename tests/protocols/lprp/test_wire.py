"""Laws of protocols.lprp.wire."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.lprp.wire import LprpWireTarget
from fuzz.run import fuzz
from tests.protocols.lprp.build import (
    BIG,
    CODECS,
    HOST,
    KEYS,
    LENGTHS,
    LITTLE,
    NAMES,
    NEGATIVE,
    NEUTRAL_KEY,
    NOW_MS,
    OTHER_HOST,
    POSITIVE,
    SENDER,
    TENANT,
    TO_HOST,
    UNIVERSAL_SIGNATURE,
    VECTORS,
    WINDOW_MS,
    changed,
    draft,
    malleable,
    outcome_of,
    sealed,
    signed_by_hand,
    vector,
)
from waystation.crypto.signing import verify
from waystation.crypto.small_order import is_small_order
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import MalformedError, Refusal
from waystation.protocols.lprp.wire import REQUESTS, Codec, delivered_by, packet_sizes, signed_part

LITERAL = "relay_done_literal_order"
IN_OUR_ORDER = [name for name in POSITIVE if name != LITERAL]
CODEC_STAGES = {
    "length": Refusal.LENGTH,
    "command length": Refusal.COMMAND_LENGTH,
    "clock": Refusal.CLOCK,
}
"""Stages of the vectors that need nothing but the datagram and the time."""


def is_signed(packet):
    """Return whether a packet's signature holds under the key of its sender."""
    return verify(packet.sender, signed_part(packet.data), packet.signature)


# The vectors


@pytest.mark.parametrize("name", POSITIVE)
def test_vector_is_read_as_it_says(name):
    """Every field of each legal packet is where the digest says, and its signature holds."""
    entry, data = POSITIVE[name], vector(name)

    packet = BIG.read(data)

    assert packet.data == data == packet.signature + signed_part(data)
    assert len(data) == entry["length"]
    assert packet.command == int(entry.get("command", "0x102"), 16)
    assert packet.time_ms == entry.get("timestamp", packet.time_ms)
    assert packet.payload.hex() == entry.get("payload", packet.payload.hex())
    if name != LITERAL:
        assert (NAMES[packet.sender], NAMES[packet.recipient]) == (entry["from"], entry["to"])
        assert is_signed(packet)


@pytest.mark.parametrize("name", IN_OUR_ORDER)
def test_vector_is_sealed_to_the_same_bytes(name):
    """With the keys of the story each packet comes out again byte for byte."""
    packet = BIG.read(vector(name))
    signer = KEYS[NAMES[packet.sender]]

    again = BIG.seal(signer, packet.recipient, packet.command, packet.payload, packet.time_ms)

    assert again == packet


@pytest.mark.parametrize("name", [name for name in POSITIVE if "refers_to_signature_of" in POSITIVE[name]])
def test_vector_refers_to_its_predecessor(name):
    """The first 64 bytes of the payload are the signature of what it answers."""
    assert BIG.read(vector(name)).reference == vector(POSITIVE[name]["refers_to_signature_of"])[:64]


@pytest.mark.parametrize("name", POSITIVE)
def test_vector_passes_the_screen_of_a_host_if_it_is_for_one(name):
    """Requests pass at their own time; what only a host says is not heard by one."""
    packet = BIG.read(vector(name))

    found = BIG.screen(packet.data, packet.time_ms)

    assert found is (None if packet.command in TO_HOST else Refusal.WRONG_DIRECTION)


@pytest.mark.parametrize("name", NEGATIVE)
def test_illegal_vector_is_stopped_at_its_stage(name):
    """What the codec can know it stops for the reason that the vector names; the rest is left to whoever knows more."""
    entry = NEGATIVE[name]

    assert BIG.screen(bytes.fromhex(entry["packet"]), entry["now"]) is CODEC_STAGES.get(entry["stage"])


@pytest.mark.parametrize("name", [name for name in NEGATIVE if NEGATIVE[name]["stage"] == "signature"])
def test_vector_with_a_wrong_signature_fails_to_verify(name):
    """A bent signature and its other spelling are refused by the strict rule."""
    assert not is_signed(BIG.read(bytes.fromhex(NEGATIVE[name]["packet"])))


@pytest.mark.parametrize("case", VECTORS["window_edges"], ids=lambda case: case["name"])
def test_vector_on_the_edge_of_the_window_passes(case):
    """Exactly 2**19 ms off is fresh, on either side."""
    packet = BIG.read(bytes.fromhex(case["packet"]))

    assert abs(packet.time_ms - case["now"]) == VECTORS["profile"]["window_ms"]
    assert BIG.screen(packet.data, case["now"]) is None
    assert is_signed(packet)


# Form


@pytest.mark.parametrize("byte_order", CODECS)
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name)
def test_every_length_is_judged_by_the_table(command, byte_order):
    """For 0 to 520 bytes both ways of reading allow what the table of specs/lprp.md 3 allows, and nothing else."""
    codec = CODECS[byte_order]
    wrong_form = Refusal.COMMAND_LENGTH if command in TO_HOST else Refusal.WRONG_DIRECTION
    for size in range(521):
        data = draft(command, size, byte_order=byte_order)
        legal, outside = size in LENGTHS[command], not 144 <= size <= 508
        screened, read = codec.screen(data, NOW_MS), outcome_of(codec, data)

        if outside:
            assert screened is read is Refusal.LENGTH
        elif legal:
            assert screened is (None if command in TO_HOST else Refusal.WRONG_DIRECTION)
            assert (read.command, read.data, read.payload) == (command, data, data[144:])
        else:
            assert (screened, read) == (wrong_form, Refusal.COMMAND_LENGTH)


def test_sizes_and_requests_are_those_of_the_table():
    """What the codec tells others about lengths and directions is the digest's table."""
    assert {int(command): packet_sizes(command) for command in Command} == LENGTHS
    assert REQUESTS == TO_HOST


@pytest.mark.parametrize("byte_order", CODECS)
def test_unknown_command_is_refused(byte_order):
    """A code that is not in the table is no command, though all its bits but one are those of one."""
    codec = CODECS[byte_order]
    close = {int(command) ^ (1 << bit) for command in Command for bit in range(64)} - set(LENGTHS)
    for code in sorted(close | {0, 2**64 - 1}):
        data = draft(code, 208, byte_order=byte_order)

        assert codec.screen(data, NOW_MS) is outcome_of(codec, data) is Refusal.UNKNOWN_COMMAND


def test_largest_and_smallest_work_is_read():
    """S may have 0 and 300 bytes."""
    none, most = BIG.read(vector("work_S_0")), BIG.read(vector("work_S_300"))

    assert (len(none.payload), len(most.payload)) == (64, 364)
    assert BIG.screen(none.data, none.time_ms) is BIG.screen(most.data, most.time_ms) is None


@pytest.mark.parametrize("name", POSITIVE)
def test_packet_that_is_cut_is_refused_or_no_longer_signed(name):
    """At whatever byte the end is lost: the length shows it, or the signature does."""
    data = vector(name)
    for size in range(len(data)):
        found = outcome_of(BIG, data[:size])

        assert found in {Refusal.LENGTH, Refusal.COMMAND_LENGTH} or not is_signed(found)


@pytest.mark.parametrize("name", ["heartbeat", "relay_stranger", "relay_max", "whitelist_max10"])
def test_packet_with_more_behind_it_is_refused_or_no_longer_signed(name):
    """Nothing can be hung on a signed packet."""
    for more in range(1, 130):
        found = outcome_of(BIG, vector(name) + bytes(more))

        assert found in {Refusal.LENGTH, Refusal.COMMAND_LENGTH} or not is_signed(found)


@pytest.mark.parametrize("name", ["heartbeat", "relay_done"])
def test_no_bit_of_a_packet_is_free(name):
    """Whatever bit turns over, the packet has no form or its signature does not hold."""
    data = vector(name)
    for at in range(len(data)):
        found = outcome_of(BIG, changed(data, at, 1 << at % 8))

        assert isinstance(found, Refusal) or not is_signed(found)


def test_other_spelling_of_a_signature_is_another_packet():
    """S plus the group order reads well and does not verify, so a signature names one packet."""
    data = vector("relay_stranger")

    assert BIG.read(malleable(data)).signature != data[:64]
    assert not is_signed(BIG.read(malleable(data)))


# Time


@pytest.mark.parametrize("byte_order", CODECS)
@pytest.mark.parametrize("off_ms", [0, 1, -1, WINDOW_MS - 1, 1 - WINDOW_MS, WINDOW_MS, -WINDOW_MS])
def test_time_inside_the_window_is_fresh(byte_order, off_ms):
    """Up to and including 524,288 ms, before and after."""
    assert CODECS[byte_order].screen(draft(0x100, 144, NOW_MS + off_ms, byte_order), NOW_MS) is None


@pytest.mark.parametrize("byte_order", CODECS)
@pytest.mark.parametrize("time_ms", [NOW_MS + 524_289, NOW_MS - 524_289, 0, 2**63, 2**64 - 1, NOW_MS // 1_000])
def test_time_outside_the_window_is_refused(byte_order, time_ms):
    """One millisecond more is too much; so are the ends of the number and a time in seconds."""
    assert CODECS[byte_order].screen(draft(0x100, 144, time_ms, byte_order), NOW_MS) is Refusal.CLOCK


def test_window_holds_at_the_ends_of_the_clock():
    """Near zero and near 2**64 the difference is still a difference, none that wraps around."""
    assert BIG.screen(draft(0x100, 144, 0), WINDOW_MS) is None
    assert BIG.screen(draft(0x100, 144, 0), WINDOW_MS + 1) is Refusal.CLOCK
    assert BIG.screen(draft(0x100, 144, 2**64 - 1), 0) is Refusal.CLOCK
    assert BIG.screen(draft(0x100, 144, 2**64 - 1), 2**64 - 1 - WINDOW_MS) is None


def test_reading_asks_no_clock():
    """A recipient may get a packet that is days old, so only the host's screen knows a window (LPRP-D9)."""
    assert BIG.read(draft(0x102, 144, 0)).time_ms == 0


# Byte order


@pytest.mark.parametrize("name", POSITIVE)
def test_packet_in_the_other_byte_order_fails_the_clock(name):
    """Two sides that disagree hear nothing of each other (LPRP-D2)."""
    data = vector(name)

    assert LITTLE.screen(data, NOW_MS) is Refusal.CLOCK
    assert outcome_of(LITTLE, data) is Refusal.UNKNOWN_COMMAND


@pytest.mark.parametrize(("writer", "reader"), list(itertools.permutations(CODECS)))
def test_byte_orders_differ_in_time_and_command_only(writer, reader):
    """Both numbers are turned around, keys and payload stay."""
    first, second = (CODECS[order].seal(SENDER, TENANT.public, Command.RELAY, b"x", NOW_MS) for order in CODECS)

    assert first.data[64:72] == second.data[64:72][::-1]
    assert first.data[136:144] == second.data[136:144][::-1]
    assert first.data[72:136] + first.data[144:] == second.data[72:136] + second.data[144:]
    assert CODECS[writer].screen(draft(0x102, 144, NOW_MS, reader), NOW_MS) is Refusal.CLOCK


def test_byte_order_is_big_by_default():
    """The vectors are, and so is a codec that nobody told otherwise."""
    assert Codec().read(vector("heartbeat")) == Codec("big").read(vector("heartbeat"))


# Order of the checks


def test_first_reason_that_applies_is_told():
    """Length, clock, command, direction, length of the command: each hides those behind it (LPRP-ORDER)."""
    late = NOW_MS + WINDOW_MS + 1
    reasons = [
        BIG.screen(draft(0x333, 143, late), NOW_MS),
        BIG.screen(draft(0x333, 144, late), NOW_MS),
        BIG.screen(draft(0x333, 144), NOW_MS),
        BIG.screen(draft(0x202, 144), NOW_MS),
        BIG.screen(draft(0x802, 144), NOW_MS),
        BIG.screen(draft(0x802, 208), NOW_MS),
    ]

    assert reasons == [
        Refusal.LENGTH,
        Refusal.CLOCK,
        Refusal.UNKNOWN_COMMAND,
        Refusal.WRONG_DIRECTION,
        Refusal.COMMAND_LENGTH,
        None,
    ]


@pytest.mark.parametrize("byte_order", CODECS)
def test_random_bytes_are_refused_without_an_error(byte_order):
    """10,000 datagrams of 0 to 600 bytes: each is dropped for a reason (specs/lprp.md 9)."""
    rng = random.Random(19)
    reasons = {CODECS[byte_order].screen(rng.randbytes(rng.randrange(601)), NOW_MS) for _ in range(10_000)}

    assert reasons == {Refusal.LENGTH, Refusal.CLOCK}


def test_screen_looks_at_nothing_but_form_and_time():
    """Another host's key, a key of small order and a forged signature are left to later stages (specs/lprp.md 4)."""
    body = signed_part(signed_by_hand(TENANT, NEUTRAL_KEY, HOST.public, 0x102, b"", NOW_MS))
    forged = UNIVERSAL_SIGNATURE + body

    assert BIG.screen(sealed(TENANT, OTHER_HOST, Command.HEARTBEAT).data, NOW_MS) is None
    assert BIG.screen(forged, NOW_MS) is None
    assert is_small_order(BIG.read(forged).sender)
    assert not is_signed(BIG.read(forged))


# Sealing


@given(
    st.sampled_from(list(Command)),
    st.sampled_from(list(CODECS)),
    st.integers(0, 2**64 - 1),
    st.data(),
)
def test_sealed_packet_is_read_as_it_was_meant(command, byte_order, time_ms, data):
    """What is sealed reads to itself in the same order, holds its signature and keeps the table."""
    codec = CODECS[byte_order]
    size = data.draw(st.sampled_from(sorted(LENGTHS[command]))) - 144
    payload = data.draw(st.binary(min_size=size, max_size=size))

    packet = codec.seal(SENDER, HOST.public, command, payload, time_ms)

    assert codec.read(packet.data) == packet
    assert packet[2:] == (time_ms, SENDER.public, HOST.public, command, payload)
    assert is_signed(packet)


def test_sealing_is_repeatable():
    """The same words at the same time are the same bytes, as Ed25519 promises."""
    assert sealed(SENDER, TENANT, Command.RELAY, b"a") == sealed(SENDER, TENANT, Command.RELAY, b"a")
    assert sealed(SENDER, TENANT, Command.RELAY, b"a").signature != sealed(SENDER, TENANT, Command.RELAY).signature


@pytest.mark.parametrize("command", Command, ids=lambda command: command.name)
def test_packet_of_illegal_length_is_not_sealed(command):
    """What no host would take is a mistake of the caller."""
    too_long = bytes(max(LENGTHS[command]) - 144 + 1)

    with pytest.raises(AssertionError):
        sealed(TENANT, HOST, command, too_long)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_packet_to_no_key_is_not_sealed(size):
    """A recipient has 32 bytes."""
    with pytest.raises(AssertionError):
        BIG.seal(TENANT, bytes(size), Command.HEARTBEAT, b"", NOW_MS)


# 802


def test_delivery_is_sealed_with_the_signer_in_front():
    """Our 802 names the tenant as its sender, so that a packet is always its sender's (LPRP-D16)."""
    packet = sealed(TENANT, HOST, Command.DELIVERED, vector("relay_stranger")[:64], 1_760_000_002_300)

    assert packet.data == vector("relay_done")
    assert (packet.sender, packet.recipient) == (TENANT.public, HOST.public)


@pytest.mark.parametrize("name", ["relay_done", LITERAL])
def test_delivery_in_either_order_is_the_tenants(name):
    """With the host's key in front, as the text lays it out, the tenant behind it has signed all the same."""
    packet = BIG.read(vector(name))

    assert delivered_by(packet, HOST.public) == TENANT.public
    assert verify(TENANT.public, signed_part(packet.data), packet.signature)


def test_delivery_in_the_literal_order_comes_out_again():
    """The vector is what the text describes, put together by hand."""
    packet = BIG.read(vector(LITERAL))

    assert packet.data == signed_by_hand(
        TENANT, HOST.public, TENANT.public, 0x802, vector("relay_stranger")[:64], packet.time_ms
    )


def test_delivery_to_another_host_is_its_senders():
    """Only this host's key in front turns the order around."""
    theirs = sealed(TENANT, OTHER_HOST, Command.DELIVERED, bytes(64))
    from_a_host = sealed(OTHER_HOST, HOST, Command.DELIVERED, bytes(64))

    assert delivered_by(theirs, HOST.public) == TENANT.public
    assert delivered_by(from_a_host, HOST.public) == OTHER_HOST.public


def test_only_a_delivery_has_two_orders():
    """To ask of another command who delivered it is a mistake."""
    with pytest.raises(AssertionError):
        delivered_by(BIG.read(vector("heartbeat")), HOST.public)


# The fuzz target


def test_fuzz_target_finds_nothing_in_its_first_inputs():
    """Bent packets are accepted or refused in a documented way, and both happen."""
    outcomes, find = fuzz(LprpWireTarget(), 1_000, seed=5)

    assert find is None
    assert {"length", "clock", "command_length", "RELAY"} <= set(outcomes)


def test_fuzz_target_sees_a_codec_that_believes_any_length():
    """The target is no ornament: a codec without the bounds of section 3 is a find."""

    class Credulous(Codec):
        def read(self, data):
            return super().read(data) if len(data) != 145 else Packet(data, b"", 0, b"", b"", Command.HEARTBEAT, b"")

    target = LprpWireTarget(Credulous())
    _, find = fuzz(target, 20_000, seed=5)

    assert find is not None
    assert len(find) == 145


def test_malformed_error_tells_what_was_wrong():
    """Its text says enough for a log line."""
    with pytest.raises(MalformedError, match=r"^command_length: DELIVERED of 209 bytes$"):
        BIG.read(draft(0x802, 209))
