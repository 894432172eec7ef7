import json
import random
from pathlib import Path

import pytest

from tests.protocols.bhumi import suite_reference as reference
from waystation.crypto.agreement import WeakKeyError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.suites import (
    HANDSHAKE_OVERHEAD_BYTES,
    STATIC_OVERHEAD_BYTES,
    Direction,
    SharedSecrets,
    Suite,
    open_handshake,
    open_static,
    seal_handshake,
    seal_static,
    suite_hint_of,
    suite_number_of,
)

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "bhumi_suites.json").read_text())
IDENTITIES = {name: KeyPair.from_seed(bytes.fromhex(each["seed"])) for name, each in VECTORS["identities"].items()}
ALICE, BOB = IDENTITIES["alice"], IDENTITIES["bob"]
EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
SHARED = bytes.fromhex(VECTORS["static_shared"])
PREIMAGE, OTHER = bytes([0x10]) * 32, bytes([0x13]) * 32
WEAK = [bytes(32), bytes([1]) + bytes(31), bytes([0xEC]) + bytes([0xFF]) * 30 + bytes([0x7F])]
BY_NAME = {"argvalues": VECTORS["cases"], "ids": [each["name"] for each in VECTORS["cases"]]}
both_suites = pytest.mark.parametrize("suite", list(Suite))


class Dice(random.Random):
    """Gives the bytes it was told, in their order, and then nothing."""

    def __init__(self, *drawn):
        super().__init__(0)
        self.drawn = list(drawn)

    def randbytes(self, count):
        given = self.drawn.pop(0)
        assert len(given) == count
        return given


def raw(case):
    """Return a case with its hexadecimal values as bytes."""
    names = {"suite", "form", "direction", "from", "to", "name"}
    return {key: value if key in names else bytes.fromhex(value) for key, value in case.items()}


def opened(case):
    """Open what a case of the vectors holds, as its reader would."""
    reader, writer = IDENTITIES[case["to"]], IDENTITIES[case["from"]]
    if case["form"] == "handshake":
        return open_handshake(Suite(case["suite"]), reader, case["preimage"], case["sealed"])
    shared = SharedSecrets(reader).with_peer(writer.public)
    direction = Direction(case["direction"].encode())
    return open_static(Suite(case["suite"]), shared, direction, case["preimage"], case["sealed"])


def static(suite, plaintext=b"hello", direction=Direction.REQUEST, preimage=PREIMAGE, seed=1):
    """Return an envelope between Alice and Bob."""
    return seal_static(suite, SHARED, direction, preimage, plaintext, random.Random(seed))


def open_it(suite, sealed, direction=Direction.REQUEST, preimage=PREIMAGE):
    """Open such an envelope."""
    return open_static(suite, SHARED, direction, preimage, sealed)


def hello(suite, recipient=ALICE.public):
    """Return a handshake, to Alice unless told."""
    return seal_handshake(suite, recipient, PREIMAGE, b"hello", random.Random(1))


@pytest.mark.parametrize("case", **BY_NAME)
def test_vectors_are_what_the_rfcs_say(case):
    """The second implementation, written from the RFCs, gives every value of the vectors."""
    case = raw(case)
    secret = case["ephemeral_secret"] or reference.secret_of_seed(IDENTITIES[case["from"]].seed)
    shared = reference.x25519(secret, reference.public_of_identity(IDENTITIES[case["to"]].public))
    keys = reference.keys_of(case["suite"], shared, case["direction"].encode(), case["preimage"])
    ephemeral = reference.base_public(secret) if case["form"] == "handshake" else b""
    header = reference.header_of(case["suite"], case["preimage"], ephemeral)

    assert (case["shared"], case["keys"]) == (shared, keys)
    assert (case["ephemeral_public"], case["header"]) == (ephemeral, header)
    assert case["sealed"] == reference.sealed_by(case["suite"], keys, header, case["nonce"], case["plaintext"])


