"""Laws of server.dialling.dialler: who is dialled, at which address, and what is said about it."""

import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from tests.server.build import Echo, Rig, eventually
from tests.transport.build import Site
from waystation.core.effects import Dial, Peer, Send
from waystation.server.dialling import dialler as module
from waystation.server.dialling.dialler import DIALS_MAX, Dialler
from waystation.server.merk.mesh_log import MeshLog
from waystation.server.merk.outlet import MerkOutlet
from waystation.transport.websocket.dial import WebSocketDialler


class Caller(Echo):
    """A relay that dials, and notes what became of it; what it is told is kept by peer."""

    def __init__(self):
        super().__init__(durable=False)
        self.stands = {}
        self.failed = []
        self.told = []

    def connect_upstream(self, peer, name, now):
        self.stands[name] = peer
        self._partial[peer] = b""

    def upstream_failed(self, name, now):
        self.failed.append(name)

    def receive(self, peer, data, now):
        self.told.append((peer, data))


class Stage:
    """A hub over a caller with a dialler, and a WebSocket site to dial; names lead where ``names`` says."""

    def __init__(self, site, names=None):
        self.site = site
        self.relay = Caller()
        no_links = MeshLog(lambda: {"nodes": 0, "original_relays": 0}, lambda: {"nodes": []})
        self.dialler = Dialler({"caller": MerkOutlet(WebSocketDialler(message_bytes_max=1_000_000), no_links)})
        self.asked = []
        self._names = names or {}

    async def __aenter__(self):
        self._loop = asyncio.get_running_loop()
        self._ask = self._loop.getaddrinfo
        self._loop.getaddrinfo = self._answer
        self.rig = await Rig("caller", self.relay, dialler=self.dialler).__aenter__()
        return self

    async def __aexit__(self, *error):
        self.dialler.close()
        await self.rig.__aexit__(*error)
        self._loop.getaddrinfo = self._ask

    async def _answer(self, host, port, **options):
        self.asked.append(host)
        if host not in self._names:
            return await self._ask(host, port, **options)
        if not self._names[host]:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port)) for place in self._names[host]]

    def dial(self, url, name="other", *, only_public=False):
        """Let the relay ask."""
        self.relay.outbox.append(Dial(name, url, only_public))
        self.rig.hub.plan_turn()

    async def settled(self, count=1):
        """Wait until so many dials have an answer."""
        await eventually(lambda: len(self.relay.stands) + len(self.relay.failed) >= count)


def run(story, names=None):
    """Run a story with a stage; return its result and what was logged about dialling."""

    async def main():
        async with Site() as site, Stage(site, names) as stage:
            return await story(stage)

    with capture_logs() as lines:
        result = asyncio.run(main())
    return result, [line for line in lines if line["event"].startswith("peer.") and line["event"] != "peer.closed"]


def test_dialled_pipe_is_driven_like_any_peer():
    """A name that was dialled stands under that name, is heard and written to in binary, and ends as others do."""

    async def story(stage):
        stage.dial(stage.site.url("/binary"), "them")
        theirs = await stage.site.binary.stood()
        await stage.settled()
        peer = stage.relay.stands["them"]
        stage.relay.outbox.append(Send(Peer(peer), b"hello"))
        stage.rig.hub.plan_turn()
        await eventually(lambda: stage.relay.told)
        theirs.close()
        await eventually(lambda: stage.relay.calls)
        return stage.relay.told, stage.relay.calls, stage.site.binary.heard, peer, len(stage.dialler)

    (told, calls, heard, peer, under_way), lines = run(story)

    assert (told, calls, heard) == ([(peer, b"hello")], [("disconnect", peer)], [b"hello"])
    assert under_way == 0
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("peer.connected", "debug"),
        ("peer.refused", "warning"),
    ]


def test_name_is_looked_up_once_and_that_answer_is_dialled():
    """A second look-up, which could lead elsewhere, does not happen: neither before nor after the judgement."""

    async def story(stage):
        stage.dial(f"ws://relay.example.org:{stage.site.listener.port}/binary")
        await stage.settled()
        return stage.relay.failed, [host for host in stage.asked if host != "127.0.0.1"]

    (failed, asked), _ = run(story, {"relay.example.org": ["127.0.0.1"]})

    assert (failed, asked) == ([], ["relay.example.org"])


