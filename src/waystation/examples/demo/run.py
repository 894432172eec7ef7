"""The demonstration of ``waystation demo``: runs every protocol once on loopback, and prints each step.

The node is a process of its own. Devices and senders from the SDK run in this one, all over TLS. Each step has an
expected result; a different result ends the demo with exit code 1. So it is also the shortest end-to-end test.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from waystation.cli.loop import run as run_loop
from waystation.cli.mcu.folder import Relay
from waystation.core.errors import HostError, RemoteError
from waystation.core.ids import PublicKey
from waystation.examples.demo.bsp import BspDemo
from waystation.examples.demo.lprp import LprpDemo
from waystation.examples.demo.mcu import McuThermometer
from waystation.examples.demo.merk import MerkDemo
from waystation.examples.demo.policy import PolicyDemo
from waystation.examples.demo.strata import StrataDemo
from waystation.protocols.bhumi.client.base import Greeted
from waystation.protocols.bhumi.client.sender import Answered, SenderClient
from waystation.protocols.bhumi.messages import Status
from waystation.sdk.bhumi import BhumiState, Device, Listening, Request, Sender
from waystation.sdk.bhumi.pairing.inviting import authority_of, invitation
from waystation.sdk.connection import Connection, now
from waystation.sdk.errors import OfflineError
from waystation.sdk.lprp import HostUrl
from waystation.transport.dial import DATAGRAM_SCHEMES, RelayUrl, dial
from waystation.transport.tls import TlsContext, authority_der, client_context

__all__ = ["Demo", "run"]

_STEP_TIMEOUT_S: Final = 20.0
_READY_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_REQUESTS: Final = 60
_SLOW_S: Final = 0.5

_console = Console(highlight=False)


def run(folder: Path, *, stay: bool, report: bool) -> bool:
    """Run the demonstration in an empty folder and print each step; return whether everything was as it should be.

    Args:
        folder: Keeps homes, journal and report.
        stay: Leave two linked nodes and the page open until Ctrl-C.
        report: Run the Spark pipeline at the end, if Spark is installed.
    """
    began = time.monotonic()
    failures = run_loop(Demo(folder, stay=stay, report=report).run())
    _console.print(f"\nEverything is in {folder}  ({time.monotonic() - began:.0f} s)", soft_wrap=True)
    for failure in failures:
        _console.print(f"[red]not as it should be:[/red] {failure}")
    return not failures


class Demo:
    """One run; ``failures`` gathers what went otherwise than promised."""

    def __init__(self, folder: Path, *, stay: bool, report: bool) -> None:
        self._folder = folder
        self._stay = stay
        self._report = report
        self._failures: list[str] = []
        self._relay = ""
        self._bsp = ""
        self._did = ""
        self._tls: TlsContext
        self._authority = b""

    async def run(self) -> list[str]:
        """Run all steps; return what went wrong."""
        bsp = BspDemo(self._folder, _say, self._expect)
        async with self._node(bsp.settings) as (lprp, strata, merk):
            lamp, visitor = self._state("lamp"), self._state("visitor")
            async with self._mcu() as thermometer, self._device("lamp", lamp) as lamp_task:
                await self._pair(thermometer.token, visitor, "thermometer")
                token = invitation(lamp, "visitor", [self._relay], authority_of(self._tls))
                await self._pair(token, visitor, "lamp")
                await self._talk(visitor)
                await self._lose_an_answer(visitor, thermometer)
                await self._switch_off(visitor, lamp_task)
                await self._replay(thermometer)
            for state in (lamp, visitor):
                state.close()
            await LprpDemo(self._folder, _say, self._expect, lprp).run()
            await bsp.run(lprp.key, self._bsp)
            await self._strata(strata)
            await self._merk(merk)
        report = self._report and importlib.util.find_spec("pyspark") is not None
        await PolicyDemo(self._folder, _say, self._expect, self).run(self._did, report=report)
        if self._report and not report:
            _say("pipeline", 'no Spark here; install it with: pip install "waystation\\[spark]"')
        return self._failures

    # The cast

    @contextlib.asynccontextmanager
    async def _node(self, more: Sequence[str]) -> AsyncIterator[tuple[HostUrl, str, str]]:
        """Run the node, with some settings more; yield where its LPRP host and its Strata and MERK relays are."""
        home = self._folder / "node"
        listeners = ("bhumi.tls", "bsp.tls", "lprp.udp", "merk.ws", "strata.ws", "admin.listen")
        # Mail goes again after moments, so that nobody who watches waits for what was sent to somebody asleep.
        settings = [*(f"{name}=127.0.0.1:0" for name in listeners), "lprp.retry_ms=200", *more]
        process, ready = await self.serve(home, settings)
        try:
            self._relay = ready["listeners"]["bhumi"]
            self._bsp = ready["listeners"]["bsp"]
            self._did = ready["node"]["did"]
            self._tls = client_context(home / "tls" / "ca.pem")
            self._authority = authority_der(home / "tls" / "ca.pem")
            _say("node", f"ready at {self._relay}, key {ready['node']['id52'][:12]}…")
            place = RelayUrl.parse(ready["listeners"]["lprp"], DATAGRAM_SCHEMES)
            lprp = HostUrl(PublicKey.parse(ready["node"]["public_key"]), place.host, place.port)
            yield lprp, ready["listeners"]["strata"], ready["listeners"]["merk"]
        finally:
            await self.stop(process)
        self._expect(process.returncode == 0, f"the node ended with {process.returncode}, not 0")
        _say("node", "drained and stopped, journal sealed")

    async def serve(
        self, home: Path, settings: Sequence[str], *flags: str
    ) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
        """Start a node and return it with its ready line."""
        command = [sys.executable, "-m", "waystation", "serve", "--home", str(home), "--log-level", "warning"]
        for setting in settings:
            command += ["--set", setting]
        command += flags
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _READY_TIMEOUT_S)
        if not line:
            raise HostError("the node did not start; its reason stands above")
        ready: dict[str, Any] = json.loads(line)
        return process, ready

    async def _strata(self, relay: str) -> None:
        """Play the Strata steps with a second relay that will be stopped."""
        off = ("bhumi.enabled=false", "bsp.enabled=false", "lprp.enabled=false", "merk.enabled=false", "admin.listen=")
        settings = (*off, "strata.ws=127.0.0.1:0")
        process, ready = await self.serve(self._folder / "other-node", settings)
        try:
            plot = StrataDemo(self._folder, _say, self._expect, relay, ready["listeners"]["strata"])
            await plot.run(lambda: self.stop(process))
        finally:
            await self.stop(process)

    async def _merk(self, near: str) -> None:
        """Play the MERK steps with a second node that is linked with the first."""
        settings = (
            "bhumi.enabled=false",
            "bsp.enabled=false",
            "lprp.enabled=false",
            "bsp.enabled=false",
            "strata.enabled=false",
            "merk.ws=127.0.0.1:0",
            f"merk.peers={near}",
            "admin.listen=",
        )
        process, ready = await self.serve(self._folder / "linked-node", settings)
        try:
            plot = MerkDemo(self._folder, _say, self._expect, near, ready["listeners"]["merk"])
            await plot.run(_interrupted if self._stay else None)
        finally:
            await self.stop(process)

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        """End the node: politely at first, for certain in the end."""
        if process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            self._expect(holds=False, otherwise=f"the node did not stop within {_STOP_TIMEOUT_S} s and was killed")

    async def run_pipeline(self, home: Path) -> bool:
        """Run the Spark jobs on a node's journal; return whether they ended well."""
        _say("pipeline", "reading the journal with Spark while the node runs (the first start takes some seconds)")
        command = [sys.executable, "-m", "waystation", "pipeline", "run", "--home", str(home)]
        process = await asyncio.create_subprocess_exec(*command, start_new_session=True)
        try:
            code = await process.wait()
        finally:
            await _end_group(process.pid)
        self._expect(code == 0, f"the pipeline ended with {code}")
        return code == 0

    @contextlib.asynccontextmanager
    async def _mcu(self) -> AsyncIterator[McuThermometer]:
        """Run the thermometer as a microcontroller would."""
        thermometer = McuThermometer(self._folder / "thermometer", Relay(self._relay, self._authority))
        async with thermometer.running():
            _say("thermometer", f"runs in {thermometer.interpreter}")
            _say("thermometer", "connected over TLS to its one authority, identity proved, commits registered")
            yield thermometer

    @contextlib.asynccontextmanager
    async def _device(self, name: str, state: BhumiState) -> AsyncIterator[asyncio.Task[None]]:
        listening = asyncio.Event()

        async def answer(request: Request) -> str:
            return f"{name} got {request.text!r} from {request.alias}"

        def on_event(event: object) -> None:
            if isinstance(event, Listening):
                listening.set()

        device = Device(state, self._relay, answer, tls=self._tls, on_event=on_event)
        task = asyncio.create_task(device.run())
        try:
            await asyncio.wait_for(listening.wait(), _STEP_TIMEOUT_S)
            _say(name, "connected over TLS, identity proved, commits registered")
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _state(self, name: str) -> BhumiState:
        return BhumiState(self._folder / name)

    # The plot

    async def _pair(self, token: str, visitor: BhumiState, name: str) -> None:
        async with Sender(visitor, self._relay, tls=self._tls) as sender:
            for _ in range(5):  # the lamp looks for new invites twice a second
                await asyncio.sleep(_SLOW_S + 0.1)
                with contextlib.suppress(RemoteError, HostError):
                    peer = await sender.accept(token, alias=name)
                    _say(
                        "visitor",
                        f"paired with {peer.name} by invite {token[:16]}… ({len(token)} characters, used up now)",
                    )
                    return
        self._expect(holds=False, otherwise=f"the visitor could not pair with {name}")

    async def _talk(self, visitor: BhumiState) -> None:
        latencies = []
        async with Sender(visitor, self._relay, tls=self._tls) as sender:
            for number in range(_REQUESTS):
                name = "thermometer" if number % 3 else "lamp"
                reply = await sender.send(name, f"request {number}")
                latencies.append(reply.latency_s)
                self._expect("got" in reply.text, f"answer {reply.text!r}")
        latencies.sort()
        median_ms, worst_ms = latencies[len(latencies) // 2] * 1_000, latencies[-1] * 1_000
        _say(
            "visitor",
            f"{_REQUESTS} requests answered, encrypted end to end: median {median_ms:.1f} ms, worst {worst_ms:.1f} ms",
        )

    async def _lose_an_answer(self, visitor: BhumiState, thermometer: McuThermometer) -> None:
        before = thermometer.asked
        async with Sender(visitor, self._relay, tls=self._tls) as sender:
            request = asyncio.create_task(sender.send("thermometer", "slow"))
            await asyncio.wait_for(thermometer.slow.wait(), _STEP_TIMEOUT_S)
            request.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await request
        _say("visitor", "lost its connection while the thermometer was still thinking")
        await asyncio.sleep(2 * _SLOW_S)
        async with Sender(visitor, self._relay, tls=self._tls) as sender:
            recovered = await sender.recover()
        replies = [each.reply.text for each in recovered if each.reply is not None]
        asked = thermometer.asked - before
        self._expect(len(replies) == 1, f"{len(replies)} answers recovered, expected one")
        self._expect(asked == 1, f"the thermometer was asked {asked} times, expected once")
        _say("relay", f"answered the retry from its cache; the thermometer was asked {asked} time")

    async def _switch_off(self, visitor: BhumiState, lamp: asyncio.Task[None]) -> None:
        lamp.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lamp
        _say("lamp", "went offline")
        try:
            async with Sender(visitor, self._relay, tls=self._tls) as sender:
                (await sender.send("lamp", "still there?")).check()
        except OfflineError as error:
            _say("visitor", f"knows at once: status 1, {error}")
        else:
            self._expect(holds=False, otherwise="a request to an offline lamp was answered")

    async def _replay(self, thermometer: McuThermometer) -> None:
        """Present a preimage that was used up when the pairing was done."""
        visitor = self._state("second-visitor")
        async with Sender(visitor, self._relay, tls=self._tls) as sender:
            await sender.accept(thermometer.second_token, alias="thermometer")
        visitor.close()
        used = thermometer.second_invite
        statuses = [await self._send_raw(used.identity, used.preimage) for _ in range(2)]
        self._expect(statuses[-1] == Status.BAD_PREIMAGE, f"a replayed preimage got {statuses}")
        _say("relay", f"refused a replayed preimage: status {statuses[-1]}, the thermometer never saw it")

    async def _send_raw(self, recipient: bytes, preimage: bytes) -> int:
        """Send one SEND without the SDK's care and return its status."""
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        machine = SenderClient()

        def on_event(event: Any) -> None:
            if isinstance(event, Greeted):
                machine.send(recipient, preimage, b"replay", now())
                asyncio.get_running_loop().call_soon(connection.flush)
            elif isinstance(event, Answered):
                outcome.set_result(event.status)

        connection = Connection(machine, on_event)
        await dial(self._relay, connection, context=self._tls, timeout_s=_STEP_TIMEOUT_S)
        try:
            return await asyncio.wait_for(outcome, _STEP_TIMEOUT_S)
        finally:
            connection.close()
            await connection.wait_closed()

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._failures.append(otherwise)


async def _interrupted() -> None:
    """Return at Ctrl-C."""
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, pressed.set)
    try:
        await pressed.wait()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _say(who: str, what: str) -> None:
    _console.print(f"  [bold]{who:>12}[/bold]  {what}", soft_wrap=True)


async def _end_group(group: int) -> None:
    """Return once nothing of a process group is left: Spark's Java outlives its Python by a moment."""
    ends_at = time.monotonic() + _STOP_TIMEOUT_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < ends_at:
            os.killpg(group, 0)
            await asyncio.sleep(0.1)
        os.killpg(group, signal.SIGKILL)
