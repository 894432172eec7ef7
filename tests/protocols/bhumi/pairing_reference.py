"""Suites 3 and 4 and the invitation once more, over hashlib, hmac and the RFCs: a second opinion, and the vectors.

``python -m tests.protocols.bhumi.pairing_reference`` writes tests/vectors/bhumi_pairing.json anew; test_pairing.py
compares the file with ``vectors``.
"""

import base64
import hashlib
import hmac
import json
from pathlib import Path

from tests.protocols.bhumi import suite_reference as reference

FILE = Path(__file__).parents[2] / "vectors" / "bhumi_pairing.json"
SEEDS = {"alice": bytes(range(0x20, 0x40)), "bob": bytes(range(0x60, 0x80))}
PUBLICS = {
    "alice": bytes.fromhex("29acbae141bccaf0b22e1a94d34d0bc7361e526d0bfe12c89794bc9322966dd7"),
    "bob": bytes.fromhex("174553b456dddfc6908ecab1c101fe6ab21e2baa0617795b7d43a63482993fd5"),
}
SECRET = bytes(range(0xA0, 0xC0))
AUTHORITY = hashlib.sha256(b"certificate").digest()
EXPIRES = 0x6B49D200
RELAYS = ["tls://relay.example:8443", "tcp://192.168.1.7:8480"]


def mac(key, *parts):
    """Return HMAC-SHA256."""
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def root_of(secret, shared):
    """Return HMAC-SHA256 of an X25519 secret, keyed with label and pairing secret."""
    return mac(b"bhumi-pair/1" + secret, shared)


def static_root(secret=SECRET):
    """Return the root of Alice and Bob."""
    shared = reference.x25519(reference.secret_of_seed(SEEDS["bob"]), reference.public_of_identity(PUBLICS["alice"]))
    return root_of(secret, shared)


def keys_of(root, suite, direction, preimage, request_tag=b""):
    """Return the 64 bytes of HKDF-Expand."""
    info = bytes([suite]) + direction + preimage + request_tag
    first = mac(root, info, b"\x01")
    return first + mac(root, first, info, b"\x02")


def sealed_by(suite, keys, header, nonce, plaintext):
    """Return the whole envelope; suites 3 and 4 have the ciphers of 1 and 2."""
    return reference.sealed_by(suite - 2, keys, header, nonce, plaintext)


def tag_of(sealed):
    """Return the tag of an envelope."""
    begins = (41 if sealed[8] & 0x80 else 9) + 12
    return sealed[begins : begins + 16]


def handshake_parts(suite, preimage, ephemeral_secret, *, secret=SECRET, claimed="bob", prover="bob"):
    """Return header, root and confirm of a handshake to Alice."""
    ephemeral = reference.base_public(ephemeral_secret)
    to_alice = reference.public_of_identity(PUBLICS["alice"])
    root = root_of(secret, reference.x25519(ephemeral_secret, to_alice))
    proof = root_of(secret, reference.x25519(reference.secret_of_seed(SEEDS[prover]), to_alice))
    confirm = mac(proof, b"confirm", preimage, ephemeral)[:16]
    return reference.header_of(suite, preimage, ephemeral), root, confirm + handshake_init(PUBLICS[claimed])


def handshake_init(sender):
    """Return HANDSHAKE_INIT."""
    url = b"tls://bob.example:8443"
    return b"\x01" + sender + bytes([0x77]) * 32 + len(url).to_bytes(2, "big") + url


def token_of(
    *, version=2, suite=3, expires=EXPIRES, authority=b"\x01" + AUTHORITY, relays=RELAYS, count=None, more=b""
):
    """Return an invitation of Alice; the arguments may be wrong."""
    named = b"".join(bytes([len(relay)]) + relay.encode() for relay in relays)
    body = bytes([version]) + PUBLICS["alice"] + bytes([0x10]) * 32 + SECRET + bytes([suite])
    body += expires.to_bytes(4, "big") + authority + bytes([len(relays) if count is None else count]) + named + more
    return spelled(body + hashlib.sha256(body).digest()[:4])


