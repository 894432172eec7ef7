"""Laws of bridging: our node and our SDK beside the first implementation, on real sockets, both ways."""

import asyncio
import contextlib
import json
import random

import pytest

from tests.server.build import eventually
from tests.server.merk.original import (
    ADD_SERVER,
    DATA,
    FILE,
    JSON,
    NODE_INFO,
    QUERY_CLIENT,
    QUERY_RESPONSE,
    RAW,
    RESPONSE_SERVERS,
    TEXT,
    OriginalClient,
    OriginalRelay,
    Person,
    in_a_loop,
    pack,
)
from tools.served import free_port
from waystation.protocols.merk.client import machine
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.relay import handshake
from waystation.sdk.merk import HostileRelayError, Json, MerkClient, Outcome, Recipients
from waystation.server.config.load import load_config
from waystation.server.home import Home
from waystation.server.node import NodeServer

ALICE, BOB, CAROL = Person(b"a" * 32), Person(b"b" * 32), Person(b"c" * 32)
OURS = Keys.from_seeds(b"o" * 32, b"x" * 32)
OUR_KEY = OURS.signing.public


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Take a relay for an original after hundredths of a second instead of two."""
    monkeypatch.setattr(handshake, "HELLO_ANSWER_MS", 20)
    monkeypatch.setattr(machine, "HELLO_ANSWER_MS", 20)


class Ours:
    """A node in this loop."""

    def __init__(self, server):
        self.server = server
        self.url = server.operations.status()["listeners"]["merk"]
        self.key = bytes.fromhex(server.operations.status()["mesh"]["node"])

    @property
    def nodes(self):
        """Key and trust of each node that it is linked with."""
        return {bytes.fromhex(node["key"]): node["trust"] for node in self.server.operations.status()["mesh"]["nodes"]}

    @property
    def sizes(self):
        """How much it has of each thing."""
        return self.server.operations.status()["sizes"]["merk"]

    async def linked_with(self, original):
        """Wait until it stands beside an original relay."""
        await eventually(lambda: self.nodes.get(original.key) == "legacy", "the link with an original relay")


@contextlib.asynccontextmanager
async def node(home, *peers, **merk):
    """Serve a node that dials ``peers``; more settings of ``[merk]`` by their names."""
    settings = {"node.home": str(home), "merk.ws": "127.0.0.1:0", "admin.listen": "", "store.url": "memory"}
    settings |= {f"{name}.enabled": "false" for name in ("bhumi", "bsp", "lprp", "strata")}
    settings |= {"merk.peers": ",".join(peers)} | {f"merk.{name}": value for name, value in merk.items()}
    place = Home(home)
    place.ensure()
    with place.lock():
        server = NodeServer(load_config(None, {}, settings), place)
        task = asyncio.create_task(server.serve())
        await eventually(lambda: task.done() or server.operations.status()["listeners"], "a listening node")
        try:
            yield Ours(server)
        finally:
            server.stop()
            await task


@contextlib.asynccontextmanager
async def people(url, *persons):
    """Connect clients of the original to one relay."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(OriginalClient(url, person)) for person in persons]


@contextlib.asynccontextmanager
async def our_client(url, *pinned, keys=OURS):
    """Connect our SDK to a relay, with the agreement keys of persons pinned."""
    recipients = Recipients()
    for person in pinned:
        recipients.set_by_hand(person.key, person.agreement_key)
    async with MerkClient(url, keys=keys, recipients=recipients, rng=random.Random(5)) as us:
        yield us


async def next_message(us):
    """Return the next message of our SDK."""
    return await asyncio.wait_for(anext(us.messages()), 20)


@pytest.mark.parametrize("path", ["", "/", "/merk"])
@in_a_loop
async def test_originals_talk_over_our_relay(tmp_path, path):
    """DATA and signed text, JSON and files arrive whole, although the original relay would have torn them."""
    async with node(tmp_path) as ours, people(ours.url + path, ALICE, BOB) as (alice, bob):
        await alice.say(ALICE.data(BOB.key, b"short"))
        await alice.say_text(BOB.key, "grüße")
        await alice.say_json(BOB.key, {"a": [1, None]})
        await alice.say_file(BOB.key, "a.bin", bytes(range(256)) * 40)
        heard = [await bob.next() for _ in range(4)]

    assert alice.relay_key == ours.key
    assert [sender for sender, _, _ in heard] == [ALICE.key] * 4
    assert [(kind, body) for _, kind, body in heard[:2]] == [(RAW, b"short"), (TEXT, "grüße".encode())]
    assert (heard[2][1], json.loads(heard[2][2])) == (JSON, {"a": [1, None]})
    assert (heard[3][1], heard[3][2]) == (FILE, b"\x05a.bin" + bytes(range(256)) * 40)


