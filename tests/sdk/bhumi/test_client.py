"""Laws of the Bhumi client, over a real relay on a loopback port."""

import asyncio
import contextlib
import json
import ssl

import pytest

from tests.sdk.build import LoopbackRelay
from tests.transport.build import certificates
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.messages import FrameType
from waystation.sdk import bhumi
from waystation.sdk.bhumi import Handled, Outcome
from waystation.sdk.errors import InUseError, RelayUnreachableError

UNTIL_S = 20


def run(scenario):
    """Run a scenario within ``UNTIL_S``."""

    async def bounded():
        async with asyncio.timeout(UNTIL_S):
            return await scenario()

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def pair(tmp_path, on_event=None):
    """Give two clients of one relay, of which the first listens, and the second knows it as alice."""
    async with (
        LoopbackRelay() as relay,
        bhumi.open(tmp_path / "alice", relay.url, on_event=on_event) as alice,
        bhumi.open(tmp_path / "bob", relay.url) as bob,
    ):
        token, requests = alice.invite("bob"), alice.requests()
        await relay.wait_for(FrameType.KEEPALIVE)
        await bob.accept(token, alias="alice")
        yield alice, bob, requests


def test_requests_are_answered_one_by_one(tmp_path):
    """The program answers in its own time, once; the asker gets the answer as a reply."""

    async def scenario():
        async with pair(tmp_path) as (_, bob, requests):
            asking = asyncio.create_task(bob.send("alice", "hi"))
            request = await anext(requests)
            request.answer(f"hello {request.alias}, you said {request.text}")
            reply = await asking
            with pytest.raises(InUseError, match="answered already"):
                request.answer("again")
            return reply.outcome, reply.text, request.peer == bob.public_key

    assert run(scenario) == (Outcome.ANSWERED, "hello bob, you said hi", True)


def test_request_that_fails_is_the_peers_outcome(tmp_path):
    """The asker learns that it was not handled, and why; the listener is told by an event."""
    events = []

    async def scenario():
        async with pair(tmp_path, events.append) as (_, bob, requests):
            asking = asyncio.create_task(bob.send("alice", "hi"))
            (await anext(requests)).fail("no bulb")
            return await asking

    reply = run(scenario)

    assert reply.outcome is Outcome.FAILED and not reply.retry_safe
    assert (reply.text, reply.sentence) == ("no bulb", "the peer could not handle the request: no bulb")
    assert [event.ok for event in events if isinstance(event, Handled)] == [False]


def test_serve_answers_several_at_once_and_survives_a_handler(tmp_path):
    """A handler that raises fails its own request; a cancelled ``serve`` leaves no task behind."""

    async def handler(request):
        if request.text == "bad":
            raise ValueError("bad")
        return request.text.upper()

    async def scenario():
        async with pair(tmp_path) as (alice, bob, _):
            serving = asyncio.create_task(alice.serve(handler))
            replies = [await bob.send("alice", text) for text in ("one", "bad", "two")]
            serving.cancel()
            await asyncio.wait([serving])
        return [(reply.ok, reply.text) for reply in replies if reply.ok], len(asyncio.all_tasks())

    assert run(scenario) == ([(True, "ONE"), (True, "TWO")], 1)


def test_peer_that_left_is_an_outcome(tmp_path):
    """Nothing was delivered, and the reply says so instead of raising."""

    async def scenario():
        async with pair(tmp_path) as (alice, bob, _):
            await alice.aclose()
            reply = await bob.send("alice", "still there?")
            return reply.outcome, reply.retry_safe, [peer.alias for peer in bob.peers()], await bob.recover()

    assert run(scenario) == (Outcome.OFFLINE, True, ["alice"], [])


def test_command_gives_its_data(tmp_path):
    """A command's answer is JSON, in and out."""

    async def handler(request):
        return json.dumps(request.command().cmd)

    async def scenario():
        async with pair(tmp_path) as (alice, bob, _):
            serving = asyncio.create_task(alice.serve(handler))
            data = await bob.command("alice", "led")
            serving.cancel()
            await asyncio.wait([serving])
            return data

    assert run(scenario) == "led"


