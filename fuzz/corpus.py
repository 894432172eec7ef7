"""Valid Bhumi keys and frames that fuzz targets use as seed inputs."""

import hashlib
from typing import Final

from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import Feature

KEYS: Final = tuple(KeyPair.from_seed(hashlib.sha256(b"fuzz %d" % number).digest()) for number in range(3))
PREIMAGES: Final = tuple(hashlib.sha256(b"preimage %d" % number).digest() for number in range(8))
COMMITS: Final = tuple(hashlib.sha256(preimage).digest() for preimage in PREIMAGES)


def i_am(key: KeyPair, nonce: int, commits: tuple[bytes, ...] = COMMITS, carried: int = 0) -> bytes:
    """Return a valid I_AM frame."""
    signature = sign(key, wire.signed_bytes(nonce, key.public))
    responses = tuple(messages.RecentResponse(preimage, b"carried" * (n % 3)) for n, preimage in enumerate(PREIMAGES))
    return wire.encode(messages.IAm(key.public, signature, commits, responses[:carried]))


CLIENT_FRAMES: Final = (
    i_am(KEYS[0], 0x01020304),
    i_am(KEYS[1], 0x01020304, (), 4),
    *(wire.encode(messages.Send(key.public, preimage, b"ask")) for key in KEYS for preimage in PREIMAGES[:3]),
    wire.encode(messages.Send(KEYS[0].public, bytes(32), b"")),
    wire.encode(messages.Ack(7, b"response")),
    wire.encode(messages.Ack(0xFFFFFFFF, b"")),
    wire.encode(messages.Keepalive()),
    wire.encode(messages.UpdateCommits(COMMITS[4:])),
    wire.encode(messages.UpdateCommits(())),
    wire.encode(messages.Options(Feature.DELIVER_WITH_PREIMAGE)),
    wire.encode(messages.Options(Feature(0), 2)),
    b"\x00\x4c\x00\x00\x00\x03abc",
)
HELLO: Final = wire.encode(messages.Hello(0x01020304, 65_536))
_ANY_CLIENT_HEARS: Final = (
    wire.encode(messages.Keepalive()),
    wire.encode(messages.Options(Feature.DELIVER_WITH_PREIMAGE)),
    wire.encode(messages.Options(Feature(0))),
    b"\x00\x4c\x00\x00\x00\x03abc",
)
DEVICE_HEARS: Final = (
    wire.encode(messages.Deliver(7, b"request")),
    wire.encode(messages.Deliver(7, b"request", PREIMAGES[0])),
    wire.encode(messages.Deliver(8, b"", PREIMAGES[1])),
    *_ANY_CLIENT_HEARS,
)
SENDER_HEARS: Final = (
    *(wire.encode(messages.SendResult(status)) for status in range(6)),
    wire.encode(messages.SendResult(0, b"response")),
    *_ANY_CLIENT_HEARS,
)
RELAY_FRAMES: Final = (HELLO, wire.encode(messages.Hello(0, 0)), *DEVICE_HEARS, *SENDER_HEARS)