@in_a_loop
async def test_original_writes_to_our_client(tmp_path):
    """Everything that the original says is understood, and taken for what it proves."""
    async with node(tmp_path) as ours, OriginalClient(ours.url, ALICE) as alice, our_client(ours.url) as us:
        await alice.say(ALICE.data(OUR_KEY, b"short"))
        await alice.say_text(OUR_KEY, "hello")
        await alice.say_file(OUR_KEY, "a.bin", b"1234")
        await alice.say(ALICE.encrypted(OUR_KEY, OURS.agreement_public, TEXT, b"secret"))
        messages = [await next_message(us) for _ in range(4)]
        file = messages[2].content
        data = file.read_bytes()

    assert [message.sender for message in messages] == [ALICE.key] * 4
    assert [message.mode for message in messages] == [Mode.PLAIN, Mode.SIGNED, Mode.SIGNED, Mode.ENCRYPTED]
    assert [message.auth for message in messages] == [Auth.NONE, Auth.LEGACY, Auth.LEGACY, Auth.LEGACY]
    assert [message.text for message in (messages[1], messages[3])] == ["hello", "secret"]
    assert (file.name, data) == ("a.bin", b"1234")


@in_a_loop
async def test_our_client_writes_to_an_original(tmp_path):
    """The original machine reads each way of ours, encrypted text included, and our sender learns that it arrived."""
    async with node(tmp_path) as ours, OriginalClient(ours.url, BOB) as bob, our_client(ours.url, BOB) as us:
        outcomes = [
            (await us.send(BOB.key, "encrypted")).outcome,
            (await us.send(BOB.key, "signed", mode=Mode.SIGNED)).outcome,
            (await us.send(BOB.key, b"plain", mode=Mode.PLAIN)).outcome,
            (await us.send(BOB.key, Json.of({"n": 1}))).outcome,
        ]
        heard = [await bob.next() for _ in range(4)]

    assert outcomes == [Outcome.DELIVERED] * 4
    assert [sender for sender, _, _ in heard] == [OUR_KEY] * 4
    assert [(kind, body) for _, kind, body in heard[:3]] == [(TEXT, b"encrypted"), (TEXT, b"signed"), (RAW, b"plain")]
    assert (heard[3][1], json.loads(heard[3][2])) == (JSON, {"n": 1})
    assert bob.complaints == []


@in_a_loop
async def test_our_client_takes_an_original_relay(tmp_path):
    """At an original relay our machine is let in, and salvages signed text; nobody tells it what became of its own."""
    async with (
        OriginalRelay(b"r" * 32) as relay,
        OriginalClient(relay.url, ALICE) as alice,
        MerkClient(relay.url, keys=OURS, salvage=True, downloads=tmp_path) as us,
    ):
        await alice.say_text(OUR_KEY, "torn, yet whole")
        message = await next_message(us)
        outcome = (await us.send(ALICE.key, b"0" * 32 + b"left", mode=Mode.PLAIN)).outcome
        heard = await alice.next()

    assert (message.sender, message.text, message.auth) == (ALICE.key, "torn, yet whole", Auth.LEGACY)
    assert (heard, outcome.ok) == ((OUR_KEY, RAW, b"left"), False)


@in_a_loop
async def test_original_that_dials_us_is_bridged_both_ways(tmp_path):
    """On /mesh an original queries us, forwards to our clients, and delivers what ours send to its own."""
    async with node(tmp_path) as ours, OriginalRelay(b"1" * 32) as original:
        original.dial(ours.url + "/mesh")
        await ours.linked_with(original)
        async with OriginalClient(original.url, ALICE) as alice, our_client(ours.url) as us:
            await alice.say(ALICE.data(OUR_KEY, b"to you"))
            arrived = await next_message(us)
            await us.send(ALICE.key, b"0" * 32 + b"and back", mode=Mode.PLAIN)
            heard = await alice.next()

    assert original.servers.keys() == {ours.key}
    assert (arrived.sender, arrived.content.data, arrived.auth) == (ALICE.key, b"to you", Auth.NONE)
    assert heard == (OUR_KEY, RAW, b"and back")


