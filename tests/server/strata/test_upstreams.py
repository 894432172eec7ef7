"""Laws of server.upstreams: who is dialled, who is dialled again, and who is left alone."""

import asyncio
import json
import random
import socket
import time

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from tests.protocols.strata.build import ALICE, did, post
from tests.server.build import Rig, eventually
from waystation.core.ids import node_id_of
from waystation.core.packets import PacketQuery
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.engine.policy import Policy, Stance
from waystation.protocols.strata.limits import DEFAULT_LIMITS, StrataLimits
from waystation.protocols.strata.relay import replication
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings, read_upstreams
from waystation.rules.policy import PolicyTable, RelayScore
from waystation.rules.relay_state import Incident, State
from waystation.server.hub import monotonic_now
from waystation.server.strata import upstreams as module
from waystation.server.strata.upstreams import Upstreams, longest_wait_s
from waystation.store.memory import MemoryStore

UP = KeyPair.from_seed(b"u" * 32)
OWN = KeyPair.from_seed(b"o" * 32)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait for hundredths of a second where the node waits for seconds."""
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(module, "RETRY_MAX_S", 0.02)
    monkeypatch.setattr(module, "AVOIDED_S", 0.01)


class Upstream:
    """A relay made of the `websockets` library: counts dials, lets everybody in, and serves ``events`` once each."""

    def __init__(self, *events, keeps=True):
        self.events = [list(events)]
        self.dials = 0
        self.asked = []
        self.keeps = keeps

    async def talk(self, connection):
        """Serve one connection, or end it at once."""
        self.dials += 1
        if not self.keeps:
            return
        try:
            await self._say(connection, type="AUTH_CHALLENGE", challenge="A" * 44, server_id=did(UP), expires_at=1)
            async for text in connection:
                await self._on_message(connection, json.loads(text))
        except ConnectionClosed:
            return  # the node had enough

    async def _on_message(self, connection, message):
        if message["type"] == "AUTH":
            names = ("author_id", "capabilities")
            await self._say(connection, type="AUTH_OK", **{name: message[name] for name in names})
            return
        self.asked.append(message)
        for packet in self.events.pop(0) if self.events else ():
            fields = {"packet": packet, "received_at": int(time.time()), "subscription_id": message["subscription_id"]}
            await self._say(connection, type="EVENT", **fields)

    @staticmethod
    async def _say(connection, **message):
        await connection.send(json.dumps(message))


class Dialling:
    """A node in this loop that reads one upstream."""

    def __init__(self, upstream=None, store=None, url=None, policy=None, limits=DEFAULT_LIMITS):
        self.limits = limits
        self.upstream, self.url, self.policy = upstream, url, policy
        self.store = store or MemoryStore()
        self.relay = None

    async def __aenter__(self):
        self.server = await serve(self.upstream.talk, "127.0.0.1", 0) if self.upstream else None
        if self.server is not None:
            self.url = f"ws://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/strata"
        settings = StrataSettings(upstreams=[{"url": self.url, "relay_id": did(UP)}])
        self.relay = StrataRelay(settings, OWN, self.store, random.Random(1), limits=self.limits)
        self.relay.set_wall(monotonic_now(), time.time_ns() // 1_000)
        self.rig = await Rig("strata", self.relay, self.store).__aenter__()
        entries = read_upstreams(settings.upstreams)
        self.upstreams = Upstreams(self.rig.hub, self.relay, entries, random.Random(2), self.policy)
        self.upstreams.start()
        return self

    async def __aexit__(self, *error):
        self.upstreams.close()
        await self.rig.__aexit__(*error)
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    def rests(self):
        """Return for how long the upstream is left alone."""
        return self.relay.upstream_rest_s(did(UP), monotonic_now())

    def stored(self):
        """Return the ids of what is stored."""
        return [row.packet_id for row in self.store.packets.page(PacketQuery()).rows]


def free_url():
    """Return an address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"ws://127.0.0.1:{probe.getsockname()[1]}/strata"


def fresh(text="hello"):
    """Return a packet of now."""
    return post(text, ALICE, timestamp=int(time.time()))


def test_an_upstream_is_dialled_and_read():
    """The node authenticates, asks for everything, and stores what comes."""

    async def story():
        packet = fresh()
        upstream = Upstream(packet.body)
        async with Dialling(upstream) as node:
            await eventually(node.stored, "the packet")
            return upstream.dials, upstream.asked[0], node.stored() == [packet.packet_id]

    dials, asked, stored = asyncio.run(story())

    assert (dials, stored) == (1, True)
    assert asked["filters"] == {"limit": 500, "order": "asc"}
    assert asked["replication_profile"] == "FULL_ARCHIVE"


def test_a_lost_upstream_is_dialled_again():
    """Whoever ends the connection, the next one follows by itself."""

    async def story():
        upstream = Upstream(keeps=False)
        async with Dialling(upstream):
            return await eventually(lambda: upstream.dials >= 4, "the fourth dial")

    assert asyncio.run(story())


