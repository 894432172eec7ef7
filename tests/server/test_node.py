"""Laws of server.node: what starts, what is reloaded, and what ends a node."""

import asyncio
import contextlib
import json
import logging
import resource
import signal
import socket

import pytest
import structlog

from tests.server.build import PREIMAGE, NodeProcess, eventually, key_pair
from tests.server.build_node import configured, serving
from tests.transport.datagrams.build_udp import HAS_IPV6
from waystation.core.answers import HttpAnswer
from waystation.core.errors import HostError, StoreFault
from waystation.core.ids import encode_id52
from waystation.engine.bans import Ban, parse_subject
from waystation.protocols.bhumi import messages
from waystation.server import node as node_module
from waystation.server.home import Home
from waystation.server.node import NodeServer, run
from waystation.transport.http_get import http_get


@pytest.fixture(autouse=True)
def logs():
    """Put logging back as it was: a node that reloads sends it where its configuration says."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_status_names_the_node(tmp_path, capsys):
    """The status document has what the ready line says, and the sizes of everything bounded."""

    async def story():
        async with serving(tmp_path) as (server, _):
            return server.operations.status(), server.operations.not_ready()

    status, why = asyncio.run(story())
    (line,) = [
        json.loads(text) for text in capsys.readouterr().out.splitlines() if text.startswith('{"event": "ready"')
    ]

    assert not why
    assert status["node"] == line["node"]
    assert status["listeners"] == line["listeners"]
    assert set(status["sizes"]) == {"bhumi", "bsp", "lprp", "merk", "strata", "node"}
    assert set(status["totals"]) == {"deliveries", "refusals", "packets", "lookups", "leases", "work", "messages"}


def test_public_port_tells_about_the_node(tmp_path):
    """Page, information document, mesh and Strata's documents stand beside the WebSockets of one port."""

    async def story():
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        config = configured(tmp_path, merk__ws=address, strata__ws=address, merk__public_url="ws://relay.example.org")
        page = HttpAnswer(200, (), b"a page")
        async with serving(tmp_path, config, static={"/": page}.get) as (server, _):
            paths = ("/", "/.well-known/waystation.json", "/.well-known/merk-mesh.json", "/strata/descriptor", "/x")
            replies = [await http_get(f"http://{address}{path}") for path in paths]
            return replies, server.operations.status(), address

    (page, info, mesh, *others), status, address = asyncio.run(story())
    info, mesh = json.loads(info.body), json.loads(mesh.body)

    assert status["listeners"]["merk"] == f"ws://{address}"
    assert status["listeners"]["strata"] == f"ws://{address}/strata"
    assert page.body == b"a page"
    assert info["node"] == status["node"]
    assert {protocol["port"] for protocol in info["protocols"].values()} == {None, int(address.partition(":")[2])}
    assert mesh == status["mesh"]
    assert (mesh["address"], mesh["node"]) == ("ws://relay.example.org", status["node"]["public_key"])
    assert [reply.status for reply in others] == [404, 404]


@pytest.mark.parametrize(
    ("ws", "page_host"),
    [("*:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.1"), *([("[::]:0", "[::1]")] if HAS_IPV6 else [])],
)
def test_ready_line_of_the_log_names_the_page(tmp_path, ws, page_host):
    """Where a browser on this machine finds it, whatever address is bound; without a page nothing is named."""
    page = {"/": HttpAnswer(200, (), b"a page")}.get

    async def story(static):
        config = configured(tmp_path, merk__ws=ws)
        async with serving(tmp_path, config, static=static) as (server, _):
            return server.operations.status()["listeners"]["merk"].rpartition(":")[2]

    with structlog.testing.capture_logs() as lines:
        ports = [asyncio.run(story(static)) for static in (page, None)]
    ready = [line for line in lines if line["event"] == "node.ready"]

    assert [line.get("page") for line in ready] == [f"http://{page_host}:{ports[0]}/", None]


def test_node_without_merk_has_no_mesh(tmp_path):
    """A protocol that is off leaves neither a document nor a part of the status."""

    async def story():
        config = configured(tmp_path, merk__enabled="false", strata__ws="127.0.0.1:0")
        async with serving(tmp_path, config) as (server, _):
            url = server.operations.status()["listeners"]["strata"].replace("ws:", "http:").removesuffix("/strata")
            return (await http_get(f"{url}/.well-known/merk-mesh.json")).status, server.operations.status()["mesh"]

    assert asyncio.run(story()) == (404, {})