async def said_until_it_arrives(person, content, us):
    """Return the message that arrives: an original drops what is written while it looks for the recipient."""
    arrival = asyncio.ensure_future(next_message(us))
    while not arrival.done():
        await person.say(ALICE.data(OUR_KEY, content))
        await asyncio.wait([arrival], timeout=0.2)
    return await arrival


@in_a_loop
async def test_frame_above_our_limit_ends_no_link_of_an_original(tmp_path):
    """It is dropped and counted, and what comes behind it arrives: an original would not dial again (interop M3)."""
    async with node(tmp_path, max_frame_bytes="65536") as ours, OriginalRelay(b"1" * 32) as original:
        original.dial(ours.url + "/mesh")
        await ours.linked_with(original)
        async with OriginalClient(original.url, ALICE) as alice, our_client(ours.url) as us:
            await alice.say(ALICE.data(OUR_KEY, bytes(9_000_000)))
            arrived = await said_until_it_arrives(alice, b"small", us)
            linked = dict(ours.nodes)

    assert arrived.content.data == b"small"
    assert linked == {original.key: "legacy"}


@in_a_loop
async def test_original_that_we_dial_gets_our_frames(tmp_path):
    """We are a machine there, yet it answers our questions and delivers frames of any sender: one way."""
    async with OriginalRelay(b"2" * 32) as original, node(tmp_path, original.url) as ours:
        await ours.linked_with(original)
        async with OriginalClient(original.url, BOB) as bob, OriginalClient(ours.url, ALICE) as alice:
            await alice.say(ALICE.data(BOB.key, b"0" * 32 + b"across"))
            heard = await bob.next()

    assert heard == (ALICE.key, RAW, b"across")
    assert (original.queries, original.clients.keys()) == ([BOB.key], {ours.key, BOB.key})
    assert not [info for info in original.infos if info == RESPONSE_SERVERS]


@in_a_loop
async def test_originals_reach_each_other_through_us(tmp_path):
    """A machine of an original that dialled us writes to one of an original that we dialled; it is looked for once."""
    async with OriginalRelay(b"1" * 32) as one, OriginalRelay(b"2" * 32) as two, node(tmp_path, two.url) as ours:
        one.dial(ours.url + "/mesh")
        await ours.linked_with(one)
        await ours.linked_with(two)
        async with OriginalClient(one.url, ALICE) as alice, OriginalClient(two.url, BOB) as bob:
            heard = []
            for text in (b"end to end", b"and again"):
                await alice.say(ALICE.data(BOB.key, b"0" * 32 + text))
                heard.append(await bob.next())

    assert heard == [(ALICE.key, RAW, b"end to end"), (ALICE.key, RAW, b"and again")]
    assert two.queries == [BOB.key]


@in_a_loop
async def test_nobody_is_found_where_nobody_is(tmp_path):
    """An original that asks for a machine that no other has is told so, and asks again without ours asking again."""
    async with OriginalRelay(b"1" * 32) as one, OriginalRelay(b"2" * 32) as two, node(tmp_path, two.url) as ours:
        one.dial(ours.url + "/mesh")
        await ours.linked_with(one)
        await ours.linked_with(two)
        async with OriginalClient(one.url, ALICE) as alice:
            for times in (1, 2):
                await alice.say(ALICE.data(BOB.key, b"lost"))
                await eventually(lambda times=times: one.infos.count(QUERY_RESPONSE) == times, "our answer")

    assert (two.queries, one.queries) == ([BOB.key], [])


