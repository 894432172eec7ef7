"""The last part of ``waystation demo``: the pipeline publishes limits, and the node applies them.

The node restarts on its home, reads from a relay whose store was tampered with, and bans it. With Spark it goes on: a
flood of connections reaches the node, and the pipeline reads the journal and publishes signed findings. The running
node applies them, and the report explains them.
"""

import asyncio
import contextlib
import itertools
import json
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from waystation.core.ids import PublicKey, node_id_of
from waystation.core.packets import DropPackets, PacketQuery, PutPacket
from waystation.examples.demo.strata import COLOURS, POSTS_TYPE
from waystation.rules.abuse import STANDARDS, Measure
from waystation.rules.relay_state import State
from waystation.sdk.strata import create_identity
from waystation.sdk.strata.relay import RelayClient
from waystation.store.sqlite import SqliteStore
from waystation.transport.http_get import http_request

__all__ = ["PolicyDemo"]

STEP_TIMEOUT_S: Final = 30.0
LOOK_S: Final = 0.2
FLOODER: Final = "127.0.9.9"  # in a network of its own; on Linux all of 127.0.0.0/8 is this machine
FLOOD: Final = STANDARDS[Measure.TURNED_AWAY].limit * 2 + 200  # a network is slowed from twice the limit on
AT_ONCE: Final = 64
AGAIN: Final = 200
HOUR_S: Final = 3_600
FLOOD_S: Final = 30  # of one hour are left for it, since findings are counted by hour
TRUE_TEXT: Final = "I owe you one"
FALSE_TEXT: Final = "You owe me it"
FALSE_POSTS: Final = 3
"""A relay that served so many false packets is left alone (RFC-0004, specs/strata.md 18)."""
_OFF: Final = tuple(f"{name}.enabled=false" for name in ("bhumi", "bsp", "lprp", "merk"))


class Processes(Protocol):
    """Runs nodes and the pipeline."""

    async def serve(self, home: Path, settings: tuple[str, ...], *flags: str) -> tuple[Process, dict[str, Any]]:
        """Start a node and return it with its ready line."""

    async def stop(self, process: Process) -> None:
        """End it."""

    async def run_pipeline(self, home: Path) -> bool:
        """Run the pipeline on a node's home; return whether that went well."""


class _Relay(NamedTuple):
    url: str
    did: str
    relay_id: str