def test_authority_of_peers_must_be_readable(tmp_path):
    """A node that could not prove its peers does not start."""
    place = Home(tmp_path)
    place.ensure()

    async def story():
        return NodeServer(configured(tmp_path, merk__peers_ca=str(tmp_path / "missing.pem")), place)

    with pytest.raises(HostError, match=r"cannot use .*missing\.pem as a certificate authority"):
        asyncio.run(story())


def test_stop_ends_with_0_and_seals_the_journal(tmp_path):
    """A node that was told to stop leaves a sealed segment whose events begin and end with its own."""

    async def story():
        async with serving(tmp_path) as (server, task):
            server.stop()
            return await task, server.operations.not_ready()

    code, why = asyncio.run(story())
    (segment,) = (tmp_path / "journal").glob("event_date=*/*.jsonl")
    kinds = [json.loads(line)["kind"] for line in segment.read_text().splitlines()]

    assert (code, why) == (0, {"why": "draining"})
    assert kinds == ["segment_opened", "node_started", "node_stopped", "segment_sealed"]


def test_memory_store_and_no_journal_leave_no_files(tmp_path):
    """``store.url = memory`` and ``journal.enabled = false`` write nothing about peers."""

    async def story():
        async with serving(tmp_path, configured(tmp_path, store__url="memory", journal__enabled="false")) as (
            server,
            _,
        ):
            await server.operations.ban(Ban("address:192.0.2.1", "floods", 1, None))
            return [ban.subject for ban in server.operations.bans()]

    assert asyncio.run(story()) == ["address:192.0.2.1"]
    assert not (tmp_path / "store.sqlite").exists()
    assert not list((tmp_path / "journal").iterdir())


def test_disk_that_refuses_ends_no_node(tmp_path):
    """A ban that the store refuses is in force and told as not kept; the node goes on unready and keeps it later."""

    async def story():
        async with serving(tmp_path) as (server, task):
            server._store._writer.execute("PRAGMA query_only = ON")
            with pytest.raises(StoreFault, match="did not take a write"):
                await server.operations.ban(Ban("address:192.0.2.1", "floods", 1, None))
            refused = server.operations.not_ready(), server.operations.status()["trouble"], task.done()
            banned = [ban.subject for ban in server.operations.bans()]
            server._store._writer.execute("PRAGMA query_only = OFF")
            await eventually(lambda: not server.operations.not_ready(), "the end of the fault")
            return refused, banned, server._store.get("bans", b"address:192.0.2.1")

    (why, trouble, is_over), banned, kept = asyncio.run(story())

    assert (why["why"], is_over) == ("store: read_only", False)
    assert "nothing is stored" in trouble[0] and "it may not be written" in trouble[0]
    assert banned == ["address:192.0.2.1"]
    assert kept is not None


def test_bans_outlive_the_process(tmp_path):
    """What was banned before a restart is banned after it, and what was lifted is not."""

    async def first():
        async with serving(tmp_path) as (server, _):
            for number in range(3):
                await server.operations.ban(Ban(f"address:192.0.2.{number}", "floods", number + 1, None))
            return await server.operations.lift_ban("address:192.0.2.1"), await server.operations.lift_ban(
                "address:192.0.2.9"
            )

    async def second():
        async with serving(tmp_path) as (server, _):
            return [ban.subject for ban in server.operations.bans()]

    assert asyncio.run(first()) == (True, False)
    assert asyncio.run(second()) == ["address:192.0.2.0", "address:192.0.2.2"]


def test_reload_applies_what_can_change(tmp_path):
    """After a reload the drain limit is the file's new one; a broken file changes nothing."""
    path = tmp_path / "node.toml"
    path.write_text("[node]\ndrain_ms = 1000\n")

    async def story():
        async with serving(tmp_path / "home", configured(tmp_path / "home", path)) as (server, _):
            path.write_text("[node]\ndrain_ms = 2000\n")
            server.reload()
            good = server._config.node.drain_ms
            path.write_text("[node]\ndrain_ms = -1\n")
            server.reload()
            return good, server._config.node.drain_ms

    assert asyncio.run(story()) == (2_000, 2_000)


def test_refused_reload_is_in_the_status_until_one_succeeds(tmp_path):
    """The log line scrolls away, and the operator believes that the new file is in force."""
    path = tmp_path / "node.toml"
    path.write_text("[node]\ndrain_ms = 1000\n")

    async def story():
        async with serving(tmp_path / "home", configured(tmp_path / "home", path)) as (server, _):
            seen = []
            for drain_ms in (-1, 2_000):
                path.write_text(f"[node]\ndrain_ms = {drain_ms}\n")
                server.reload()
                seen.append([each for each in server.operations.status()["trouble"] if "reload" in each])
            return seen

    refused, after = asyncio.run(story())

    assert len(refused) == 1
    assert "drain_ms" in refused[0]
    assert after == []