def spelled(raw):
    """Return bytes as an invitation's text."""
    return "bhumi:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def exchange(suite, number, plaintext, answer):
    """Return a request of Bob to Alice, and its answer."""
    preimage, nonce = bytes([0x80 | number]) * 32, bytes(range(number, number + 12))
    header = reference.header_of(suite, preimage)
    root = static_root()
    request = sealed_by(suite, keys_of(root, suite, b"q", preimage), header, nonce, plaintext)
    answer_keys = keys_of(root, suite, b"a", preimage, tag_of(request))
    sealed = sealed_by(suite, answer_keys, header, nonce[::-1], answer)
    return {
        "name": f"suite {suite}: request of {len(plaintext)} bytes and its answer", "suite": suite,
        "preimage": preimage.hex(), "nonce": nonce.hex(), "plaintext": plaintext.hex(), "sealed": request.hex(),
        "request_tag": tag_of(request).hex(), "answer_keys": answer_keys.hex(), "answer_nonce": nonce[::-1].hex(),
        "answer_plaintext": answer.hex(), "answer_sealed": sealed.hex(),
    }  # fmt: skip


def handshake(suite):
    """Return Bob's first request to Alice, and its answer in the static form."""
    preimage, ephemeral, nonce = bytes([0x10]) * 32, bytes([0x40 + suite]) * 32, bytes(range(12))
    header, root, plaintext = handshake_parts(suite, preimage, ephemeral)
    request = sealed_by(suite, keys_of(root, suite, b"q", preimage), header, nonce, plaintext)
    url = b"tls://relay.example:8443"
    complete = b"\x02\x00" + bytes([0x12]) * 32 + len(url).to_bytes(2, "big") + url
    answer_keys = keys_of(static_root(), suite, b"a", preimage, tag_of(request))
    answer_header = reference.header_of(suite, preimage)
    return {
        "name": f"suite {suite}: handshake and its answer", "suite": suite, "preimage": preimage.hex(),
        "ephemeral_secret": ephemeral.hex(), "ephemeral_public": header[9:].hex(), "root_handshake": root.hex(),
        "confirm": plaintext[:16].hex(), "nonce": nonce.hex(), "plaintext": plaintext.hex(), "sealed": request.hex(),
        "request_tag": tag_of(request).hex(), "answer_keys": answer_keys.hex(), "answer_nonce": nonce[::-1].hex(),
        "answer_plaintext": complete.hex(),
        "answer_sealed": sealed_by(suite, answer_keys, answer_header, nonce[::-1], complete).hex(),
    }  # fmt: skip


def refused_handshakes(suite):
    """Return first requests that Alice must refuse, each with what is wrong in it."""
    preimage, ephemeral, nonce = bytes([0x10]) * 32, bytes([0x40 + suite]) * 32, bytes(range(12))
    wrongs = {
        "another pairing secret, as a relay would guess": {"secret": bytes(32)},
        "the name of another, without his proof": {"claimed": "bob", "prover": "alice"},
    }
    for what, wrong in wrongs.items():
        header, root, plaintext = handshake_parts(suite, preimage, ephemeral, **wrong)
        yield what, sealed_by(suite, keys_of(root, suite, b"q", preimage), header, nonce, plaintext)
    header, root, plaintext = handshake_parts(suite, preimage, ephemeral)
    keys = keys_of(root, suite, b"q", preimage)
    other_proof = mac(static_root(), b"confirm", preimage, bytes(32))[:16]
    yield "a proof for another ephemeral key", sealed_by(suite, keys, header, nonce, other_proof + plaintext[16:])
    yield "no proof", sealed_by(suite, keys, header, nonce, plaintext[16:])
    yield "a message in place of HANDSHAKE_INIT", sealed_by(suite, keys, header, nonce, plaintext[:16] + b"\x10\x00")
    weak = reference.header_of(suite, preimage, bytes(32))
    weak_keys = keys_of(root_of(SECRET, bytes(32)), suite, b"q", preimage)
    yield "the all-zero secret of a weak ephemeral key", sealed_by(suite, weak_keys, weak, nonce, plaintext)
    old = reference.header_of(suite - 2, preimage, header[9:])
    shared = reference.x25519(ephemeral, reference.public_of_identity(PUBLICS["alice"]))
    old_keys = reference.keys_of(suite - 2, shared, b"q", preimage)
    yield f"a handshake of suite {suite - 2}", reference.sealed_by(suite - 2, old_keys, old, nonce, plaintext[16:])