def test_an_upstream_that_does_not_listen_is_dialled_on():
    """More than ten failures are no reason to stop; one line a minute says so, and debug lines the rest."""

    async def story():
        with capture_logs() as logs:
            async with Dialling(url=free_url()) as node:
                await eventually(lambda: len(logs) >= 12, "the twelfth attempt")
                return node.rests(), [(line["event"], line["log_level"]) for line in logs[:12]]

    rests, lines = asyncio.run(story())

    assert rests == 0
    assert lines == [("upstream.unreachable", "warning"), *[("upstream.unreachable", "debug")] * 11]


@pytest.mark.parametrize(("lasted_s", "most_s"), [(0, 6), (4.9, 6), (5, 3), (10, 3)])
def test_who_could_not_be_reached_is_dialled_soon(lasted_s, most_s):
    """NODE-REDIAL: within 3 s when nobody answered, within 6 s when the network said so at once."""
    assert longest_wait_s(lasted_s, is_answered=False) == most_s


def test_who_answered_and_ended_the_connection_is_dialled_less_and_less():
    """It costs both sides a handshake, so it may wait as long as it ever does."""
    assert longest_wait_s(0, is_answered=True) == longest_wait_s(600, is_answered=True) == module.RETRY_MAX_S


def test_an_address_that_is_none_is_a_failure_too():
    """What only looks like an address is logged like one where nobody listens; the task goes on."""

    async def story():
        with capture_logs() as logs:
            async with Dialling(url="ws://127.0.0.1:99999/strata"):
                await eventually(lambda: len(logs) >= 2, "the second attempt")
                return [line["event"] for line in logs]

    assert set(asyncio.run(story())) == {"upstream.unreachable"}


def test_a_banned_upstream_is_not_dialled():
    """A ban on the disk holds from the first moment of the next start."""

    async def story():
        upstream, store = Upstream(), MemoryStore()
        entry = read_upstreams([{"url": "ws://x/", "relay_id": did(UP)}])[0]
        known = replication.Replica(entry, OWN, random.Random(1), None, InForce(DEFAULT_LIMITS))
        for _ in range(3):
            known.upstream_score.violated(Incident.BAD_SIGNATURE, int(time.time()))
        known.note()
        store.commit((known.change(),))
        with capture_logs() as logs:
            async with Dialling(upstream, store) as node:
                await eventually(lambda: logs, "the log line")
                return upstream.dials, node.rests(), logs[0]["event"]

    dials, rests, event = asyncio.run(story())

    assert (dials, event) == (0, "upstream.rests")
    assert rests > 3_500


def test_an_upstream_that_is_held_can_be_left():
    """A connection that is not read at its end is over all the same, and the next one is dialled."""

    async def story():
        good, forged = fresh("good"), fresh("forged")
        upstream = Upstream(
            forged.body | {"signature": good.body["signature"]}, *[fresh(f"{n}").body for n in range(9)]
        )
        upstream.events.append([good.body])
        async with Dialling(upstream, limits=StrataLimits(upstream_packets=1)) as node:
            await eventually(lambda: good.packet_id in node.stored(), "the second connection")
            return upstream.dials, forged.packet_id in node.stored(), node.rests()

    assert asyncio.run(story()) == (2, False, 0)


def test_closing_ends_the_dialling():
    """After ``close`` nobody is dialled any more; what stands is the hub's."""

    async def story():
        upstream = Upstream(keeps=False)
        async with Dialling(upstream) as node:
            await eventually(lambda: upstream.dials >= 1, "the first dial")
            node.upstreams.close()
            tasks = node.upstreams._tasks
            await asyncio.wait(tasks)
            return [task.cancelled() for task in tasks]

    assert asyncio.run(story()) == [True]


def blacklisting(stance, lasts_s):
    """Return a policy that calls the upstream blacklisted for so many seconds."""
    policy, wall_us = Policy(stance), time.time_ns() // 1_000
    policy.set_wall(monotonic_now(), wall_us)
    score = RelayScore(node_id_of(UP.public), 0.1, State.BLACKLISTED, 0, "violations", 0)
    policy.use(PolicyTable((), wall_us + int(lasts_s * 1_000_000)), {score.relay_id: score})
    return policy


def test_blacklisted_upstream_is_dialled_once_that_has_ended():
    """While a published snapshot calls it so nobody dials it, and that is said once; shadow only counts."""

    async def story(stance, lasts_s):
        policy = blacklisting(stance, lasts_s)
        async with Dialling(Upstream(), policy=policy) as node:
            await eventually(lambda: policy.matches() and node.upstream.dials, "the first dial")
            return sum(policy.matches().values())

    with capture_logs() as lines:
        times = asyncio.run(story(Stance.ENFORCE, 0.06))
    with capture_logs() as quiet:
        once = asyncio.run(story(Stance.SHADOW, 60))

    assert [line["event"] for line in lines].count("upstream.avoided") == 1
    assert times > 1
    assert once >= 1
    assert "upstream.avoided" not in [line["event"] for line in quiet]