def test_reload_names_what_waits_for_a_restart_every_time(tmp_path, capsys):
    """What the running node does not use yet is named after each reload, until the file says what runs again."""
    path = tmp_path / "node.toml"
    path.write_text("[node]\nname = 'one'\n")

    async def story():
        async with serving(tmp_path / "home", configured(tmp_path / "home", path)) as (server, _):
            path.write_text("[node]\nname = 'two'\nlog_format = 'json'\n")
            server.reload()
            server.reload()
            name = server.operations.status()["name"]
            path.write_text("[node]\nname = 'one'\nlog_format = 'json'\n")
            server.reload()
            return name

    name = asyncio.run(story())
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "reload.done" in line]

    assert name == "one"
    assert [line["needs_restart"] for line in lines] == [["node.name"], ["node.name"], []]


class CountingHome(Home):
    """A home that counts how often its reference key was asked for."""

    asked = 0

    def reference_key(self, now):
        """Count, then ask."""
        self.asked += 1
        return super().reference_key(now)


def test_damaged_reference_key_is_told_once_and_looked_at_again(tmp_path, monkeypatch):
    """One line per trouble however long it lasts, and the node takes the next good key by itself."""
    monkeypatch.setattr(node_module, "_KEY_CHECK_S", 0.001)

    async def looks(place, count):
        until_count = place.asked + count
        await eventually(lambda: place.asked >= until_count, "more looks")

    async def story():
        with structlog.testing.capture_logs() as lines:
            async with serving(tmp_path, kind=CountingHome) as (server, _):
                place = server._home
                for _ in range(2):
                    place.references_path.write_text("junk")
                    await looks(place, 5)
                    place.references_path.unlink()
                    await looks(place, 5)
        return [line["log_level"] for line in lines if line["event"] == "reference_key.failed"]

    assert asyncio.run(story()) == ["error", "error"]
    assert "week" in json.loads((tmp_path / "refs.key").read_text())


def test_close_goes_on_when_a_step_fails(tmp_path):
    """A listener that will not close costs neither the journal its seal nor the store its end."""

    def refuse():
        raise HostError("the port will not close")

    async def story():
        async with serving(tmp_path) as (server, task):
            close = server._listeners.named["bhumi_plain"].close
            server._listeners.named["bhumi_plain"].close = refuse
            server.stop()
            with pytest.raises(HostError, match="will not close"):
                await task
            close()
            with pytest.raises(HostError, match="closed database"):
                server._store.get("bans", b"x")

    asyncio.run(story())
    (segment,) = (tmp_path / "journal").glob("event_date=*/*.jsonl")

    assert [json.loads(line)["kind"] for line in segment.read_text().splitlines()][-2:] == [
        "node_stopped",
        "segment_sealed",
    ]


@pytest.mark.parametrize(
    ("subject", "shown", "id52"),
    [
        (key_pair().public.hex(), "id:" + encode_id52(key_pair().public)[:8], encode_id52(key_pair().public)),
        ("192.0.2.1", "192.0.2.1", None),
    ],
)
def test_ban_is_logged_with_the_names_operators_search_for(tmp_path, subject, shown, id52):
    """The line of a ban has the short name of other lines and the id52 its owner knows; an address stays as it is."""

    async def story():
        async with serving(tmp_path) as (server, _):
            with structlog.testing.capture_logs() as lines:
                await server.operations.ban(Ban(parse_subject(subject), "floods", 1, None))
                await server.operations.lift_ban(parse_subject(subject))
        return [
            (line["event"], line["subject"].removeprefix("address:"), line.get("id52"))
            for line in lines
            if "subject" in line
        ]

    assert asyncio.run(story()) == [("ban.added", shown, id52), ("ban.lifted", shown, id52)]


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16\x03", b""]
)
def test_failed_handshake_is_at_most_a_debug_line(tmp_path, caplog, first):
    """A scan of the port costs no error, and no object of the transport reaches the logs."""

    async def story():
        async with serving(tmp_path, configured(tmp_path, bhumi__tls="127.0.0.1:0")) as (server, _):
            listener = server._listeners.named["bhumi"]
            with structlog.testing.capture_logs() as lines:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(first)
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
                await eventually(lambda: not listener._handshakes, "the end of the handshake")
        return [line for line in lines if not line["event"].startswith("node.")]

    lines = asyncio.run(story())

    assert [line for line in lines if set(line) != {"event", "log_level", "error"}] == []
    assert {(line["event"], line["log_level"]) for line in lines} <= {("handshake.failed", "debug")}
    assert caplog.records == []


