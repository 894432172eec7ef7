"""Identities, frames and contents that the tests of MERK talk about."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import messages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import Frame, MailboxState, MessageType, PresenceKind, Role
from waystation.protocols.merk.payload import contents
from waystation.protocols.merk.refusals import MalformedError
from waystation.protocols.merk.wire import decode_frame, encode_frame, make_advert

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "merk.json").read_text())
FRAMES = [
    pair
    for number, entry in enumerate(VECTORS["verbatim_relay"])
    for pair in [(f"{number} {entry['who']} {entry['name']}", bytes.fromhex(entry["hex"]))]
]
"""Every frame of the verbatim relay, with a name of its own."""


def keys_of(name: str) -> Keys:
    """Return the identity of a client in the vectors."""
    client = VECTORS["clients"][name]
    return Keys.from_seeds(bytes.fromhex(client["ed_seed"]), bytes.fromhex(client["x_priv"]))


ALICE, BOB = keys_of("alice"), keys_of("bob")
CAROL = Keys.from_seeds(hashlib.sha256(b"carol signs").digest(), hashlib.sha256(b"carol agrees").digest())
NODE, OTHER_NODE = (KeyPair.from_seed(hashlib.sha256(b"node %d" % number).digest()) for number in range(2))
EPHEMERAL_SECRET = b"\x0e" * 32
NONCE = b"\x0c" * 12
SMALL_ORDER_POINTS = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
]
"""X25519 public keys with which every shared secret is zero. Source: RFC 7748 6.1; cr.yp.to/ecdh.html."""
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519. Spec: RFC 8032 5.1."""


def vector(name: str) -> bytes:
    """Return the first frame in the vectors whose name is, or begins with, ``name``."""
    return bytes.fromhex(next(entry["hex"] for entry in VECTORS["verbatim_relay"] if entry["name"].startswith(name)))


def signed_anew(frame: bytes, signature: bytes) -> bytes:
    """Return a frame with another header signature."""
    return frame[:56] + signature + frame[120:]


def changed(data: bytes, at: int, mask: int = 1) -> bytes:
    """Return ``data`` with some bits of the byte at ``at`` turned over."""
    bent = bytearray(data)
    bent[at] ^= mask
    return bytes(bent)


def malleable(signature: bytes) -> bytes:
    """Return the other spelling of an Ed25519 signature: its S plus the order of the group."""
    twin = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    return signature[:32] + twin.to_bytes(32, "little")


def as_original_sends(frame: bytes, sender: KeyPair) -> bytes:
    """Return our ENCRYPTED_DATA frame as a client of the original signs it: without the recipient."""
    payload = decode_frame(frame).payload
    return signed_anew(frame, sign(sender, payload[32:]))


def as_original_relays(frame: bytes) -> bytes:
    """Return what the original relay makes of a frame: DATA, no recipient, no header signature."""
    arrived = decode_frame(frame)
    return encode_frame(MessageType.DATA, arrived.payload[32:], sender=arrived.sender)


def frame_of(kind: int = MessageType.DATA, payload: bytes = b"", sender: bytes = bytes(32)) -> Frame:
    """Return a frame without a signature."""
    return Frame(kind, sender, bytes(64), payload)