@pytest.mark.parametrize("case", **BY_NAME)
def test_vectors_are_sealed_and_opened(case):
    """Our bytes are those of the vectors, and open."""
    case = raw(case)
    suite, direction = Suite(case["suite"]), Direction(case["direction"].encode())
    if case["form"] == "handshake":
        dice = Dice(case["ephemeral_secret"], case["nonce"])
        sealed = seal_handshake(suite, IDENTITIES[case["to"]].public, case["preimage"], case["plaintext"], dice)
    else:
        shared = SharedSecrets(IDENTITIES[case["from"]]).with_peer(IDENTITIES[case["to"]].public)
        sealed = seal_static(suite, shared, direction, case["preimage"], case["plaintext"], Dice(case["nonce"]))

    assert sealed == case["sealed"]
    assert opened(case) == case["plaintext"]


@pytest.mark.parametrize("case", VECTORS["refused"], ids=[each["name"] for each in VECTORS["refused"]])
def test_vectors_that_are_refused(case):
    """Nothing opens, and nothing is raised."""
    assert opened(raw(case)) is None


def test_identities_of_the_vectors():
    """The X25519 keys of the vectors are those of the second implementation, and both sides share one secret."""
    for each in VECTORS["identities"].values():
        seed, public = bytes.fromhex(each["seed"]), bytes.fromhex(each["public"])
        assert KeyPair.from_seed(seed).public == public
        assert reference.secret_of_seed(seed).hex() == each["x25519_secret"]
        assert reference.public_of_identity(public).hex() == each["x25519_public"]
    assert SharedSecrets(ALICE).with_peer(BOB.public) == SharedSecrets(BOB).with_peer(ALICE.public) == SHARED


@both_suites
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 65_000])
@pytest.mark.parametrize("direction", Direction)
def test_round_trip(suite, size, direction):
    """What was sealed opens; the envelope adds 37 bytes."""
    plaintext = random.Random(size).randbytes(size)

    sealed = static(suite, plaintext, direction)

    assert open_it(suite, sealed, direction) == plaintext
    assert len(sealed) == size + STATIC_OVERHEAD_BYTES == size + 37


@both_suites
def test_handshake_round_trip(suite):
    """A handshake opens for its recipient alone; the envelope adds 69 bytes."""
    sealed = hello(suite)

    assert open_handshake(suite, ALICE, PREIMAGE, sealed) == b"hello"
    assert open_handshake(suite, EVE, PREIMAGE, sealed) is None
    assert len(sealed) == 5 + HANDSHAKE_OVERHEAD_BYTES == 5 + 69


@both_suites
def test_every_truncation_is_noticed(suite):
    """An envelope of either form that is cut anywhere opens to nothing and raises nothing."""
    sealed, handshake = static(suite), hello(suite)

    assert not [length for length in range(len(sealed)) if open_it(suite, sealed[:length]) is not None]
    assert not [
        length
        for length in range(len(handshake))
        if open_handshake(suite, ALICE, PREIMAGE, handshake[:length]) is not None
    ]


@both_suites
def test_every_flipped_bit_is_noticed(suite):
    """Hint, suite, ephemeral key, nonce, tag and ciphertext: no bit may change."""
    for sealed, read in (
        (static(suite), lambda data: open_it(suite, data)),
        (hello(suite), lambda data: open_handshake(suite, ALICE, PREIMAGE, data)),
    ):
        number = int.from_bytes(sealed, "big")
        for bit in range(8 * len(sealed)):
            assert read((number ^ 1 << bit).to_bytes(len(sealed), "big")) is None


@both_suites
def test_junk_behind_a_right_beginning_opens_nothing(suite):
    """Whatever follows the right hint and suite, of either form and any length, gives None and no error."""
    rng = random.Random(7)
    beginnings = [suite_hint_of(PREIMAGE) + bytes([byte]) for byte in (suite, 0x80 | suite)]
    for length in range(300):
        for beginning in beginnings:
            junk = beginning + rng.randbytes(length)
            assert open_it(suite, junk) is None
            assert open_handshake(suite, ALICE, PREIMAGE, junk) is None


