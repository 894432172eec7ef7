import asyncio
import socket

import pytest

from tests.protocols.strata.build import signed
from tests.sdk.strata.build import ALICE, BOB, CAROL, RELAY_1, RelayServer, ScriptedServer
from tests.server.build import eventually
from waystation.core.dids import encode_did
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.events import Authenticated, ServerNamed, Violation
from waystation.protocols.strata.client.identity import Identity, revoke_key, rotate_key
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import packet_id_text
from waystation.sdk.errors import OutcomeUnknownError, RelayLiedError, RelayUnreachableError, RequestRefusedError
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.strata.relay import RelayClient

ME = Identity.of(ALICE)
NOW = 1_800_000_000


def scenario(test):
    """Run an async test within a minute."""

    def run():
        asyncio.run(asyncio.wait_for(test(), 60))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def client(server, **options):
    """Return a client of a server that comes back quickly."""
    return RelayClient(server.url, retry_first_s=0.01, **options)


async def texts(subscription):
    """Return the texts of everything a subscription gives."""
    return [delivery.packet.body["content"].get("text") async for delivery in subscription]


@scenario
async def test_client_publishes_reads_and_gets():
    """What one publishes another reads as signed, over WebSocket and HTTP."""
    async with RelayServer() as server, client(server, identity=ME) as one, client(server) as other:
        receipt = await one.post({"type": "POST", "text": "hello"})
        [read] = [delivery async for delivery in other.subscribe(follow=False)]
        got = await other.get(receipt.packet.packet_id)
        absent = await other.get(b"\1" * 32)

    assert not receipt.duplicate
    assert read.packet.canonical == receipt.packet.canonical
    assert (read.verified, read.live, read.origin_type) == (True, False, "UNKNOWN")
    assert got.packet == read.packet
    assert absent is None


@scenario
async def test_live_packets_follow_history():
    """One iteration gives what was stored and then what comes."""
    async with RelayServer() as server, client(server, identity=ME) as one, client(server) as other:
        await one.post({"type": "POST", "text": "before"})
        async with other.subscribe() as subscription:
            first = await anext(subscription)
            await subscription.history_ended.wait()
            await one.post({"type": "POST", "text": "after"})
            second = await anext(subscription)

    assert [first.packet.body["content"]["text"], first.live] == ["before", False]
    assert [second.packet.body["content"]["text"], second.live] == ["after", True]


@scenario
async def test_subscription_survives_a_lost_connection():
    """The client connects again, goes on behind what it had, and repeats nothing."""
    async with (
        RelayServer() as server,
        client(server, identity=ME) as one,
        client(server) as other,
        other.subscribe() as subscription,
    ):
        await one.post({"type": "POST", "text": "1"})
        first = await anext(subscription)
        await server.cut()
        await one.post({"type": "POST", "text": "2"})
        second = await anext(subscription)

    assert [each.packet.body["content"]["text"] for each in (first, second)] == ["1", "2"]


@scenario
async def test_saved_cursor_goes_on_in_another_client():
    """Whoever keeps the cursor of what it took loses nothing and repeats nothing."""
    async with RelayServer() as server, client(server, identity=ME) as one:
        for number in range(5):
            await one.post({"type": "POST", "text": f"{number}"})
        async with client(server) as reader, reader.subscribe() as subscription:
            for _ in range(2):
                await anext(subscription)
            place = subscription.cursor, subscription.received_at
        async with client(server) as reader:
            rest = await texts(reader.subscribe(cursor=place[0], received_at=place[1], follow=False))

    assert rest == ["2", "3", "4"]


@scenario
async def test_limit_and_order_choose_the_newest():
    """Descending with a limit gives the newest first."""
    async with RelayServer() as server, client(server, identity=ME) as one:
        for number in range(4):
            await one.post({"type": "POST", "text": f"{number}"})
        newest = await texts(one.subscribe(Filters(descending=True), limit=2, follow=False))

    assert newest == ["3", "2"]


@scenario
async def test_packets_of_an_added_key_are_believed():
    """A reader learns the author's key events before it judges the packets."""
    async with RelayServer() as server, client(server, identity=ME) as one:
        packet, renewed = rotate_key(ME, BOB, "keys-2", int(one._clock()))
        await one.publish(packet)
        async with client(server, identity=renewed) as two:
            receipt = await two.post({"type": "POST", "text": "new key"})
        events = []
        async with client(server, on_event=events.append) as reader:
            got = await reader.get(receipt.packet.packet_id)
            read = await texts(reader.subscribe(Filters(authors=(ME.did,), types=("POST",)), follow=False))

    assert got.packet.author_id == ME.did
    assert read == ["new key"]
    assert not [event for event in events if isinstance(event, Violation)]


