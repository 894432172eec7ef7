"""Fuzz target: the local-network discovery datagrams, as the Bhumi relay and the client parse them."""

import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.lan_datagrams import (
    NONCE_BYTES,
    LanResponder,
    encode_answer,
    encode_query,
    read_answer,
    read_query,
)
from waystation.protocols.bhumi.signed_records import expires_at_s, is_signed, sign_advert

_NOW_S: Final = 1_800_000_000
_NONCE: Final = bytes(NONCE_BYTES)
_HERE: Final = "192.168.1.7"
_RELAY: Final = KeyPair.from_seed(bytes(32))
_OTHER: Final = KeyPair.from_seed(bytes([1]) * 32)
_ADVERTS: Final = tuple(
    sign_advert(_OTHER, address, _NOW_S + issued_s, ttl_s)
    for address in (f"tls://{_HERE}:8443", f"tcp://{_HERE}:1", "tls://10.0.0.1:8443", "tls://relay.example:1")
    for issued_s, ttl_s in ((0, 300), (-299, 300), (-300, 300), (121, 300), (0, 3_601))
)
_CORPUS: Final = (
    encode_query(_NONCE),
    encode_query(b"8 bytes!"),
    *(encode_answer(_NONCE, advert) for advert in _ADVERTS),
    encode_answer(b"8 bytes!", _ADVERTS[0]),
)


class BhumiLanTarget:
    """An input is one datagram."""

    name = "bhumi_lan"

    def make(self, rng: random.Random) -> bytes:
        """Return a query or an answer, most of the time mutated."""
        chosen = rng.choice(_CORPUS)
        return chosen if rng.random() < 0.2 else mutate_bytes(rng, chosen, _CORPUS)

    def run(self, data: bytes) -> str:
        """Judge it; what is believed is live, signed, from where it came, and written as it was."""
        judged = LanResponder(_RELAY, "tls", 8443, _NONCE).receive(data, _HERE, "192.168.1.1", _NOW_S)
        if isinstance(judged, bytes):
            nonce = read_query(data)
            expect(nonce is not None and data == encode_query(nonce), "something else than a query was answered")
            expect(len(judged) < len(data), "an answer is longer than its query")
            return "answered"
        expect(judged == read_answer(data, _NONCE, _HERE, _NOW_S), "two readings disagree")
        if judged is None:
            return "ignored"
        expect(encode_answer(_NONCE, judged) == data, "believed, but not what was sent")
        expect(is_signed(judged) and expires_at_s(judged) > _NOW_S, "believed without reason")
        expect(f"://{_HERE}:" in judged.address, "led to another host")
        return "believed"
