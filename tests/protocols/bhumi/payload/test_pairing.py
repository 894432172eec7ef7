import json
import random
from dataclasses import replace

import pytest

from tests.protocols.bhumi import pairing_reference as reference
from tests.protocols.bhumi.payload.test_suites import Dice
from waystation.crypto.agreement import WeakKeyError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.contents import HandshakeInit, encode_payload
from waystation.protocols.bhumi.payload.pairing import (
    PairedSuite,
    open_answer,
    open_pairing,
    open_request,
    request_tag_of,
    root_with,
    seal_answer,
    seal_pairing,
    seal_request,
)
from waystation.protocols.bhumi.payload.suites import (
    Direction,
    SharedSecrets,
    Suite,
    open_static,
    seal_static,
    suite_hint_of,
)

VECTORS = json.loads(reference.FILE.read_text())
ALICE, BOB = (KeyPair.from_seed(bytes.fromhex(VECTORS["identities"][name]["seed"])) for name in ("alice", "bob"))
EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
SECRET = bytes.fromhex(VECTORS["pairing_secret"])
ROOT = bytes.fromhex(VECTORS["root_static"])
PREIMAGE, OTHER = bytes([0x10]) * 32, bytes([0x13]) * 32
INIT = HandshakeInit(BOB.public, bytes([0x77]) * 32, "tls://bob.example:8443")
both_suites = pytest.mark.parametrize("suite", list(PairedSuite))


def by_name(part):
    """Return the cases of one part of the vectors, for parametrize."""
    return {"argvalues": VECTORS[part], "ids": [each["name"] for each in VECTORS[part]]}


def raw(case):
    """Return a case with its hexadecimal values as bytes."""
    return {key: bytes.fromhex(value) for key, value in case.items() if key not in {"name", "suite"}} | {
        "suite": PairedSuite(case["suite"])
    }


def request(suite, plaintext=b"hello", preimage=PREIMAGE, root=ROOT):
    """Return a request between Alice and Bob."""
    return seal_request(suite, root, preimage, plaintext, random.Random(1))


def answer(suite, to, plaintext=b"done", preimage=PREIMAGE, root=ROOT):
    """Return the answer to a request."""
    return seal_answer(suite, root, preimage, request_tag_of(to), plaintext, random.Random(2))


def hello(suite, *, own=BOB, init=INIT, secret=SECRET, inviter=ALICE.public):
    """Return a first request to Alice."""
    return seal_pairing(suite, SharedSecrets(own), inviter, secret, PREIMAGE, init, random.Random(3))


def opened(suite, sealed, own=ALICE, secret=SECRET, preimage=PREIMAGE):
    """Open a first request as Alice."""
    return open_pairing(suite, SharedSecrets(own), secret, preimage, sealed)


def test_vectors_are_what_the_reference_says():
    """The file is what the second implementation writes, to the last value."""
    assert reference.vectors() == VECTORS


def test_both_sides_have_the_root_of_the_vectors():
    """Either identity and the pairing secret give the root; another secret or identity gives another."""
    assert root_with(SharedSecrets(ALICE), BOB.public, SECRET) == root_with(SharedSecrets(BOB), ALICE.public, SECRET)
    assert root_with(SharedSecrets(ALICE), BOB.public, SECRET) == ROOT
    assert root_with(SharedSecrets(ALICE), BOB.public, bytes(32)) != ROOT
    assert root_with(SharedSecrets(ALICE), EVE.public, SECRET) != ROOT


@pytest.mark.parametrize("case", **by_name("exchanges"))
def test_exchanges_of_the_vectors(case):
    """Our request and our answer are those of the vectors, and both open."""
    case = raw(case)
    suite, preimage, tag = case["suite"], case["preimage"], case["request_tag"]

    assert seal_request(suite, ROOT, preimage, case["plaintext"], Dice(case["nonce"])) == case["sealed"]
    assert open_request(suite, ROOT, preimage, case["sealed"]) == case["plaintext"]
    assert request_tag_of(case["sealed"]) == tag
    sealed = seal_answer(suite, ROOT, preimage, tag, case["answer_plaintext"], Dice(case["answer_nonce"]))
    assert sealed == case["answer_sealed"]
    assert open_answer(suite, ROOT, preimage, tag, sealed) == case["answer_plaintext"]


@pytest.mark.parametrize("case", **by_name("handshakes"))
def test_handshakes_of_the_vectors(case):
    """Our first request is that of the vectors, proves who wrote it, and its answer is in the static form."""
    case = raw(case)
    suite, preimage, tag = case["suite"], case["preimage"], case["request_tag"]
    dice = Dice(case["ephemeral_secret"], case["nonce"])

    sealed = seal_pairing(suite, SharedSecrets(BOB), ALICE.public, SECRET, preimage, INIT, dice)

    assert sealed == case["sealed"]
    assert len(sealed) == len(encode_payload(INIT)) + 85
    assert opened(suite, sealed, preimage=preimage) == (INIT, ROOT)
    assert request_tag_of(sealed) == tag
    assert open_answer(suite, ROOT, preimage, tag, case["answer_sealed"]) == case["answer_plaintext"]


@pytest.mark.parametrize("case", **by_name("refused_handshakes"))
def test_first_requests_that_are_refused(case):
    """Without the pairing secret, without a proof, or in a weaker form: nobody is paired, and nothing is raised."""
    case = raw(case)

    assert opened(case["suite"], case["sealed"], preimage=case["preimage"]) is None


@pytest.mark.parametrize("case", **by_name("refused_answers"))
def test_answers_that_are_refused(case):
    """What does not answer this very request opens to nothing."""
    case = raw(case)

    assert open_answer(case["suite"], ROOT, case["preimage"], case["request_tag"], case["sealed"]) is None