@in_a_loop
async def test_originals_that_dialled_us_do_not_reach_each_other(tmp_path):
    """They would ask each other in a circle; a frame that one pushes for a machine of the other ends here."""
    async with OriginalRelay(b"1" * 32) as one, OriginalRelay(b"3" * 32) as other, node(tmp_path) as ours:
        for original in (one, other):
            original.dial(ours.url + "/mesh")
            await ours.linked_with(original)
        async with OriginalClient(one.url, ALICE) as alice, OriginalClient(other.url, BOB) as bob:
            await alice.say(ALICE.data(BOB.key, b"0" * 32 + b"asked"))
            await eventually(lambda: QUERY_RESPONSE in one.infos, "our answer")
            async with OriginalClient(ours.url, CAROL) as carol:
                await one.servers[ours.key].say(DATA, BOB.key + b"0" * 32 + b"pushed", ALICE.key)
                await one.servers[ours.key].say(DATA, CAROL.key + b"here", ALICE.key)
                heard = await carol.next()

    assert (heard, other.queries) == ((ALICE.key, RAW, b"here"), [])
    assert bob.arrived.empty()


@in_a_loop
async def test_originals_talk_across_two_nodes_of_ours(tmp_path):
    """A frame crosses our link in its envelope and comes out as it went in, where both nodes name each other."""
    ports = [free_port(), free_port()]
    urls = [f"ws://127.0.0.1:{port}" for port in ports]
    async with (
        node(tmp_path / "far", urls[1], ws=f"127.0.0.1:{ports[0]}") as far,
        node(tmp_path / "near", urls[0], ws=f"127.0.0.1:{ports[1]}") as near,
    ):
        await eventually(
            lambda: (near.nodes.get(far.key), far.nodes.get(near.key)) == ("mutual",) * 2, "the link of our nodes"
        )
        async with OriginalClient(near.url, ALICE) as alice, OriginalClient(far.url, BOB) as bob:
            await alice.say_text(BOB.key, "over there")
            await bob.say(BOB.data(ALICE.key, b"and back"))
            heard = await bob.next(), await alice.next()

    assert heard == ((ALICE.key, TEXT, b"over there"), (BOB.key, RAW, b"and back"))


@pytest.mark.parametrize("mended", [False, True], ids=["original", "mended"])
@in_a_loop
async def test_original_that_comes_by_the_front_door_is_no_node(tmp_path, mended):
    """Both speak first: the original takes our challenge for a failed answer, and so do we take its own."""
    async with node(tmp_path) as ours, OriginalRelay(b"1" * 32, mended=mended) as original:
        original.dial(ours.url)
        await eventually(lambda: all(task.done() for task in original._tasks), "the end of the connection")

        assert (ours.nodes, original.servers) == ({}, {})


@pytest.mark.parametrize("begins", [b"\x01", b"\x02", b"\x03", b"\x10"])
@in_a_loop
async def test_challenge_that_reads_as_content_is_not_signed(tmp_path, begins):
    """Neither our node nor our machine puts its name under 32 bytes that could be something it said."""
    async with node(tmp_path) as ours, OriginalRelay(b"1" * 32, challenge_begins=begins) as original:
        original.dial(ours.url + "/mesh")
        await eventually(lambda: all(task.done() for task in original._tasks), "the end of the link")
        with pytest.raises(HostileRelayError):
            async with MerkClient(original.url, keys=OURS, retry_first_s=0.001):
                pass

    assert (original.servers, original.clients) == ({}, {})


@in_a_loop
async def test_node_that_accepts_nobody_turns_an_original_away(tmp_path):
    """With accept_peers = false only those we dial stand beside us."""
    async with node(tmp_path, accept_peers="false") as ours, OriginalRelay(b"1" * 32) as original:
        original.dial(ours.url + "/mesh")
        await eventually(lambda: all(task.done() for task in original._tasks), "the end of the link")

        assert ours.nodes == {}


@in_a_loop
async def test_original_client_hears_of_our_nodes(tmp_path):
    """Its poll for servers is answered with the addresses of the nodes that we are linked with."""
    url = "ws://relay.example:8080/merk"
    async with node(tmp_path / "far", public_url=url) as far, node(tmp_path / "near", far.url) as near:
        await eventually(lambda: near.nodes.get(far.key) == "mutual", "the link of our nodes")
        async with OriginalClient(near.url, ALICE) as alice:
            listed = await alice.ask_servers()

    assert listed == {far.key: url}


