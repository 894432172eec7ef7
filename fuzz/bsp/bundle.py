"""Fuzz target: BSP bundles (signed files of records), mutated before or after a known peer signs them, or never signed.

An input is a bundle as it arrives.
"""

import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.ids import PublicKey
from waystation.crypto.hashing import blake2b_256
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bsp import messages
from waystation.protocols.bsp.bundle import BUNDLE_HEADER_BYTES, CHUNK_BYTES, bundle_overhead, open_bundle, seal_bundle
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.wire import encode, read_all

_US, _FRIEND, _UNKNOWN = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 4))
_SIGNATURE_BYTES: Final = 64
_LABEL: Final = b"waystation/bsp/file/1"
_RECORD_LEAST_BYTES: Final = 36


class BspBundleTarget:
    """Whatever arrives is what a known peer sealed, record by record, or is refused for a documented reason."""

    name = "bsp_bundle"

    def make(self, rng: random.Random) -> bytes:
        """Return a bundle, most of the time mutated, half of the time signed all the same."""
        recipient = _US if rng.random() < 0.95 else _UNKNOWN
        sender = _FRIEND if rng.random() < 0.95 else _UNKNOWN
        data = seal_bundle(_records(rng), sender, recipient.public, rng.getrandbits(64), rng.randbytes(32))
        if rng.random() < 0.7:
            data = _mutate(rng, data)
            if rng.random() < 0.7 and len(data) >= BUNDLE_HEADER_BYTES + _SIGNATURE_BYTES:
                data = _signed(data, sender)
        return data

    def run(self, data: bytes) -> str:
        """Open it."""
        try:
            bundle = open_bundle(data, _US, SEED, _knows)
        except MalformedError as error:
            return error.refusal.value
        expect(bundle.sender == _FRIEND.public, "a bundle of an unknown peer was opened")
        expect(len(bundle.records) <= len(data) // _RECORD_LEAST_BYTES, "more records than there is room for")
        encoded = [encode(SEED, record) for record in bundle.records]
        expect(read_all(SEED, b"".join(encoded)) == bundle.records, "records that do not mean what was sealed")
        again = seal_bundle(encoded, _FRIEND, _US.public, bundle.number, bytes(32))
        size = sum(map(len, encoded))
        expect(len(again) == size + bundle_overhead(size), "the overhead is not what it should be")
        return "opened"


def _knows(key: PublicKey) -> bool:
    return key == _FRIEND.public


def _records(rng: random.Random) -> list[bytes]:
    records = []
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        ids = tuple(rng.randbytes(32) for _ in range(rng.choice((1, 2, 40))))
        size = rng.choice((0, 1, 100, 100, 5_000, CHUNK_BYTES - 44, 2 * CHUNK_BYTES))
        message = messages.Message(rng.randbytes(32), rng.getrandbits(62), bytes(size))
        record = rng.choice((messages.Ack(ids), messages.Request(ids), messages.Offer(ids), message, message))
        records.append(encode(SEED, record))
    if rng.random() < 0.2:
        records.insert(rng.randrange(len(records) + 1), _mutate(rng, b"\x01\x00\x00\x20" + rng.randbytes(32)))
    return records


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Return a bundle changed anywhere, or in its header, or with two of its chunks in each other's place."""
    first, second, third = (BUNDLE_HEADER_BYTES + number * (CHUNK_BYTES + 16) for number in range(3))
    if len(data) > third and rng.random() < 0.2:
        return data[:first] + data[second:third] + data[first:second] + data[third:]
    end = len(data) if rng.random() < 0.6 else min(len(data), BUNDLE_HEADER_BYTES)
    return mutate_bytes(rng, data[:end], (data,)) + data[end:]


def _signed(data: bytes, sender: KeyPair) -> bytes:
    header, sealed = data[:BUNDLE_HEADER_BYTES], data[BUNDLE_HEADER_BYTES:-_SIGNATURE_BYTES]
    parts = (_LABEL, header, blake2b_256(sealed))
    digest = blake2b_256(b"".join(len(part).to_bytes(4, "big") + part for part in parts))
    return header + sealed + sign(sender, digest)