@both_suites
def test_keys_belong_to_one_use(suite):
    """Direction, request, partner and suite are all part of the key: another one opens nothing."""
    sealed = static(suite)
    other = Suite(3 - suite)
    with_other_byte = sealed[:8] + bytes([other]) + sealed[9:]
    with_other_hint = suite_hint_of(OTHER) + sealed[8:]

    assert open_it(suite, sealed, Direction.ANSWER) is None
    assert open_it(suite, with_other_hint, preimage=OTHER) is None
    assert open_static(suite, SharedSecrets(ALICE).with_peer(EVE.public), Direction.REQUEST, PREIMAGE, sealed) is None
    assert open_it(other, with_other_byte) is open_it(other, sealed) is None
    assert open_it(suite, sealed) == b"hello"


@both_suites
def test_forms_do_not_stand_for_each_other(suite):
    """Whoever knows only the preimage can seal a handshake, so one never passes for a peer's own words."""
    handshake = hello(suite)
    ephemeral = handshake[9:41]
    own = reference.x25519(reference.secret_of_seed(ALICE.seed), ephemeral)

    assert open_static(suite, own, Direction.REQUEST, PREIMAGE, handshake) is None
    assert open_it(suite, handshake) is None
    assert open_handshake(suite, ALICE, PREIMAGE, static(suite, bytes(64))) is None


@both_suites
@pytest.mark.parametrize("weak", WEAK)
def test_weak_keys_are_refused(suite, weak):
    """No secret is shared with an identity of small order, and nothing is sealed to one."""
    with pytest.raises(WeakKeyError):
        SharedSecrets(ALICE).with_peer(weak)
    with pytest.raises(WeakKeyError):
        hello(suite, weak)


@both_suites
@pytest.mark.parametrize("point", WEAK[:2])
def test_all_zero_secret_opens_nothing(suite, point):
    """A handshake that is well sealed with the all-zero secret of a weak ephemeral key is refused."""
    keys = reference.keys_of(suite, bytes(32), b"q", PREIMAGE)
    sealed = reference.sealed_by(suite, keys, reference.header_of(suite, PREIMAGE, point), bytes(12), b"x")

    assert reference.x25519(reference.secret_of_seed(ALICE.seed), point) == bytes(32)
    assert open_handshake(suite, ALICE, PREIMAGE, sealed) is None


@both_suites
def test_two_envelopes_share_only_hint_and_suite(suite):
    """A fresh nonce each time: equal messages look different."""
    first, second = static(suite, bytes(32), seed=1), static(suite, bytes(32), seed=2)

    assert first[:9] == second[:9]
    assert first[9:21] != second[9:21]
    assert first[37:] != second[37:]


def test_hint_differs_from_the_other_envelopes():
    """The hint alone tells suites from bhumi-v1."""
    assert suite_hint_of(PREIMAGE) != hint_of(PREIMAGE)
    assert len(suite_hint_of(PREIMAGE)) == 8


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"", None), (bytes(8), None), (bytes(9), 0), (bytes(8) + b"\x82", 2), (bytes(8) + b"\x7f", 127)],
)
def test_suite_number(data, number):
    """The suite an envelope names is known without opening it, the handshake's bit left out."""
    assert suite_number_of(data) == number


def test_shared_secrets_are_bounded():
    """The secret that was not asked for the longest leaves; asking again gives the same secret."""
    peers = [KeyPair.from_seed(bytes([number]) * 32).public for number in range(1, 4)]
    secrets = SharedSecrets(ALICE, peers_max=2)
    first = secrets.with_peer(peers[0])
    secrets.with_peer(peers[1])
    secrets.with_peer(peers[0])
    secrets.with_peer(peers[2])

    assert len(secrets) == 2
    assert set(secrets._secrets) == {peers[0], peers[2]}
    assert secrets.with_peer(peers[0]) == first == SharedSecrets(ALICE).with_peer(peers[0])


def test_a_known_secret_costs_no_curve_work(monkeypatch):
    """The second message of a peer needs no key agreement."""
    secrets = SharedSecrets(ALICE)
    first = secrets.with_peer(BOB.public)
    monkeypatch.delattr("waystation.protocols.bhumi.payload.suites.agree")

    assert secrets.with_peer(BOB.public) == first