class PolicyDemo:
    """Plays the steps on the home of a node that has stopped."""

    def __init__(
        self, folder: Path, say: Callable[[str, str], None], expect: Callable[[bool, str], None], processes: Processes
    ) -> None:
        """Prepare.

        Args:
            folder: Where homes and keys lie; the node's is ``node``.
            say: Shows who did what.
            expect: Notes what is not as promised.
            processes: Starts and stops them.
        """
        self._folder = folder
        self._home = folder / "node"
        self._say = say
        self._expect = expect
        self._processes = processes
        self._admin = ""

    async def run(self, did: str, *, report: bool) -> None:
        """Play the steps.

        Args:
            did: The node's own.
            report: Run the pipeline, and play what follows from it; else the node only bans the relay that lies.
        """
        async with self._bad_relay(did) as bad, self._node(bad) as url:
            await self._wait_for_ban(bad)
            if report:
                await self._obey(bad, url)

    async def _obey(self, bad: _Relay, url: str) -> None:
        """Flood the node, run the pipeline, and see the node apply what was published."""
        await self._flood(url)
        await self._until(self._written, "the journal has not every refusal")
        if await self._processes.run_pipeline(self._home):
            await self._wait_for_snapshot()
            await self._flood_again(url)
            await self._show_relay(bad)
            self._read_report(bad)

    # The cast

    @contextlib.asynccontextmanager
    async def _bad_relay(self, reader: str) -> AsyncIterator[_Relay]:
        """Run a relay whose store was altered while it was switched off."""
        home = self._folder / "bad-relay"
        settings = (*_OFF, "admin.listen=", f"strata.replicate_allow={reader}")
        process, ready = await self._processes.serve(home, (*settings, "strata.ws=127.0.0.1:0"))
        try:
            url = ready["listeners"]["strata"]
            async with RelayClient(url, identity=create_identity(self._folder / "mallory")) as writer:
                for number in range(FALSE_POSTS):
                    await writer.post({"type": "POST", "text": TRUE_TEXT, "number": number})
        finally:
            await self._processes.stop(process)
        store = home / "store.sqlite"
        altered = _alter(store)
        self._expect(altered == FALSE_POSTS, f"{altered} posts are in the bad relay's store, expected {FALSE_POSTS}")
        self._say("bad relay", f"stopped; somebody made {FALSE_TEXT!r} of a signed {TRUE_TEXT!r} in its store")
        place = url.partition("://")[2].partition("/")[0]
        process, ready = await self._processes.serve(home, (*settings, f"strata.ws={place}"))
        key = PublicKey(bytes.fromhex(ready["node"]["public_key"]))
        try:
            yield _Relay(url, ready["node"]["did"], node_id_of(key))
        finally:
            await self._processes.stop(process)

    @contextlib.asynccontextmanager
    async def _node(self, bad: _Relay) -> AsyncIterator[str]:
        """Run the node, which reads the bad relay and does what is published; yield where its Strata relay is."""
        config = self._folder / "loop.toml"
        config.write_text(f'[[strata.upstreams]]\nurl = "{bad.url}"\nrelay_id = "{bad.did}"\n')
        (self._home / "pipeline.toml").write_text('[pipeline]\npolicy_mode = "enforce"\n')
        ports = ("strata.ws=127.0.0.1:0", "admin.listen=127.0.0.1:0")
        quickly = ("journal.segment_seconds=1", "policy.mode=enforce", "policy.poll_s=1")
        # The demo prints what the bad relay does; its warnings would repeat that between the lines.
        flags = ("--log-level", "error", "--config", str(config))
        process, ready = await self._processes.serve(self._home, (*_OFF, *ports, *quickly), *flags)
        try:
            self._admin = ready["listeners"]["admin"]
            self._say("node", "runs again, reads the bad relay, and will do what the pipeline publishes")
            yield ready["listeners"]["strata"]
        finally:
            await self._processes.stop(process)
        self._expect(process.returncode == 0, f"the node ended with {process.returncode}, not 0")

    # The plot

    async def _flood(self, url: str) -> None:
        """Connect until the node has turned enough away, all within one hour of the clock."""
        left_s = HOUR_S - time.time() % HOUR_S
        if left_s < FLOOD_S:
            self._say("flooder", f"waits {left_s:.0f} s: findings are counted by hours of the clock")
            await asyncio.sleep(left_s)
        began = time.monotonic()
        tried, refused = await self._connect_until(url, "address", FLOOD)
        took_s = time.monotonic() - began
        self._say("flooder", f"{FLOODER} connected {tried:,} times in {took_s:.1f} s; {refused:,} were rejected")

    async def _connect_until(self, url: str, reason: str, wanted: int) -> tuple[int, int]:
        """Connect from the flooder's address, without a word, until so many were refused; return tries and refusals."""
        before, tried, refused, ends_at = await self._refused(reason), 0, 0, time.monotonic() + FLOOD_S
        while refused < wanted and time.monotonic() < ends_at:
            for writer in await asyncio.gather(*[_connect(url, FLOODER) for _ in range(AT_ONCE)]):
                if writer is not None:
                    writer.transport.abort()
            tried += AT_ONCE
            refused = await self._refused(reason) - before
        self._expect(refused >= wanted, f"only {refused} of {tried} connections were refused for {reason}")
        return tried, refused

    async def _wait_for_ban(self, bad: _Relay) -> None:
        """Return once the node itself has enough of the relay."""
        view: dict[str, Any] = {}

        async def banned() -> bool:
            view.update((await self._ask("status"))["upstreams"][bad.did])
            return bool(view["state"] == State.BLACKLISTED.value)

        await self._until(banned, "the node did not ban a relay that lies")
        self._say("node", f"met {FALSE_POSTS} false packets at the bad relay: {view['trouble']}")

    async def _written(self) -> bool:
        """Return whether all refusals stand in sealed segments, where the pipeline finds them."""
        return await asyncio.to_thread(_refusals_in, self._home / "journal") >= FLOOD

    async def _wait_for_snapshot(self) -> None:
        policy: dict[str, Any] = {}

        async def taken() -> bool:
            policy.update(await self._ask("policy"))
            return bool(policy["snapshot"])

        await self._until(taken, "the node did not take what was published")
        self._expect(policy["count"] == 1, f"{policy['count']} rules are in force {policy['trouble']}, expected one")
        for rule in policy["rules"]:
            does = f"{rule['action']} {rule['amount']}, because of {rule['rule']}, {rule['mode']}"
            short = f"snapshot {policy['snapshot'][:8]}…, signed: {rule['subject_kind']} {rule['subject_ref'][:8]}…"
            self._say("node", f"took {short}: {does}")

    async def _flood_again(self, url: str) -> None:
        tried, refused = await self._connect_until(url, "policy_rate", AGAIN)
        self._say("flooder", f"tried {tried} times more; {refused} were refused at once: policy_rate")
        began = time.perf_counter()
        async with RelayClient(url) as reader, reader.subscribe(POSTS_TYPE, follow=False) as history:
            count = len([delivery async for delivery in history])
        took_ms = (time.perf_counter() - began) * 1_000
        self._expect(count > 0, "an ordinary client found nothing")
        self._say("reader", f"from another network connected at once and read {count} posts: {took_ms:.0f} ms in all")

    async def _show_relay(self, bad: _Relay) -> None:
        relays = [each for each in (await self._ask("status"))["relays"] if each["relay_id"] == bad.relay_id]
        states = [each["state"] for each in relays]
        self._expect(states == [State.BLACKLISTED.value], f"the bad relay is published as {states}")
        for each in relays:
            because = f"{each['reason']}, score {each['score']:.2f}; it is left alone"
            self._say("node", f"relay {bad.relay_id[:8]}… turned {COLOURS[State(each['state'])]}: {because}")

    def _read_report(self, bad: _Relay) -> None:
        report = self._home / "report.html"
        page = report.read_text(encoding="utf-8") if report.exists() else ""
        for shown in ("Top findings", "broke the rule burst", bad.relay_id[:8], "is blacklisted since"):
            self._expect(shown in page, f"the report does not say {shown!r}")
        self._say("report", f'open {report}: "Top findings" and "Abuse and policy" say why')

    # Looking

    async def _ask(self, what: str) -> dict[str, Any]:
        token = (self._home / "admin.token").read_text().strip()
        reply = await http_request(
            "GET", f"{self._admin}/admin/v1/{what}", headers={"Authorization": f"Bearer {token}"}
        )
        return dict(json.loads(reply.body))

    async def _refused(self, begins: str) -> int:
        """Return how many Strata connections were refused for reasons that begin so."""
        totals = (await self._ask("status"))["totals"]["refusals"]
        return sum(n for name, n in totals.items() if name.startswith(f"strata.{begins}"))

    async def _until(self, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        ends_at = time.monotonic() + STEP_TIMEOUT_S
        while time.monotonic() < ends_at:
            if await holds():
                return
            await asyncio.sleep(LOOK_S)
        self._expect(False, otherwise)


async def _connect(url: str, source: str) -> asyncio.StreamWriter | None:
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    try:
        return (await asyncio.open_connection(host, int(port), local_addr=(source, 0)))[1]
    except OSError:  # rejected before we noticed; the node's count is what matters
        return None


def _refusals_in(journal: Path) -> int:
    """Return how many connections of networks were rejected, by the sealed segments."""
    lines = [line for path in journal.rglob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
    return sum(int(json.loads(line)["attrs"]["n"]) for line in lines if '"source_ref"' in line)


def _alter(path: Path) -> int:
    """Make another text of every post in a store that nobody uses, and return how many there were.

    Each row is written anew: one that a disk changed would not be served (NODE-ROT), and this relay lies.
    """
    with contextlib.closing(SqliteStore(path)) as store:
        rows = [row for row in store.packets.page(PacketQuery(by_seq=True)).rows if TRUE_TEXT.encode() in row.canonical]
        seqs = itertools.count(store.packets.newest_seq() + 1)
        for row in rows:
            false = row.canonical.replace(TRUE_TEXT.encode(), FALSE_TEXT.encode())
            store.commit([DropPackets((row.packet_id,), remember_until=0)])
            store.commit([PutPacket(row._replace(seq=next(seqs), canonical=false))])
    return len(rows)