@both_suites
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 64, 65_000])
def test_round_trip(suite, size):
    """What was sealed opens; the envelope adds 37 bytes."""
    plaintext = random.Random(size).randbytes(size)

    sealed = request(suite, plaintext)
    answered = answer(suite, sealed, plaintext)

    assert open_request(suite, ROOT, PREIMAGE, sealed) == plaintext
    assert open_answer(suite, ROOT, PREIMAGE, request_tag_of(sealed), answered) == plaintext
    assert len(sealed) == len(answered) == size + 37


def readers(suite):
    """Return a request, a first request and an answer, each with what opens it."""
    asked = request(suite)
    tag = request_tag_of(asked)
    return [
        (asked, lambda data: open_request(suite, ROOT, PREIMAGE, data)),
        (hello(suite), lambda data: opened(suite, data)),
        (answer(suite, asked), lambda data: open_answer(suite, ROOT, PREIMAGE, tag, data)),
    ]


@both_suites
def test_every_truncation_is_noticed(suite):
    """An envelope of any form that is cut anywhere opens to nothing and raises nothing."""
    for sealed, read in readers(suite):
        assert read(sealed) is not None
        assert not [length for length in range(len(sealed)) if read(sealed[:length]) is not None]


@both_suites
def test_every_flipped_bit_is_noticed(suite):
    """Hint, suite, ephemeral key, nonce, tag and ciphertext: no bit may change."""
    for sealed, read in readers(suite):
        number = int.from_bytes(sealed, "big")
        assert not [
            bit for bit in range(8 * len(sealed)) if read((number ^ 1 << bit).to_bytes(len(sealed), "big")) is not None
        ]


@both_suites
def test_junk_behind_a_right_beginning_opens_nothing(suite):
    """Whatever follows the right hint and suite, of either form and any length, gives None and no error."""
    rng = random.Random(7)
    beginnings = [suite_hint_of(PREIMAGE) + bytes([byte]) for byte in (suite, 0x80 | suite)]
    for length in range(200):
        for beginning in beginnings:
            junk = beginning + rng.randbytes(length)
            assert [read(junk) for _, read in readers(suite)] == [None] * 3


@both_suites
def test_keys_belong_to_one_use(suite):
    """Preimage, suite, direction and root are all part of the key: another one opens nothing."""
    sealed = request(suite)
    other = PairedSuite(7 - suite)

    assert open_request(suite, ROOT, OTHER, suite_hint_of(OTHER) + sealed[8:]) is None
    assert open_request(other, ROOT, PREIMAGE, sealed[:8] + bytes([other]) + sealed[9:]) is None
    assert open_request(suite, bytes(32), PREIMAGE, sealed) is None
    assert open_answer(suite, ROOT, PREIMAGE, b"", sealed) is None


@both_suites
def test_two_requests_with_one_preimage_have_two_answers(suite):
    """A request that was sealed anew for the same preimage is not answered by the answer to the first."""
    first, second = request(suite, b"on"), seal_request(suite, ROOT, PREIMAGE, b"on", random.Random(9))
    answered = answer(suite, first)

    assert open_answer(suite, ROOT, PREIMAGE, request_tag_of(second), answered) is None
    assert open_answer(suite, ROOT, PREIMAGE, request_tag_of(first), answered) == b"done"


@both_suites
def test_paired_and_unpaired_suites_do_not_stand_for_each_other(suite):
    """A message of suite 1 or 2 with the byte of suite 3 or 4 opens nothing, nor the other way round."""
    old = Suite(suite - 2)
    shared = SharedSecrets(BOB).with_peer(ALICE.public)
    weaker = seal_static(old, shared, Direction.REQUEST, PREIMAGE, b"hello", random.Random(1))

    assert open_request(suite, ROOT, PREIMAGE, weaker[:8] + bytes([suite]) + weaker[9:]) is None
    assert open_request(suite, shared, PREIMAGE, weaker[:8] + bytes([suite]) + weaker[9:]) is None
    stronger = request(suite)
    assert open_static(old, shared, Direction.REQUEST, PREIMAGE, stronger[:8] + bytes([old]) + stronger[9:]) is None


@both_suites
def test_only_the_invited_can_pair_and_only_with_the_inviter(suite):
    """Who lacks the secret, and who is not the inviter, gets nothing from a first request."""
    assert opened(suite, hello(suite)) == (INIT, ROOT)
    assert opened(suite, hello(suite, secret=bytes(32))) is None
    assert opened(suite, hello(suite), own=EVE) is None
    assert opened(suite, hello(suite), secret=bytes(32)) is None


@both_suites
def test_a_first_request_cannot_name_another_sender(suite):
    """The program that seals refuses to name another than itself."""
    with pytest.raises(AssertionError):
        hello(suite, init=replace(INIT, sender=EVE.public))


@both_suites
@pytest.mark.parametrize("weak", [bytes(32), bytes([1]) + bytes(31)])
def test_weak_keys_are_refused(suite, weak):
    """No root is shared with an identity of small order, and nothing is sealed to one."""
    with pytest.raises(WeakKeyError):
        root_with(SharedSecrets(ALICE), weak, SECRET)
    with pytest.raises(WeakKeyError):
        hello(suite, inviter=weak)


@pytest.mark.parametrize(
    ("data", "tag"),
    [
        (b"", b""),
        (bytes(9), b""),
        (bytes(36), b""),
        (bytes(21) + bytes(range(16)), bytes(range(16))),
        (bytes(8) + b"\x83" + bytes(59), b""),
        (bytes(8) + b"\x83" + bytes(44) + bytes(range(16)), bytes(range(16))),
    ],
)
def test_request_tag(data, tag):
    """The tag of a request is found without opening it, in either form; too few bytes have none."""
    assert request_tag_of(data) == tag