def test_fault_of_the_program_reaches_its_reader(tmp_path):
    """A callback that raises ends ``requests`` with that very error, and does not hang it."""

    def on_event(event):
        if isinstance(event, Handled):
            raise ZeroDivisionError(event.request.text)

    async def scenario():
        async with pair(tmp_path, on_event) as (_, bob, requests):
            asking = asyncio.create_task(bob.send("alice", "hi"))
            (await anext(requests)).answer("hello")
            with pytest.raises(ZeroDivisionError, match="hi"):
                await anext(requests)
            return (await asking).text

    assert run(scenario) == "hello"


def test_client_moves_once_it_listens(tmp_path):
    """Before that there is no place to leave; after it the client registers at the new relay."""

    async def scenario():
        async with LoopbackRelay() as one, LoopbackRelay() as two, bhumi.open(tmp_path, one.url) as client:
            with pytest.raises(LocalError, match="does not listen"):
                await client.move(two.url)
            client.requests()
            await one.wait_for(FrameType.KEEPALIVE)
            await client.move(two.url)
            return len(two.identified)

    assert run(scenario) == 1


@pytest.mark.parametrize(
    ("relay", "reason"),
    [("tls://127.0.0.1:1", "127.0.0.1:1"), ("tls://no-such-host.invalid:443", "no-such-host.invalid")],
)
def test_open_says_why_no_relay_can_be_reached(tmp_path, relay, reason):
    """A relay that does not run, or whose name is unknown, ends ``open`` with the reason; the folder is free again."""

    async def scenario():
        with pytest.raises(RelayUnreachableError, match=reason):
            await bhumi.open(tmp_path, relay).__aenter__()
        async with bhumi.open(tmp_path, relay, keep_trying=True) as client:
            return client.invite()

    assert run(scenario).startswith("bhumi:")


def test_open_says_that_a_certificate_is_not_trusted(tmp_path):
    """A relay whose certificate is signed by an unknown authority counts as one that cannot be reached."""

    async def scenario():
        folder = certificates(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert", folder / "key")
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(RelayUnreachableError, match="certificate"):
                await bhumi.open(tmp_path / "home", f"tls://127.0.0.1:{port}").__aenter__()

    run(scenario)


def test_open_takes_the_next_relay(tmp_path):
    """One relay of several is enough."""

    async def scenario():
        async with LoopbackRelay() as relay, bhumi.open(tmp_path, ["tcp://127.0.0.1:1", relay.url]) as client:
            return client.peers()

    assert run(scenario) == []


async def shout(request):
    """Answer in capitals."""
    return request.text.upper()


def test_client_without_any_relay(tmp_path):
    """No address, no book and no invitation: what needs a relay is a LocalError; a wrong address is one at once."""

    async def scenario():
        async with bhumi.open(tmp_path) as client:
            with pytest.raises(LocalError, match="no relay is known"):
                await client.recover()
            with pytest.raises(LocalError, match="needs the address of a relay"):
                client.requests()

    with pytest.raises(LocalError, match="not a relay address"):
        bhumi.open(tmp_path, "ftp://x:1")
    run(scenario)


def test_token_is_all_that_a_client_needs(tmp_path):
    """A client that was given nothing pairs, asks, asks again when opened anew, and goes to a later token's relay."""

    async def scenario():
        async with (
            LoopbackRelay() as first,
            LoopbackRelay() as second,
            bhumi.open(tmp_path / "alice", first.url) as alice,
            bhumi.open(tmp_path / "carol", second.url) as carol,
        ):
            tokens = [alice.invite("bob"), carol.invite("bob")]
            serving = [asyncio.create_task(each.serve(shout)) for each in (alice, carol)]
            await asyncio.gather(*(each.wait_for(FrameType.I_AM) for each in (first, second)))
            async with bhumi.open(tmp_path / "bob") as bob:
                await bob.accept(tokens[0], alias="alice")
                one = await bob.send("alice", "one")
            async with bhumi.open(tmp_path / "bob") as bob:
                two = await bob.send("alice", "two")
            async with bhumi.open(tmp_path / "bob") as bob:
                await bob.accept(tokens[1], alias="carol")
                three = await bob.send("carol", "three")
                four = await bob.send("alice", "four")
            for each in serving:
                each.cancel()
            await asyncio.wait(serving)
            return [each.text for each in (one, two, three, four)]

    assert run(scenario) == ["ONE", "TWO", "THREE", "FOUR"]
