"""Laws of sha512, ed25519, x25519, chacha, aes and suites: the published vectors, in both interpreters."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.crypto.test_signing import RFC_8032
from tests.micropython.build import INTERPRETERS, on_board
from waystation.cli.mcu.package import device_module, package_folder
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite

pytestmark = pytest.mark.parametrize("interpreter", INTERPRETERS)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "bhumi_suites.json").read_text())
PAIRING = json.loads((Path(__file__).parents[1] / "vectors" / "bhumi_pairing.json").read_text())
SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493


def raw(text):
    return bytes.fromhex(text)


def test_sha512(interpreter, tmp_path):
    """Hashes of every length around the block boundaries are those of hashlib."""
    texts = [bytes(range(length % 251)) + bytes(length - length % 251) for length in (0, 1, 3, 111, 112, 127, 128, 300)]

    found = on_board(interpreter, tmp_path, [("sha512", "digest", text) for text in texts])

    assert found == [hashlib.sha512(text).digest() for text in texts]


def test_rfc_8032(interpreter, tmp_path):
    """Keys and signatures are those of section 7.1."""
    vectors = [tuple(raw(part) if isinstance(part, str) else part for part in vector) for vector in RFC_8032]
    calls = [("ed25519", "public_of", seed) for seed, *_ in vectors]
    calls += [("ed25519", "sign", seed, public, message) for seed, public, message, _ in vectors]

    found = on_board(interpreter, tmp_path, calls)

    assert found == [public for _, public, _, _ in vectors] + [signature for *_, signature in vectors]


def test_rfc_7748(interpreter, tmp_path):
    """X25519 gives section 5.2 and 6.1, and nothing for a point of small order."""
    alice = raw("77076d0a7318a57d3c16c17251b26645c6d5d0c5e0b4f3b0b0b3f4b5a5a5a5a5")
    calls = [
        (
            "x25519",
            "agree",
            raw("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
            raw("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
        ),
        (
            "x25519",
            "agree",
            raw("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d"),
            raw("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"),
        ),
        ("x25519", "agree", alice, bytes(32)),
        ("x25519", "agree", alice, b"\x01" + bytes(31)),
        ("x25519", "agree", alice, (P - 1).to_bytes(32, "little")),
    ]

    assert on_board(interpreter, tmp_path, calls) == [
        raw("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"),
        raw("95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"),
        None,
        None,
        None,
    ]


def test_rfc_8439(interpreter, tmp_path):
    """ChaCha20-Poly1305 gives section 2.8.2, opens it, and opens nothing that was changed anywhere."""
    key, nonce, associated = bytes(range(0x80, 0xA0)), raw("070000004041424344454647"), raw("50515253c0c1c2c3c4c5c6c7")
    tag = raw("1ae10b594f09e26a7e902ecbd0600691")
    sealed = tag + raw(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b6116"
    )
    bent = [sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :] for at in (0, 15, 16, len(sealed) - 1)]
    calls = [
        ("chacha", "seal", key, nonce, SUNSCREEN, associated),
        ("chacha", "open_sealed", key, nonce, sealed, associated),
        ("chacha", "open_sealed", key, nonce, sealed, associated + b"x"),
        *(("chacha", "open_sealed", key, nonce, each, associated) for each in bent),
    ]

    assert on_board(interpreter, tmp_path, calls) == [sealed, SUNSCREEN, None, *[None] * len(bent)]


def test_hkdf(interpreter, tmp_path):
    """HMAC builds what RFC 5869 case 1 shows."""
    extract = ("suites", "hmac", bytes(range(13)), b"\x0b" * 22)
    root = raw("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    first = raw("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    info = bytes(range(0xF0, 0xFA))
    calls = [extract, ("suites", "hmac", root, info, b"\x01"), ("suites", "hmac", root, first, info, b"\x02")]

    found = on_board(interpreter, tmp_path, calls)

    assert found[:2] == [root, first]
    assert found[2][:10] == raw("34007208d5b887185865")


def test_suite_vectors(interpreter, tmp_path):
    """Every envelope of the vectors opens to its plaintext; every static one is made anew, byte for byte."""
    seeds = {name: raw(each["seed"]) for name, each in VECTORS["identities"].items()}
    publics = {name: raw(each["public"]) for name, each in VECTORS["identities"].items()}
    calls, expected = [], []
    for case in VECTORS["cases"]:
        preimage, sealed, plain = raw(case["preimage"]), raw(case["sealed"]), raw(case["plaintext"])
        if case["form"] == "static":
            root = device_module("suites").root_of(raw(VECTORS["static_shared"]))
            direction = case["direction"].encode()
            calls += [
                ("suites", "open_sealed", root, preimage, sealed, direction),
                ("suites", "seal", root, case["suite"], preimage, raw(case["nonce"]), plain, direction),
            ]
            expected += [plain, sealed]
        else:
            calls.append(("suites", "open_handshake", seeds[case["to"]], preimage, sealed))
            expected.append(plain)
    calls.append(("suites", "root_with", seeds["alice"], publics["bob"]))
    expected.append(device_module("suites").root_of(raw(VECTORS["static_shared"])))

    assert on_board(interpreter, tmp_path, calls) == expected


def test_refused_vectors(interpreter, tmp_path):
    """Every envelope that must be refused gives None: bent, cut, in the wrong direction or form, for others."""
    root = device_module("suites").root_of(raw(VECTORS["static_shared"]))
    calls = []
    for case in VECTORS["refused"]:
        preimage, sealed = raw(case["preimage"]), raw(case["sealed"])
        if case["form"] == "static":
            calls.append(("suites", "open_sealed", root, preimage, sealed, case["direction"].encode()))
        else:
            seed = raw(VECTORS["identities"][case["to"]]["seed"])
            calls.append(("suites", "open_handshake", seed, preimage, sealed))

    found = on_board(interpreter, tmp_path, calls)

    assert len(found) > 10
    assert [case["name"] for case, plain in zip(VECTORS["refused"], found, strict=True) if plain is not None] == []


def test_every_cut_envelope_is_refused(interpreter, tmp_path):
    """An envelope that ends early, wherever, opens to nothing and raises nothing."""
    root, preimage = bytes(range(32)), bytes(range(32, 64))
    sealed = device_module("suites").seal(root, 2, preimage, bytes(12), b"hello")
    calls = [("suites", "open_sealed", root, preimage, sealed[:end]) for end in range(len(sealed) + 1)]
    calls += [
        ("suites", "open_handshake", bytes(32), preimage, sealed[:8] + b"\x82" + sealed[9:end]) for end in (9, 40)
    ]

    assert set(on_board(interpreter, tmp_path, calls)) == {None}


def test_signing_table(interpreter):
    """The sixteen points are the sums of 2^(64 i) B that the module says."""
    assert interpreter
    d = -121665 * pow(121666, -1, P) % P
    base_y = 4 * pow(5, -1, P) % P
    base = (_x_of(base_y, d), base_y)
    teeth = [base]
    for _ in range(3):
        point = teeth[-1]
        for _ in range(64):
            point = _add(point, point, d)
        teeth.append(point)
    expected = b""
    for index in range(16):
        point = (0, 1)
        for bit, tooth in enumerate(teeth):
            point = _add(point, tooth, d) if index >> bit & 1 else point
        x, y = point
        expected += b"".join((value % P).to_bytes(32, "little") for value in (y - x, y + x, 2 * d * x * y))

    assert (package_folder() / "ed25519_table.py").exists()
    assert expected == device_module("ed25519_table").POINTS


def _x_of(y, d):
    square = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    return root if root % 2 == 0 else P - root


def _add(one, other, d):
    (x1, y1), (x2, y2) = one, other
    product = d * x1 * x2 * y1 * y2 % P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P,
    )


def test_pairing_vectors(interpreter, tmp_path):
    """Suites 3 and 4: handshakes open and confirm their sender, requests and answers are made anew, byte for byte."""
    secret, root = raw(PAIRING["pairing_secret"]), raw(PAIRING["root_static"])
    seed, bob = raw(PAIRING["identities"]["alice"]["seed"]), raw(PAIRING["identities"]["bob"]["public"])
    calls = [("suites", "root_with", seed, bob, None, secret)]
    expected = [root]
    for case in PAIRING["handshakes"]:
        preimage, sealed, plain = raw(case["preimage"]), raw(case["sealed"]), raw(case["plaintext"])
        calls += [
            ("suites", "open_handshake", seed, preimage, sealed, None, secret),
            ("suites", "confirms", root, preimage, sealed, plain),
            ("suites", "confirms", bytes(32), preimage, sealed, plain),
            ("suites", "open_handshake", seed, preimage, sealed),
        ]
        expected += [plain, True, False, None]
    for case in PAIRING["handshakes"] + PAIRING["exchanges"]:
        preimage, sealed, tag = raw(case["preimage"]), raw(case["sealed"]), raw(case["request_tag"])
        answer, answer_plain = raw(case["answer_sealed"]), raw(case["answer_plaintext"])
        calls += [
            ("suites", "tag_of", sealed),
            ("suites", "seal", root, case["suite"], preimage, raw(case["answer_nonce"]), answer_plain, b"a", tag),
            ("suites", "open_sealed", root, preimage, answer, b"a", tag),
        ]
        expected += [tag, answer, answer_plain]
    for case in PAIRING["exchanges"]:
        preimage, sealed, plain = raw(case["preimage"]), raw(case["sealed"]), raw(case["plaintext"])
        calls += [
            ("suites", "seal", root, case["suite"], preimage, raw(case["nonce"]), plain, b"q"),
            ("suites", "open_sealed", root, preimage, sealed),
        ]
        expected += [sealed, plain]

    assert on_board(interpreter, tmp_path, calls) == expected


def test_refused_pairing_vectors(interpreter, tmp_path):
    """What a relay could make of a handshake or of an answer opens to nothing, or confirms nobody."""
    secret, root = raw(PAIRING["pairing_secret"]), raw(PAIRING["root_static"])
    seed = raw(PAIRING["identities"]["alice"]["seed"])
    handshakes = [
        ("suites", "open_handshake", seed, raw(case["preimage"]), raw(case["sealed"]), None, secret)
        for case in PAIRING["refused_handshakes"]
    ]
    answers = [
        ("suites", "open_sealed", root, raw(case["preimage"]), raw(case["sealed"]), b"a", raw(case["request_tag"]))
        for case in PAIRING["refused_answers"]
    ]

    opened = on_board(interpreter, tmp_path, handshakes)
    found = on_board(interpreter, tmp_path, answers)

    unproved = [
        (case["name"], plain)
        for case, plain in zip(PAIRING["refused_handshakes"], opened, strict=True)
        if plain is not None and is_proved(seed, secret, case, plain)
    ]
    assert len(opened) > 10 and unproved == []
    assert len(found) > 10 and set(found) == {None}


def is_proved(seed, secret, case, plain):
    """Whether the device would take the sender of a handshake that opens."""
    suites, payloads = device_module("suites"), device_module("payloads")
    request = payloads.request_of(plain[16:])
    if request is None or request[0] != "init":
        return False
    root = suites.root_with(seed, request[1], None, secret)
    return root is not None and suites.confirms(root, raw(case["preimage"]), raw(case["sealed"]), plain)


def test_invitations(interpreter, tmp_path):
    """The invitation is, byte for byte, that of the vectors; a token without a secret is that of the first version."""
    cases = [case for case in PAIRING["invitations"] if case["suite"] == 4]
    calls = [
        (
            "invitations", "invitation", raw(case["identity"]), raw(case["preimage"]), raw(case["secret"]),
            case["relays"], raw(case["authority"]), case["expires"],
        )
        for case in cases
    ]  # fmt: skip
    invite = Invite(PublicKey(bytes([5]) * 32), bytes([6]) * 32)
    calls.append(("invitations", "invite_token", invite.identity, invite.preimage))

    found = on_board(interpreter, tmp_path, calls)

    assert cases and found[:-1] == [case["token"] for case in cases]
    assert decode_invite(found[-1]) == invite