@scenario
async def test_refusal_raises_with_its_code():
    """A revoked key's packet is refused by its name."""
    async with RelayServer() as server, client(server, identity=ME) as one:
        await one.publish(revoke_key(ME, ME.key_id, int(one._clock()) - 1_000))
        with pytest.raises(RequestRefusedError) as refused:
            await one.post({"type": "POST", "text": "late"})

    assert refused.value.code == "key_revoked"


@scenario
async def test_identity_is_shown_to_the_relay_and_pinned():
    """AUTH goes by itself, and a relay of another name at the same address gets no signature."""
    events, left = [], asyncio.Event()

    def watch(event):
        events.append(event)
        if isinstance(event, Disconnected):
            left.set()

    async with RelayServer() as server, client(server, identity=ME, on_event=watch) as one:
        await one.post({"type": "POST", "text": "x"})
        authenticated = one.authenticated
        other = client(server, identity=ME, server_id=encode_did(CAROL.public), on_event=watch)
        other.start()
        await left.wait()
        refused = other.authenticated
        await other.aclose()

    assert authenticated
    assert not refused
    assert ServerNamed(encode_did(RELAY_1.public)) in events
    assert [type(event) for event in events].count(Authenticated) == 1


@scenario
async def test_row_20_mute_relay_is_no_success():
    """No answer within the time raises, and says that the outcome is unknown."""
    async with ScriptedServer(lambda _message: []) as server, client(server, identity=ME, authenticate=False) as one:
        await one.reached()
        for timeout_s in (0.2, 2, 20):  # on a busy machine the first may be over before the packet has left
            with pytest.raises((OutcomeUnknownError, RelayUnreachableError)) as raised:
                await one.post({"type": "POST", "text": "x"}, timeout_s=timeout_s)
            if server.got:
                break

    assert raised.type is OutcomeUnknownError
    assert not one.authenticated


@scenario
async def test_packet_whose_answer_was_lost_is_asked_about():
    """STRATA-ASKAGAIN: the same bytes go over each next connection; a relay that has them says ``duplicate``."""
    cuts = 3

    def script(message):
        nonlocal cuts
        if message.get("type") != "PUBLISH":
            return []
        cuts -= 1
        if cuts >= 0:
            raise OSError("the connection is cut before the answer")
        named = {"packet_id": packet_id_text(packet.packet_id), "client_msg_id": message["client_msg_id"]}
        return [{"type": "OK", "status": "ACCEPTED", "duplicate": True} | named]

    packet = ME.packet({"type": "POST", "text": "x"}, timestamp=NOW)
    async with ScriptedServer(script) as server, client(server, retry_cap_s=0.02) as one:
        receipt = await one.publish(packet)

    sent = [message["packet"] for message in server.got if message.get("type") == "PUBLISH"]
    assert receipt.duplicate
    assert len(sent) == 4 and all(each == sent[0] for each in sent)


@scenario
async def test_packet_that_left_before_the_relay_refused_us_is_unknown():
    """It may be stored: that the relay serves us no more says nothing about what it took before."""

    def script(message):
        if message.get("type") != "PUBLISH":
            return []
        one._refuse(RequestRefusedError(one.url, "forbidden", "banned"))
        return []

    async with ScriptedServer(script) as server, client(server, identity=ME, authenticate=False) as one:
        with pytest.raises(OutcomeUnknownError):
            await one.post({"type": "POST", "text": "x"})
        with pytest.raises(RequestRefusedError):
            await one.post({"type": "POST", "text": "never sent"})


@scenario
async def test_packet_that_never_left_is_not_unknown():
    """While there is no connection nothing is in doubt."""
    server = RelayServer()
    async with server:
        one = client(server, identity=ME, retry_cap_s=0.02)
        one.start()
        await one.reached()
    await eventually(lambda: not one.connected)
    with pytest.raises(RelayUnreachableError):
        await one.post({"type": "POST", "text": "x"}, timeout_s=0.05)
    await one.aclose()


@scenario
async def test_nobody_at_the_address_is_said_at_once():
    """The first connection fails with a sentence."""
    with pytest.raises(RelayUnreachableError):
        async with RelayClient("ws://127.0.0.1:1/strata"):
            pass


@scenario
async def test_cancelled_open_leaves_nothing():
    """A relay that says nothing, and a caller whose time is over: no task goes on connecting."""
    before = asyncio.all_tasks()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RelayClient(f"ws://127.0.0.1:{silent.getsockname()[1]}/strata")
        entering = asyncio.create_task(client.__aenter__())
        await asyncio.wait([entering], timeout=0.05)
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)

    assert asyncio.all_tasks() == before


