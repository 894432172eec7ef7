"""The types that a program sees, checked by mypy and never run; ``waystation`` alone is imported."""

import ssl
from typing import assert_type

import waystation
from waystation.errors import RelayUnreachableError, WaystationError


async def bhumi_types() -> None:
    """A Bhumi client asks and answers."""
    async with waystation.bhumi.open("home", "tls://relay", tls=waystation.tls("ca.pem")) as client:
        assert_type(client, waystation.bhumi.BhumiClient)
        assert_type(client.public_key, waystation.PublicKey)
        assert_type(client.invite(), str)
        reply = await client.send("alice", "hi")
        assert_type(reply, waystation.bhumi.Reply)
        assert_type(reply.outcome, waystation.bhumi.Outcome)
        assert_type(reply.check().text, str)
        async for request in client.requests():
            assert_type(request, waystation.bhumi.IncomingRequest)


async def lprp_types() -> None:
    """An LPRP tenant sends and receives; a sender only sends."""
    async with waystation.lprp.open("home", "lprp://KEY@host") as client:
        assert_type(client, waystation.lprp.LprpTenant)
        assert_type(client.public_key, waystation.PublicKey)
        async for message in client.messages():
            assert_type(message, waystation.lprp.Message)
    async with waystation.lprp.open_sender("home") as sender:
        sent = await sender.send(b"k" * 32, "hello")
        assert_type(sent, waystation.lprp.Sent)
        assert_type(sent.outcome, waystation.lprp.Outcome)
        assert_type(await sent.settled(), waystation.lprp.Outcome)


async def merk_types() -> None:
    """A MERK client sends text, bytes, JSON and files."""
    async with waystation.merk.open("home", ["wss://relay"]) as client:
        assert_type(client, waystation.merk.MerkClient)
        assert_type(client.public_key, waystation.PublicKey)
        sent = await client.send(client.public_key, waystation.merk.Json.of([1]))
        assert_type(sent, waystation.merk.SentMessage)
        assert_type(sent.outcome, waystation.merk.Outcome)
        assert_type(await sent.read(), bool)
        async for message in client.messages():
            assert_type(message, waystation.merk.Message)


async def strata_types() -> None:
    """A Strata client publishes and reads."""
    async with waystation.strata.open("home", "wss://relay") as client:
        assert_type(client, waystation.strata.ManyRelays)
        assert_type(client.public_key, waystation.PublicKey)
        sent = await client.send({"type": "POST", "text": "hello"})
        assert_type(sent, waystation.strata.Sent)
        assert_type(sent.packet, waystation.strata.Packet)
        async for delivery in client.messages():
            assert_type(delivery, waystation.strata.Delivery)


async def bsp_types() -> None:
    """A BSP client sends to groups."""
    async with waystation.bsp.open("home") as client:
        assert_type(client, waystation.bsp.BspPeer)
        assert_type(client.public_key, waystation.PublicKey)
        sent = await client.send("talk", b"hello")
        assert_type(sent.message, waystation.bsp.GroupMessage)
        assert_type(await sent.settled(), waystation.bsp.Outcome)
        async for message in client.messages("talk"):
            assert_type(message, waystation.bsp.GroupMessage)


def shared_types(sent: waystation.Sent[waystation.Outcome], error: RelayUnreachableError) -> WaystationError | None:
    """What all protocols share has one type each."""
    assert_type(waystation.PublicKey.parse("text"), waystation.PublicKey)
    assert_type(waystation.tls(), ssl.SSLContext)
    assert_type(sent.outcome.sentence, str)
    assert_type(sent.failure, WaystationError | None)
    return sent.failure or error