def test_failed_handshake_told_to_the_loop_is_one_debug_line(tmp_path):
    """What the TLS transport reports keeps its reason and loses its objects."""
    context = {"message": "SSL handshake failed", "exception": ValueError("no cipher"), "protocol": object()}

    assert told_to_the_loop(tmp_path, context) == [
        {"event": "handshake.failed", "error": "no cipher", "log_level": "debug"}
    ]


def test_other_loop_exception_is_an_error_with_its_traceback(tmp_path):
    """A fault of ours that nobody awaited is still seen, without the objects beside it."""
    fault = ValueError("a fault")

    assert told_to_the_loop(tmp_path, {"message": "callback", "exception": fault, "transport": object()}) == [
        {"event": "loop.failed", "what": "callback", "exc_info": fault, "log_level": "error"}
    ]


def told_to_the_loop(home, context):
    """Return what a serving node logs when its loop is told of ``context``."""

    async def story():
        async with serving(home):
            with structlog.testing.capture_logs() as lines:
                asyncio.get_running_loop().call_exception_handler(context)
        return lines

    return [line for line in asyncio.run(story()) if not line["event"].startswith("node.")]


@pytest.fixture
def file_limit():
    """Give the hard limit of open files, with the soft one below it, and put both back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("allowed", [True, False])
def test_run_takes_all_the_files_it_may_open(tmp_path, monkeypatch, file_limit, allowed):
    """The soft limit becomes the hard one; where the machine does not let us, the node starts all the same."""
    place = Home(tmp_path)
    place.ensure()
    if not allowed:
        monkeypatch.setattr(resource, "setrlimit", lambda *_: (_ for _ in ()).throw(ValueError("not allowed")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = configured(tmp_path, bhumi__plain=f"127.0.0.1:{taken.getsockname()[1]}")
        with structlog.testing.capture_logs() as lines:
            sentence = refusal_of(config, place)
    monkeypatch.undo()

    assert "cannot listen" in sentence
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (file_limit if allowed else file_limit - 1)
    assert [line["log_level"] for line in lines if line["event"] == "files.limit"] == ["debug"]


def test_disabled_protocol_is_not_started(tmp_path):
    """``enabled = false`` opens no port and knows no relay."""

    async def story():
        place = Home(tmp_path)
        place.ensure()
        server = NodeServer(
            configured(
                tmp_path,
                **{f"{name}__enabled": "false" for name in ("bhumi", "bsp", "lprp", "merk", "strata")},
            ),
            place,
        )
        task = asyncio.create_task(server.serve())
        await asyncio.sleep(0)
        status = server.operations.status()
        server.stop()
        return status["listeners"], set(status["sizes"]), await task

    with structlog.testing.capture_logs() as lines:
        assert asyncio.run(story()) == ({}, {"node"}, 0)
    assert "node.serves_nothing" in [line["event"] for line in lines]


def test_run_refuses_a_taken_port_and_leaves_the_loop_clean(tmp_path):
    """``run`` raises before anything was announced, and what it had opened is closed."""
    place = Home(tmp_path / "second")
    place.ensure()

    async def story():
        async with serving(tmp_path / "first") as (server, _):
            taken = server.operations.status()["listeners"]["bhumi_plain"].removeprefix("tcp://")
            config = configured(tmp_path / "second", bhumi__plain=taken)
            return await asyncio.get_running_loop().run_in_executor(None, refusal_of, config, place)

    assert "the port is taken" in asyncio.run(story())


def refusal_of(config, place):
    """Return the sentence with which a node refuses to start."""
    with pytest.raises(HostError) as caught:
        run(config, place)
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_draining_node_says_so_and_takes_no_new_work(tmp_path):
    """While an exchange is finished /readyz is 503 and a new SEND gets status 1, its commit untouched."""
    node = NodeProcess(tmp_path / "home").start()
    with node.client() as device, node.client() as sender, node.client() as late:
        device.identify(key_pair(), PREIMAGE, bytes(32))
        sender.say(messages.Send(key_pair().public, PREIMAGE, b"ping"))
        delivered = device.deliver()
        node.signal(signal.SIGTERM)
        while node.ask("GET", "/readyz")[0] == 200:
            pass
        late.say(messages.Send(key_pair().public, bytes(32), b"too late"))
        refused = late.result()
        device.say(messages.Ack(delivered.message_id, b"done"))
        finished = sender.result()

    assert refused.status == messages.Status.NOT_CONNECTED
    assert finished.payload == b"done"
    assert node.wait() == 0
