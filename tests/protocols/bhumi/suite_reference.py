"""Suites 1 and 2 once more, from the RFCs alone: the second opinion for test_suites.py and its vectors.

X25519 and the curve map are Python integers (RFC 7748, RFC 8032), HKDF is RFC 5869 over hmac, ChaCha20-Poly1305 is RFC
8439 in integers, and counter mode is made of single AES blocks.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

P = 2**255 - 19


def clamped(secret):
    """Return the scalar of 32 secret bytes, RFC 7748 5."""
    number = bytearray(secret)
    number[0] &= 248
    number[31] = number[31] & 127 | 64
    return int.from_bytes(number, "little")


def x25519(secret, public):
    """Return the 32 bytes of RFC 7748 5, by its ladder."""
    k, x1 = clamped(secret), int.from_bytes(public, "little") % 2**255
    x2, z2, x3, z3, swapped = 1, 0, x1, 1, 0
    for bit in (k >> place & 1 for place in range(254, -1, -1)):
        if bit != swapped:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, (aa - bb) * (aa + 121_665 * (aa - bb)) % P
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def base_public(secret):
    """Return the public key of 32 secret bytes."""
    return x25519(secret, (9).to_bytes(32, "little"))


def secret_of_seed(seed):
    """Return the X25519 secret of an Ed25519 seed, clamped."""
    return clamped(hashlib.sha512(seed).digest()[:32]).to_bytes(32, "little")


def public_of_identity(identity):
    """Return the X25519 public key of an Ed25519 public key: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(identity, "little") % 2**255
    return ((1 + y) * pow(1 - y, P - 2, P) % P).to_bytes(32, "little")


def keys_of(suite, shared, direction, preimage):
    """Return the 64 bytes of HKDF-SHA256."""
    extracted = hmac.new(b"bhumi-suite", shared, hashlib.sha256).digest()
    info = bytes([suite]) + direction + preimage
    first = hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()
    return first + hmac.new(extracted, first + info + b"\x02", hashlib.sha256).digest()


def header_of(suite, preimage, ephemeral_public=b""):
    """Return everything before the nonce."""
    hint = hashlib.sha256(b"bhumi-suite" + preimage).digest()[:8]
    return hint + bytes([suite | (0x80 if ephemeral_public else 0)]) + ephemeral_public


def sealed_by(suite, keys, header, nonce, plaintext):
    """Return the whole envelope."""
    if suite == 1:
        ciphertext = xored(plaintext, b"".join(chacha_stream(keys[:32], nonce, 1, len(plaintext))))
        tag = poly1305(next(chacha_stream(keys[:32], nonce, 0, 64))[:32], chacha_mac_input(header, ciphertext))
    else:
        ciphertext = xored(plaintext, b"".join(aes_stream(keys[:32], nonce, len(plaintext))))
        tag = hmac.new(keys[32:], header + nonce + ciphertext, hashlib.sha256).digest()[:16]
    return header + nonce + tag + ciphertext


def xored(left, right):
    """Return as many bytes as the left side has."""
    return bytes(a ^ b for a, b in zip(left, right, strict=False))


def aes_stream(key, nonce, size):
    """Yield blocks of key stream: AES of nonce and counter, one block at a time."""
    block_cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # a block cipher, not a mode
    for counter in range(-(-size // 16)):
        yield block_cipher.update(nonce + counter.to_bytes(4, "big"))


def chacha_stream(key, nonce, counter, size):
    """Yield blocks of 64 bytes, RFC 8439 2.3."""
    for number in range(counter, counter + -(-size // 64)):
        whole = b"expand 32-byte k" + key + number.to_bytes(4, "little") + nonce
        start = [int.from_bytes(whole[at : at + 4], "little") for at in range(0, 64, 4)]
        state = start[:]
        for _ in range(10):
            for quarter in ("048c", "159d", "26ae", "37bf", "05af", "16bc", "278d", "349e"):
                quarter_round(state, *(int(place, 16) for place in quarter))
        yield b"".join(((a + b) % 2**32).to_bytes(4, "little") for a, b in zip(state, start, strict=True))


def quarter_round(state, a, b, c, d):
    """Stir four words, RFC 8439 2.1."""
    for into, other, mixed, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[into] = (state[into] + state[other]) % 2**32
        turned = state[mixed] ^ state[into]
        state[mixed] = (turned << by | turned >> (32 - by)) % 2**32


def poly1305(key, message):
    """Return the 16-byte tag, RFC 8439 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(message), 16):
        total = (total + int.from_bytes(message[at : at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def chacha_mac_input(associated, ciphertext):
    """Return what the tag covers, RFC 8439 2.8."""
    padded = b"".join(part + bytes(-len(part) % 16) for part in (associated, ciphertext))
    return padded + len(associated).to_bytes(8, "little") + len(ciphertext).to_bytes(8, "little")