@in_a_loop
async def test_newer_connection_of_an_original_client_wins(tmp_path):
    """The older one is closed with 4409, and frames go to the newer."""
    async with node(tmp_path) as ours, people(ours.url, ALICE, BOB, BOB) as (alice, older, newer):
        code = await older.closed()
        await alice.say_text(BOB.key, "to the newer")
        heard = await newer.next()

    assert (code, heard) == (4409, (ALICE.key, TEXT, b"to the newer"))


@in_a_loop
async def test_forged_answer_of_a_client_kills_no_delivery(tmp_path):
    """Nobody asked it, so what an authenticated machine says about another's place is not believed."""
    async with node(tmp_path) as ours, people(ours.url, ALICE, CAROL) as (alice, carol):
        await carol.say(pack(NODE_INFO, bytes((QUERY_RESPONSE, 1)) + BOB.key + CAROL.key, CAROL.key))
        await carol.say(pack(NODE_INFO, bytes((QUERY_CLIENT,)) + ALICE.key, CAROL.key))
        async with OriginalClient(ours.url, BOB) as bob:
            await alice.say_text(BOB.key, "arrives")
            heard = await bob.next()

        assert ours.server.operations.status()["totals"]["refusals"]
    assert (heard, carol.arrived.qsize()) == ((ALICE.key, TEXT, b"arrives"), 0)


@in_a_loop
async def test_journal_tells_of_links_and_searches_without_keys(tmp_path):
    """What the mesh did stands in the journal; who it was stands nowhere."""
    async with node(tmp_path / "far") as far, node(tmp_path / "near", far.url) as near:
        await eventually(lambda: near.nodes.get(far.key) == "mutual", "the link of our nodes")
        async with OriginalClient(far.url, BOB), our_client(near.url) as us:
            outcomes = [(await us.send(key, b"hello?", mode=Mode.PLAIN)).outcome for key in (CAROL.key, BOB.key)]
    (text,) = [path.read_text() for path in (tmp_path / "near/journal").glob("event_date=*/*.jsonl")]
    rows = [json.loads(line) for line in text.splitlines()]
    searches = {row["outcome"]: row["attrs"] for row in rows if row["kind"] == "mesh_lookup"}
    (link,) = [row["attrs"] for row in rows if row["kind"] == "mesh_link_ended"]
    keys = (BOB.key, CAROL.key, OUR_KEY)

    assert outcomes == [Outcome.UNKNOWN_TARGET, Outcome.DELIVERED]
    assert searches["absent"] == {"asked": "1", "found": "0", "n": "1"}
    assert searches["found"] == {"asked": "1", "found": "1", "n": "1"}
    assert (link["dialled"], link["frames_out"], link["frames_in"]) == ("1", "1", "0")
    assert far.key[:8].hex() in text
    assert far.key.hex() not in text
    assert not [key for key in keys if key.hex()[:16] in text]


@contextlib.asynccontextmanager
async def trap():
    """Listen, and count who knocks."""
    knocks = []
    server = await asyncio.start_server(lambda _, writer: (knocks.append(1), writer.close()), "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", knocks


@in_a_loop
async def test_what_an_original_says_of_servers_is_ignored(tmp_path):
    """RESPONSE_SERVERS and ADD_SERVER of a relay that proved nothing are neither dialled nor told to others."""
    async with (
        trap() as (bait, knocks),
        node(tmp_path, allow_private_peers="true") as ours,
        OriginalRelay(b"1" * 32) as original,
    ):
        original.dial(ours.url + "/mesh")
        await ours.linked_with(original)
        known = ours.sizes["addresses"]
        link = original.servers[ours.key]
        entry = CAROL.key + bytes((len(bait),)) + bait.encode()
        await link.say(NODE_INFO, bytes((RESPONSE_SERVERS, 0, 1)) + entry, original.key)
        await link.say(NODE_INFO, bytes((ADD_SERVER, len(bait))) + bait.encode(), original.key)
        await link.say(NODE_INFO, bytes((QUERY_CLIENT,)) + BOB.key, original.key)
        async with OriginalClient(ours.url, BOB) as bob:
            listed = await bob.ask_servers()

        now_known = ours.sizes["addresses"]

    assert (listed, knocks, now_known) == ({}, [], known)
