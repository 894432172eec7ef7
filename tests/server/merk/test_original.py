"""Laws of the stand-in for the first implementation: it does what specs/merk.md saw the original do, faults and all."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.server.build import eventually
from tests.server.merk.original import (
    ADD_SERVER,
    DATA,
    FILE,
    HANDSHAKE,
    JSON,
    NO_KEY,
    NODE_INFO,
    QUERY_RESPONSE,
    RAW,
    REQUEST_SERVERS,
    TEXT,
    OriginalClient,
    OriginalRelay,
    Person,
    file_body,
    in_a_loop,
    pack,
    unpack,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/merk.json").read_text())
FRAMES = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in VECTORS["verbatim_relay"] if entry["who"] == "alice"}


def person_of(name):
    """Return a person of the vectors."""
    keys = VECTORS["clients"][name]
    return Person(bytes.fromhex(keys["ed_seed"]), bytes.fromhex(keys["x_priv"]))


ALICE, BOB = person_of("alice"), person_of("bob")
EARLY = {
    "data": ALICE.data(BOB.key, b"early"),
    "extension": pack(NODE_INFO, b"\x80"),
    "junk": b"junk",
    "bad answer": pack(HANDSHAKE, bytes(32), ALICE.key),
    "empty answer": pack(HANDSHAKE, b""),
}


@contextlib.asynccontextmanager
async def people(relay, *persons):
    """Connect clients to one relay."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(OriginalClient(relay.url, person)) for person in persons or (ALICE, BOB)]


def test_frames_are_those_of_the_vectors():
    """Keys, answer, DATA, SIGNED_DATA and questions have the bytes that the original sent."""
    challenge = unpack(FRAMES["challenge"])[3]
    data, text, value = (unpack(FRAMES[name])[3] for name in ("DATA 68 B", "SIGNED text", "SIGNED JSON"))
    file = file_body("a.bin", bytes((1, 2, 3, 4)))

    assert pack(HANDSHAKE, challenge, ALICE.key, ALICE.sign(challenge)) == FRAMES["answer"]
    assert ALICE.data(BOB.key, data[32:]) == FRAMES["DATA 68 B"]
    assert ALICE.signed(BOB.key, TEXT, text[97:]) == FRAMES["SIGNED text"]
    assert ALICE.signed(BOB.key, JSON, value[97:]) == FRAMES["SIGNED JSON"]
    assert ALICE.signed(BOB.key, FILE, file) == FRAMES["SIGNED FILE a.bin 01020304"]
    assert pack(NODE_INFO, bytes((REQUEST_SERVERS,)), ALICE.key) == FRAMES["REQUEST_SERVERS"]


def test_recipient_opens_the_ciphertext_of_the_vectors():
    """What the original encrypted is decrypted with the recipient's agreement key."""
    vector = VECTORS["encrypted_deterministic"]
    *_, payload = unpack(bytes.fromhex(vector["frame_sig_over_whole_payload"]))
    plain = bytes.fromhex(vector["plaintext"])

    assert BOB.opened(payload[32:]) == (plain[0], plain[1:])


@in_a_loop
async def test_delivery_loses_what_the_relay_strips():
    """The relay takes the target away and the client cuts once more: short content vanishes, signed content is torn."""
    async with OriginalRelay(b"r" * 32) as relay, people(relay) as (alice, bob):
        await alice.say(ALICE.data(BOB.key, b"0" * 32 + b"left"))
        await alice.say(ALICE.data(BOB.key, b"short"))
        await alice.say_text(BOB.key, "hello")
        heard = [await bob.next() for _ in range(3)]

    assert [(sender, kind) for sender, kind, _ in heard] == [(ALICE.key, RAW)] * 3
    assert [body for _, _, body in heard[:2]] == [b"left", b""]
    assert (len(heard[2][2]), heard[2][2][-6:]) == (38, b"\x01hello")
    assert relay.key == alice.relay_key


@in_a_loop
async def test_two_originals_do_not_link():
    """Each takes the other's challenge for a failed answer and closes."""
    async with OriginalRelay(b"1" * 32) as one, OriginalRelay(b"2" * 32) as two:
        one.dial(two.url)
        await eventually(lambda: all(task.done() for task in one._tasks), "the end of the link")

    assert (one.servers, two.servers, two.clients) == ({}, {}, {})