def refused_answers(suite):
    """Return answers to Bob's short request that Bob must refuse."""
    fair = exchange(suite, 3, b"hello", b"done")
    preimage, sealed = bytes.fromhex(fair["preimage"]), bytes.fromhex(fair["answer_sealed"])
    header, nonce = reference.header_of(suite, preimage), bytes(12)
    for what, tag in (("another request with the same preimage", bytes(16)), ("no request in particular", b"")):
        keys = keys_of(static_root(), suite, b"a", preimage, tag)
        yield f"the answer to {what}", sealed_by(suite, keys, header, nonce, b"done")
    keys = keys_of(static_root(bytes(32)), suite, b"a", preimage, bytes.fromhex(fair["request_tag"]))
    yield "an answer without the pairing secret", sealed_by(suite, keys, header, nonce, b"done")
    yield "the request itself", bytes.fromhex(fair["sealed"])
    yield "a flipped bit", sealed[:-1] + bytes([sealed[-1] ^ 1])
    yield "one byte less", sealed[:-1]


def refused_tokens():
    """Yield invitations that a reader must refuse, each with what is wrong in it."""
    fair = token_of()
    yield "a newer version", token_of(version=3)
    yield "version 1", token_of(version=1)
    yield "suite 2", token_of(suite=2)
    yield "suite 5", token_of(suite=5)
    yield "authority of kind 2", token_of(authority=b"\x02" + AUTHORITY)
    yield "nine relays", token_of(relays=["tls://a:1"] * 9)
    yield "a relay too many in the count", token_of(count=3)
    yield "a relay too few in the count", token_of(count=1)
    yield "a relay without a port", token_of(relays=["tls://relay.example"])
    yield "an empty relay", token_of(relays=[""])
    yield "bytes behind the end", token_of(more=b"\x00")
    yield "a wrong check", fair[:-1] + ("A" if fair[-1] != "A" else "E")
    yield "padding", fair + "="
    yield "another alphabet", fair[:8] + "+" + fair[9:]
    yield "a prefix in capitals", "BHUMI:" + fair[6:]
    yield "only the prefix", "bhumi:"


def vectors():
    """Return what the file holds."""
    tokens = [("two relays and an authority", {}), ("suite 4, no end, no authority, no relay",
               {"suite": 4, "expires": 0, "authority": b"\x00", "relays": []}),
              ("eight relays", {"relays": [f"tls://relay{number}.example:8443" for number in range(8)]})]  # fmt: skip
    preimage = bytes([0x10]) * 32
    return {
        "note": (
            "Suites 3 and 4 and the invitation of Bhumi (BHUMI-PAIR). Bob accepts an invite of Alice. Byte strings are "
            "hexadecimal. Made by tests/protocols/bhumi/pairing_reference.py."
        ),
        "identities": {
            name: {"seed": SEEDS[name].hex(), "public": PUBLICS[name].hex()} for name in sorted(SEEDS)
        },
        "pairing_secret": SECRET.hex(),
        "root_static": static_root().hex(),
        "handshakes": [handshake(suite) for suite in (3, 4)],
        "exchanges": [
            exchange(suite, number, plaintext, answer)
            for suite in (3, 4)
            for number, plaintext, answer in ((1, b"", b""), (3, b"hello", b"done"), (5, bytes(range(200)), bytes(65)))
        ],
        "refused_handshakes": [
            {"name": f"suite {suite}: {what}", "suite": suite, "preimage": preimage.hex(), "sealed": sealed.hex()}
            for suite in (3, 4)
            for what, sealed in refused_handshakes(suite)
        ],
        "refused_answers": [
            {"name": f"suite {suite}: {what}", "suite": suite, "preimage": (bytes([0x83]) * 32).hex(),
             "request_tag": exchange(suite, 3, b"hello", b"done")["request_tag"], "sealed": sealed.hex()}
            for suite in (3, 4)
            for what, sealed in refused_answers(suite)
        ],
        "invitations": [
            {"name": name, "token": token_of(**facts), "identity": PUBLICS["alice"].hex(), "preimage": preimage.hex(),
             "secret": SECRET.hex(), "suite": facts.get("suite", 3), "expires": facts.get("expires", EXPIRES),
             "authority": facts.get("authority", b"\x01" + AUTHORITY)[1:].hex(), "relays": facts.get("relays", RELAYS)}
            for name, facts in tokens
        ],
        "refused_invitations": [{"name": name, "token": token} for name, token in refused_tokens()],
    }  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