@pytest.mark.parametrize(
    "places", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:10.0.0.1"], ["169.254.169.254"]]
)
def test_name_that_leads_inside_is_not_dialled(places):
    """Where only the open internet is allowed one inner address of the name is enough to refuse all of them."""

    async def story(stage):
        stage.dial(f"ws://relay.example.org:{stage.site.listener.port}/binary", only_public=True)
        await stage.settled()
        return stage.relay.failed, stage.site.binary.reports

    (failed, reports), lines = run(story, {"relay.example.org": places})

    assert (failed, reports) == (["other"], [])
    assert f"leads to {places[-1]}, which is not on the open internet; not dialled" in lines[0]["error"]
    assert (lines[0]["event"], lines[0]["log_level"]) == ("peer.unreachable", "warning")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_this_machine_has_many_names(host):
    """However our own address is written, a stranger cannot make us knock at it."""

    async def story(stage):
        stage.dial(f"ws://{host}:{stage.site.listener.port}/binary", only_public=True)
        await stage.settled()
        return stage.relay.failed, stage.site.sink.reports

    (failed, reports), lines = run(story)

    assert (failed, reports) == (["other"], [])
    assert len(lines) == 1


def test_public_address_passes_the_judgement(monkeypatch):
    """A name on the open internet is dialled; what is judged are the very addresses of the look-up."""
    judged = []
    monkeypatch.setattr(module, "is_public", lambda address: not judged.append(address))

    async def story(stage):
        stage.dial(f"ws://relay.example.org:{stage.site.listener.port}/binary", only_public=True)
        await stage.settled()
        return list(stage.relay.stands)

    assert run(story, {"relay.example.org": ["127.0.0.2", "127.0.0.1"]})[0] == ["other"]
    assert judged == ["127.0.0.2", "127.0.0.1"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ws://no.such.host.example:80/", "cannot find the host no.such.host.example"),
        ("http://127.0.0.1/", "not a WebSocket address"),
        ("nonsense", "not a WebSocket address"),
        ("ws://127.0.0.1:99999/", "not a WebSocket address"),
        ("ws://127.0.0.1:1/", "nobody listens on"),
        ("ws://" + "a" * 70 + ".example/", "cannot find the host"),
    ],
)
def test_what_cannot_be_reached_fails(url, says):
    """Any text may be in the effect: the relay hears that it failed, and the log says why."""

    async def story(stage):
        stage.dial(url)
        await stage.settled()
        return stage.relay.failed, stage.relay.stands

    (failed, stands), lines = run(story, {"no.such.host.example": []})

    assert (failed, stands) == (["other"], {})
    assert says in lines[0]["error"]


def test_same_trouble_is_told_once():
    """A name that stays unreachable is one line until something changes; then the change is one."""

    async def story(stage):
        dead, alive = "ws://127.0.0.1:1/", stage.site.url("/binary")
        for number, url in enumerate((dead, dead, dead, alive, dead), 1):
            stage.dial(url)
            await stage.settled(number)
            stage.relay.failed += ["counted"] * len(stage.relay.stands)
            stage.relay.stands.clear()
        stage.dial(dead, "another")
        await stage.settled(6)

    _, lines = run(story)

    assert [line["event"] for line in lines if line["event"] != "peer.refused"] == [
        "peer.unreachable",
        "peer.connected",
        "peer.unreachable",
        "peer.unreachable",
    ]


def test_hanging_name_of_a_stranger_holds_up_no_other_dial():
    """Learnt names wait for each other, so that one thread at most hangs; a configured name and an address do not."""
    hanging = []

    async def story(stage):
        loop = asyncio.get_running_loop()
        answer = loop.getaddrinfo

        async def slow(host, port, **options):
            if host.endswith(".stranger.example"):
                hanging.append(host)
                await asyncio.Event().wait()
            return await answer(host, port, **options)

        loop.getaddrinfo = slow
        for number in range(3):
            stage.dial(f"ws://{number}.stranger.example/", f"s{number}", only_public=True)
        stage.dial("ws://127.0.0.1:1/", "address", only_public=True)
        stage.dial(stage.site.url("/binary").replace("127.0.0.1", "relay.example.org"), "configured")
        await stage.settled(2)
        return list(stage.relay.stands), stage.relay.failed

    (stands, failed), _ = run(story, {"relay.example.org": ["127.0.0.1"]})

    assert (stands, failed) == (["configured"], ["address"])
    assert hanging == ["0.stranger.example"]