@in_a_loop
async def test_mended_originals_forward_one_way():
    """The dialler asks and forwards; the acceptor holds it for a client and loses what goes the other way."""
    async with OriginalRelay(b"1" * 32, mended=True) as one, OriginalRelay(b"2" * 32, mended=True) as two:
        one.dial(two.url)
        await eventually(lambda: two.key in one.servers and one.key in two.clients, "the link")
        async with people(one, ALICE) as (alice,), people(two, BOB) as (bob,):
            await bob.say(BOB.data(ALICE.key, b"0" * 32 + b"never"))
            await alice.say(ALICE.data(BOB.key, b"0" * 32 + b"across"))
            heard = await bob.next()

    assert heard == (ALICE.key, RAW, b"across")
    assert (two.queries, alice.arrived.qsize()) == ([BOB.key], 0)


@in_a_loop
async def test_frames_behind_a_question_are_dropped():
    """While one frame waits for an answer, further ones for its target are lost; the first answer decides."""
    async with OriginalRelay(b"1" * 32) as relay, OriginalClient(relay.url, ALICE) as alice:
        for _ in range(3):
            await alice.say(ALICE.data(BOB.key, b"waits"))
        await eventually(lambda: relay._pending, "the question")
        await alice.say(pack(NODE_INFO, bytes((QUERY_RESPONSE, 0)) + BOB.key, ALICE.key))
        await eventually(lambda: not relay._pending, "the forged answer to be believed")
        async with OriginalClient(relay.url, BOB) as bob:
            await alice.say(ALICE.data(BOB.key, b"0" * 32 + b"late"))

            assert (await bob.next())[2] == b"late"


@in_a_loop
async def test_newer_connection_of_a_key_wins():
    """The older one is closed without a code."""
    async with OriginalRelay(b"r" * 32) as relay, people(relay, ALICE, ALICE) as (old, _):
        assert await old.closed() == 1005


@pytest.mark.parametrize("frame", EARLY.values(), ids=EARLY.keys())
@in_a_loop
async def test_stranger_who_says_anything_else_is_closed(frame):
    """Before the answer to the challenge nothing else is taken."""
    async with OriginalRelay(b"r" * 32) as relay, connect(relay.url) as connection:
        challenge = unpack(await connection.recv())
        await connection.send(frame)
        await asyncio.wait_for(connection.wait_closed(), 20)

    assert (challenge[0], challenge[1], len(challenge[3])) == (HANDSHAKE, NO_KEY, 32)
    assert connection.close_code == 1005


@in_a_loop
async def test_address_from_a_client_is_dialled():
    """ADD_SERVER is believed whoever says it."""
    async with OriginalRelay(b"1" * 32) as relay, OriginalClient(relay.url, ALICE) as alice:
        url = b"ws://127.0.0.1:1/"
        await alice.say(pack(NODE_INFO, bytes((ADD_SERVER, len(url))) + url, ALICE.key))
        await eventually(lambda: relay.dialled, "the dial")

    assert relay.dialled == [url.decode()]


@in_a_loop
async def test_client_speaks_like_the_vectors_after_any_challenge():
    """It answers every challenge, and believes encrypted frames only when the whole payload is signed."""
    async with OriginalRelay(b"r" * 32) as relay, OriginalClient(relay.url, BOB) as bob:
        link = relay.clients[BOB.key]
        await link.connection.send(pack(HANDSHAKE, bytes(32)))
        await link.connection.send(ALICE.encrypted(BOB.key, BOB.agreement_key, TEXT, b"lost"))
        await link.connection.send(ALICE.encrypted(BOB.key, BOB.agreement_key, TEXT, b"kept", whole=True))
        heard = await bob.next()

    assert heard == (ALICE.key, TEXT, b"kept")
    assert (bob.challenges_count, bob.complaints) == (2, ["invalid signature"])


def test_data_kind_is_two():
    """The number that every delivery of the original has."""
    assert unpack(ALICE.data(BOB.key, b""))[:2] == (DATA, ALICE.key)
