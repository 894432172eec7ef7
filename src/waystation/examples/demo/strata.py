"""The Strata part of ``waystation demo``: publish, read live and later, a forged packet, and a relay that fails.

``examples.demo.run`` calls ``run`` with two started relays. Each step checks its result.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import read_packet
from waystation.rules.relay_state import Change, State
from waystation.sdk.errors import RequestRefusedError
from waystation.sdk.relay_scores import RelayScores
from waystation.sdk.strata import ManyRelays, create_identity, packet_id_text
from waystation.sdk.strata.relay import RelayClient

__all__ = ["StrataDemo"]

STEP_TIMEOUT_S: Final = 20.0
POSTS: Final = 40
POSTS_TYPE: Final = Filters(types=("POST",))
EVALUATE_S: Final = 60  # how far the demo's clock jumps for each look at a relay
EVALUATIONS: Final = 8
COLOURS: Final = {
    State.ACTIVE: "[green]green[/green] (active)",
    State.BACKUP: "[yellow]yellow[/yellow] (backup)",
    State.PROBATION: "white (probation)",
    State.BLACKLISTED: "[red]red[/red] (blacklisted)",
}


class StrataDemo:
    """Plays the steps against two running relays."""

    def __init__(
        self, folder: Path, say: Callable[[str, str], None], expect: Callable[[bool, str], None], *relays: str
    ) -> None:
        """Prepare.

        Args:
            folder: Where keys and scores lie.
            say: Shows who did what.
            expect: Notes what is not as promised.
            relays: WebSocket addresses of the relay that stays and the one that will be stopped.
        """
        self._folder = folder
        self._say = say
        self._expect = expect
        self._relay, self._other = relays

    async def run(self, stop_other: Callable[[], Awaitable[None]]) -> None:
        """Play every step; ``stop_other`` ends the second relay."""
        alice = create_identity(self._folder / "alice")
        async with asyncio.timeout(6 * STEP_TIMEOUT_S):
            await self._publish_and_read(alice)
            await self._forge(alice)
            await self._judge(alice, stop_other)

    async def _publish_and_read(self, alice: Identity) -> None:
        async with RelayClient(self._relay) as reader, RelayClient(self._relay, identity=alice) as writer:
            taken: list[float] = []
            async with reader.subscribe(POSTS_TYPE, limit=0) as live:
                await live.history_ended.wait()
                for number in range(POSTS // 2):
                    began = time.perf_counter()
                    sent = await writer.post({"type": "POST", "text": f"post {number}"})
                    arrived = await anext(live)
                    taken.append((time.perf_counter() - began) * 1_000)
                    self._expect(arrived.packet.packet_id == sent.packet.packet_id, "another packet arrived")
            taken.sort()
            self._say("alice", f"published {len(taken)} signed posts, each durable before its OK")
            self._say("reader", f"had each live, verified, {taken[len(taken) // 2]:.1f} ms after publish (median)")
            for number in range(POSTS // 2, POSTS):
                await writer.post({"type": "POST", "text": f"post {number}"})
        async with RelayClient(self._relay) as late, late.subscribe(POSTS_TYPE, follow=False) as history:
            texts = [delivery.packet.body["content"]["text"] async for delivery in history]
        self._expect(texts == [f"post {number}" for number in range(POSTS)], f"history is {texts}")
        self._say("latecomer", f"read all {len(texts)} posts from history in order, page by page, no gap")

    async def _forge(self, alice: Identity) -> None:
        packet = alice.packet({"type": "POST", "text": "I owe you 1"}, timestamp=int(time.time()))
        forged = json.loads(packet.canonical)
        forged["content"]["text"] = "I owe you 1000"
        async with RelayClient(self._relay) as writer:
            try:
                await writer.publish(read_packet(forged, len(packet.canonical) + 100))
                code, detail = "OK", ""
            except RequestRefusedError as error:
                code, detail = error.code, error.detail
        self._expect(code == "invalid_signature", f"a forged packet got {code}")
        self._say("relay", f"refused a tampered packet: {code}, {detail}")
        async with RelayClient(self._relay) as reader:
            self._expect(await reader.get(packet.packet_id) is None, "the forged packet was stored")

    async def _judge(self, alice: Identity, stop_other: Callable[[], Awaitable[None]]) -> None:
        """Let a client judge both relays; its clock is put forward, because trust takes minutes to earn."""
        ahead_s = 0
        yellow = asyncio.Event()

        def on_change(url: str, change: Change) -> None:
            self._say("client", f"{_name(url)} turned {COLOURS[change.after]}: {change.text}")
            if url == self._other and change.after is State.BACKUP:
                yellow.set()

        scores = RelayScores(self._folder / "relay_scores.db")
        try:
            async with ManyRelays(
                scores,
                (self._relay, self._other),
                identity=alice,
                on_change=on_change,
                clock=lambda: time.time() + ahead_s,
            ) as many:
                report = None
                for number in range(3):
                    report = (await many.send({"type": "POST", "text": f"to two relays {number}"})).check()
                assert report is not None
                self._expect(len(report.receipts) == 2, f"only {len(report.receipts)} relays took a packet")
                short = packet_id_text(report.packet.packet_id)[:12]
                self._say("alice", f"published {short}… to two relays at once")
                for _ in range(EVALUATIONS):
                    ahead_s += EVALUATE_S
                    many.evaluate()
                await stop_other()
                self._say("other relay", "stopped without a word")
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    await yellow.wait()
        except TimeoutError:
            self._expect(False, "a relay that is gone did not turn yellow")
        finally:
            scores.close()


def _name(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]