def test_thread_that_hangs_keeps_its_place_when_its_dial_gave_up(monkeypatch):
    """A look-up cannot be cancelled: the next begins when the thread is free, whoever waited for it."""
    monkeypatch.setattr(module, "DIAL_WITHIN_S", 0.05)
    asked = []

    async def story(stage):
        free = asyncio.Event()

        async def slow(host, port, **_):
            asked.append(host)
            await free.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "try again")

        asyncio.get_running_loop().getaddrinfo = slow
        stage.dial("ws://one.example/", "one", only_public=True)
        stage.dial("ws://two.example/", "two", only_public=True)
        await stage.settled(2)
        before = list(asked)
        free.set()
        stage.dial("ws://three.example/", "three", only_public=True)
        await stage.settled(3)
        return before

    before, lines = run(story)

    assert (before, asked) == (["one.example"], ["one.example", "three.example"])
    assert "cannot find the host three.example" in lines[-1]["error"]


def test_one_name_is_dialled_once_at_a_time():
    """Asking twice gives one connection and one answer; afterwards the name may be dialled again."""

    async def story(stage):
        url = stage.site.url("/binary")
        stage.dial(url)
        stage.dial(url)
        await stage.settled()
        await eventually(lambda: not len(stage.dialler))
        once = len(stage.site.binary.pipes)
        stage.dial(url)
        await stage.site.binary.until(lambda: len(stage.site.binary.pipes) == 2)
        return once, stage.relay.failed

    assert run(story)[0] == (1, [])


def test_dials_under_way_are_bounded():
    """Sixteen are tried at once; the seventeenth fails at once and the rest go on; none is left when it closes."""

    async def story(stage):
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
            url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
            for number in range(DIALS_MAX + 1):
                stage.dial(url, f"n{number}")
            await stage.settled()
            under_way, failed = len(stage.dialler), list(stage.relay.failed)
            stage.dialler.close()
            await eventually(lambda: not len(stage.dialler))
            stage.dial(url, "late")
            await asyncio.sleep(0)
            return under_way, failed, stage.relay.failed, stage.relay.stands

    (under_way, failed, failed_later, stands), _ = run(story)

    assert (under_way, failed) == (DIALS_MAX, [f"n{DIALS_MAX}"])
    assert (failed_later, stands) == (failed, {})


def test_silent_server_is_given_up(monkeypatch):
    """All of it together has its time."""
    monkeypatch.setattr(module, "DIAL_WITHIN_S", 0.05)

    async def story(stage):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            stage.dial(f"ws://127.0.0.1:{silent.getsockname()[1]}/")
            await stage.settled()
        return stage.relay.failed

    failed, lines = run(story)

    assert failed == ["other"]
    assert "did not answer within 0.05 s" in lines[0]["error"]


def test_slow_lookup_is_given_up(monkeypatch):
    """A resolver that never answers does not hold a place for ever."""
    monkeypatch.setattr(module, "DIAL_WITHIN_S", 0.05)

    async def story(stage):
        async def never(*_, **__):
            await asyncio.Event().wait()

        asyncio.get_running_loop().getaddrinfo = never
        stage.dial("ws://relay.example.org/")
        await stage.settled()
        return stage.relay.failed, len(stage.dialler)

    (failed, under_way), lines = run(story)

    assert failed == ["other"]
    assert under_way <= 1
    assert "did not answer within 0.05 s" in lines[0]["error"]


def test_memory_of_troubles_is_bounded(monkeypatch):
    """A stranger who names many addresses costs no memory: the oldest is forgotten."""
    monkeypatch.setattr(module, "REPORTED_MAX", 3)

    async def story(stage):
        for number in range(5):
            stage.dial("nonsense", f"n{number}")
            await stage.settled(number + 1)
        return len(stage.dialler._reported)

    assert run(story)[0] == 3