def outcome_of(parse: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a parser returns, or the refusal that it raises."""
    try:
        return parse(*arguments)
    except MalformedError as error:
        return error.refusal


KEY, KEY_2, HASHED, ID, SIGNATURE = b"k" * 32, b"K" * 32, b"h" * 16, b"i" * 16, b"s" * 64
INFOS: list[tuple[messages.Info, str]] = [
    (messages.RequestServers(), "02"),
    (messages.Servers(()), "030000"),
    (messages.Servers((messages.ServerEntry(KEY, "ws://a"),)), "030001" + KEY.hex() + "0677733a2f2f61"),
    (messages.AddServer("ws://a"), "040677733a2f2f61"),
    (messages.QueryClient(KEY), "05" + KEY.hex()),
    (messages.ClientFound(KEY, KEY_2), "0601" + KEY.hex() + KEY_2.hex()),
    (messages.ClientAbsent(KEY), "0600" + KEY.hex()),
    (
        messages.Hello(0x01020304, Role.NODE, KEY, KEY_2, "ws://a"),
        "80010102030401" + KEY.hex() + KEY_2.hex() + "0677733a2f2f61",
    ),
    (messages.Hello(0xFFFFFFFF, Role.CLIENT, KEY, KEY_2, ""), "8001ffffffff00" + KEY.hex() + KEY_2.hex() + "00"),
    (messages.Auth(SIGNATURE), "81" + SIGNATURE.hex()),
    (messages.Delivery(5, KEY, HASHED), "8205" + KEY.hex() + HASHED.hex()),
    (messages.Deliveries(6, (HASHED, ID)), "8a06" + HASHED.hex() + ID.hex()),
    (
        messages.ForwardRun(1, KEY, ((ID, b"f" * 120), (HASHED, b"g" * 121))),
        "8b01" + KEY.hex() + "02" + ID.hex() + "00000078" + "66" * 120 + HASHED.hex() + "00000079" + "67" * 121,
    ),
    (messages.Forward(1, ID, KEY, b"f" * 120), "8301" + ID.hex() + KEY.hex() + "66" * 120),
    (
        messages.KeyAdvert(KEY, KEY_2, 2**63 + 1, SIGNATURE),
        "84" + KEY.hex() + KEY_2.hex() + "8000000000000001" + SIGNATURE.hex(),
    ),
    (messages.KeyQuery(KEY), "85" + KEY.hex()),
    (messages.KeyUnknown(KEY), "85" + KEY.hex() + "00"),
    (messages.Gone(KEY), "86" + KEY.hex()),
    (messages.Limits(8_388_608), "8700800000"),
    (
        messages.Presence(PresenceKind.CONNECTED, KEY, KEY_2, 2**63 + 1, 258, SIGNATURE),
        "8800" + KEY.hex() + KEY_2.hex() + "8000000000000001" + "0000000000000102" + SIGNATURE.hex(),
    ),
    (
        messages.MailOpen(messages.Presence(PresenceKind.MAILBOX, KEY, KEY_2, 1, 2, SIGNATURE)),
        "890101" + KEY.hex() + KEY_2.hex() + "0000000000000001" + "0000000000000002" + SIGNATURE.hex(),
    ),
    (messages.MailClose(), "8902"),
    (messages.MailState(MailboxState.OPEN, 258, 0x01020304, 2**63 + 1), "890301" + "00000102010203048000000000000001"),
    (messages.MailTaken((HASHED, ID)), "8904" + HASHED.hex() + ID.hex()),
    (messages.MailFetch(), "8905"),
]
"""One of everything that NODE_INFO says, and its bytes written by hand after specs/merk.md 4, 7, 10."""

CONTENTS: list[tuple[contents.Content, str]] = [
    (contents.Raw(b"\x01\x02"), "000102"),
    (contents.Raw(b""), "00"),
    (contents.Text("gr\u00fc\u00df"), "016772c3bcc39f"),
    (contents.Text(""), "01"),
    (contents.Json('{"n":1}'), "027b226e223a317d"),
    (contents.File("a.bin", b"\x01\x02\x03\x04"), "0305612e62696e01020304"),
    (contents.File("", b""), "0300"),
    (contents.Extended(0x0102030405060708, ID, contents.Raw(b"x")), "100102030405060708" + ID.hex() + "0078"),
    (contents.Extended(0, ID, contents.Text("x")), "10" + "00" * 8 + ID.hex() + "0178"),
    (contents.Extended(2**64 - 1, ID, contents.Json("1")), "10" + "ff" * 8 + ID.hex() + "0231"),
    (contents.Extended(1, ID, contents.File("n", b"x")), "100000000000000001" + ID.hex() + "03016e78"),
    (
        contents.Extended(1, ID, contents.FilePart(HASHED, KEY, 2, 3, 2**40, "n", b"x")),
        "100000000000000001"
        + ID.hex()
        + "04"
        + HASHED.hex()
        + KEY.hex()
        + "0000000200000003"
        + "0000010000000000"
        + "016e78",
    ),
    (
        contents.Extended(1, ID, contents.Receipt((HASHED, ID))),
        "100000000000000001" + ID.hex() + "0501" + HASHED.hex() + ID.hex(),
    ),
]
"""One of every content with its type byte, written by hand after specs/merk.md 3 and the layout in ``contents``."""

# What hypothesis draws

key_bytes = st.binary(min_size=32, max_size=32)
id_bytes = st.binary(min_size=16, max_size=16)
signature_bytes = st.binary(min_size=64, max_size=64)
u64 = st.integers(0, 2**64 - 1)
addresses = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
plain_texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
presences = st.builds(messages.Presence, st.sampled_from(PresenceKind), key_bytes, key_bytes, u64, u64, signature_bytes)
infos = st.one_of(
    st.just(messages.RequestServers()),
    st.builds(messages.Servers, st.lists(st.builds(messages.ServerEntry, key_bytes, addresses), max_size=5).map(tuple)),
    st.builds(messages.AddServer, addresses),
    st.builds(messages.QueryClient, key_bytes),
    st.builds(messages.ClientFound, key_bytes, key_bytes),
    st.builds(messages.ClientAbsent, key_bytes),
    st.builds(
        messages.Hello, st.integers(0, 2**32 - 1), st.sampled_from(Role), key_bytes, key_bytes, addresses | st.just("")
    ),
    st.builds(messages.Auth, signature_bytes),
    st.builds(messages.Delivery, st.integers(0, 255), key_bytes, id_bytes),
    st.builds(messages.Deliveries, st.integers(0, 255), st.lists(id_bytes, min_size=1, max_size=240).map(tuple)),
    st.builds(
        messages.ForwardRun,
        st.integers(0, 255),
        key_bytes,
        st.lists(st.tuples(id_bytes, st.binary(min_size=120, max_size=200)), min_size=1, max_size=9).map(tuple),
    ),
    st.builds(messages.Forward, st.integers(0, 255), id_bytes, key_bytes, st.binary(min_size=120, max_size=200)),
    st.builds(messages.KeyAdvert, key_bytes, key_bytes, u64, signature_bytes),
    st.builds(messages.KeyQuery, key_bytes),
    st.builds(messages.KeyUnknown, key_bytes),
    st.builds(messages.Gone, key_bytes),
    st.builds(messages.Limits, st.integers(0, 2**32 - 1)),
    presences,
    st.builds(
        messages.MailOpen,
        st.builds(messages.Presence, st.just(PresenceKind.MAILBOX), key_bytes, key_bytes, u64, u64, signature_bytes),
    ),
    st.just(messages.MailClose()),
    st.builds(
        messages.MailState, st.sampled_from(MailboxState), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), u64
    ),
    st.builds(messages.MailTaken, st.lists(id_bytes, min_size=1, max_size=64).map(tuple)),
    st.just(messages.MailFetch()),
)
plains = st.one_of(
    st.builds(contents.Raw, st.binary(max_size=80)),
    st.builds(contents.Text, plain_texts),
    json_values.map(contents.Json.of),
    st.builds(contents.File, names, st.binary(max_size=80)),
)
file_parts = st.integers(1, 2**32 - 1).flatmap(
    lambda count: st.builds(
        contents.FilePart,
        id_bytes,
        key_bytes,
        st.integers(0, count - 1),
        st.just(count),
        st.integers(80, 2**40),
        names,
        st.binary(max_size=80),
    )
)
any_content = plains | st.builds(contents.Extended, u64, id_bytes, plains | file_parts)

ADVERT = make_advert(ALICE.signing, ALICE.agreement_public, 1_700_000_000_000)
"""A valid one."""


def forwards_in(info):
    """Return the envelopes that an info is, or carries."""
    if isinstance(info, messages.ForwardRun):
        return [messages.Forward(info.hop, message_id, info.origin, frame) for message_id, frame in info.frames]
    return [info] if isinstance(info, messages.Forward) else []