@scenario
async def test_row_43_tampered_event_is_not_delivered():
    """A relay that changes a packet is left, and the program gets nothing of it."""
    bad = signed({"version": 1, "timestamp": NOW, "author_id": ME.did, "content": {"type": "POST", "text": "x"}}, BOB)
    events, left = [], asyncio.Event()

    def script(message):
        if message["type"] != "SUBSCRIBE":
            return []
        ended = {"type": "EOSE", "subscription_id": message["subscription_id"], "has_more": False}
        if "KEY_EVENT" in message["filters"].get("types", ()):
            return [ended]
        served = {"type": "EVENT", "subscription_id": message["subscription_id"], "packet": bad, "received_at": NOW}
        return [served, ended]

    def watch(event):
        events.append(event)
        if isinstance(event, Disconnected):
            left.set()

    async with (
        ScriptedServer(script) as server,
        RelayClient(server.url, on_event=watch, retry_first_s=60) as one,
        one.subscribe() as subscription,
    ):
        waiting = asyncio.create_task(anext(subscription))
        await left.wait()
        nothing = not waiting.done()
        waiting.cancel()

    assert nothing
    assert [event.reason for event in events if isinstance(event, Violation)] == ["signature"]


@scenario
async def test_relay_with_damaged_packets_is_read_to_its_end():
    """Of nine packets three are damaged: the reader gets six, and each of the three is one violation (STRATA-BAD)."""
    events = []
    packets = [ME.packet({"type": "POST", "text": f"{number}"}, timestamp=NOW) for number in range(9)]
    rotten = {
        number: packet.body | {"content": {"type": "POST", "text": f"{number}x"}}
        for number, packet in enumerate(packets)
        if number % 3 == 1
    }

    def script(message):
        if message["type"] != "SUBSCRIBE":
            return []
        subscription_id, first = message["subscription_id"], int(message["filters"].get("cursor") or -1) + 1
        served = {"type": "EVENT", "subscription_id": subscription_id, "received_at": NOW}
        wanted = range(first, 9) if "types" not in message["filters"] else ()
        found = [served | {"packet": rotten.get(n, packets[n].body), "cursor": f"{n}"} for n in wanted]
        return [*found, {"type": "EOSE", "subscription_id": subscription_id, "cursor": "8", "has_more": False}]

    async with (
        ScriptedServer(script) as server,
        RelayClient(server.url, on_event=events.append, retry_first_s=0.01) as one,
    ):
        found = await texts(one.subscribe(follow=False))

    assert found == [f"{number}" for number in range(9) if number % 3 != 1]
    assert [event.reason for event in events if isinstance(event, Violation)] == ["packet_id"] * 3
    assert sum(isinstance(event, Connected) for event in events) == 2


@scenario
async def test_http_answer_that_is_another_packet_is_a_lie():
    """What is got by id must have that id, a signature and its field."""
    events = []
    wanted = ME.packet({"type": "POST", "text": "wanted"}, timestamp=NOW)
    other = ME.packet({"type": "POST", "text": "other"}, timestamp=NOW)
    path = f"/strata/packets/{wanted.body['packet_id']}"
    async with ScriptedServer(lambda _message: []) as server:
        one = RelayClient(server.url, on_event=events.append)
        for page in ({"packet": other.body, "received_at": NOW}, {"packet": wanted.body}, b"[]", b"{", {}):
            server.pages[path] = (200, page)
            with pytest.raises(RelayLiedError):
                await one.get(wanted.packet_id)
        server.pages[path] = (503, {})
        with pytest.raises(RequestRefusedError):
            await one.get(wanted.packet_id)

    assert [type(event) for event in events] == [Violation]


@scenario
async def test_refused_subscription_ends_the_iteration():
    """The reason stands in the error."""
    async with RelayServer(anonymous=["publish"]) as server, client(server) as one:
        with pytest.raises(RequestRefusedError) as refused:
            await texts(one.subscribe(Filters(types=("KEY_EVENT",)), follow=False))

    assert refused.value.code == "unauthenticated"


@scenario
async def test_connection_is_told_to_whoever_listens():
    """Connected comes first, Disconnected with the time it stood."""
    events, back = [], asyncio.Event()

    def watch(event):
        events.append(event)
        if len([each for each in events if isinstance(each, Connected)]) == 2:
            back.set()

    async with RelayServer() as server, client(server, on_event=watch):
        await server.cut()
        await back.wait()

    told = [type(event) for event in events if isinstance(event, Connected | Disconnected)]
    assert told[:3] == [Connected, Disconnected, Connected]


@scenario
async def test_misuse_is_refused_here():
    """Publishing content needs an identity, and a page has at most 500 packets."""
    one = RelayClient("ws://127.0.0.1:1/strata")

    with pytest.raises(LocalError):
        await one.post({"type": "POST"})
    with pytest.raises(LocalError):
        one.subscribe(limit=501)
    with pytest.raises(LocalError):
        RelayClient("http://127.0.0.1:1")
