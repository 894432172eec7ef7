"""Two senders pair with two devices through one relay, send unique contents, wait briefly, cancel, recover.

Then the relay turns honest, and every pair must work, or its sender is asked for a new invite, with which it works.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.payload.invite import encode_invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.backoff import Backoff
from waystation.sdk.bhumi.device import Device
from waystation.sdk.bhumi.events import DeviceEvent, PeerJoined, Request
from waystation.sdk.bhumi.outcome import Outcome, Reply
from waystation.sdk.bhumi.sender import Sender
from waystation.sdk.bhumi.sending.retry import Timeouts
from waystation.sdk.bhumi.state import BhumiState
from waystation.sdk.errors import InviteRefusedError, RelayUnreachableError
from waystation.sim.chance import fork
from waystation.sim.observations import Unfulfilled
from waystation.simsdk.bhumi import observations as seen
from waystation.simsdk.bhumi.hostile_relay import HostileRelay

__all__ = ["DEVICES", "SENDERS", "Scene"]

SENDERS: Final = ("bob", "carol")
DEVICES: Final = ("alice", "dave")
TIMEOUTS: Final = Timeouts(doubt_s=2.0, settle_s=0.3)
HONEST_TRIES: Final = 3
HONEST_S: Final = 40.0
"""Requests that were in doubt when the relay turned honest may still be on their way when another one is sent."""
THINK_S: Final = 0.4
"""For how long an application does nothing at most before it sends again."""
RETURN_S: Final = 60.0
"""For the devices to find an honest relay; as long as their longest pause, and more."""
_ACCEPT_S: Final = 20.0
_HANDLED: Final = (Outcome.ANSWERED, Outcome.FAILED)
_NEW_INVITE: Final = "new invite"
"""What a sentence has that says how a pair gets out of its doubts."""


class Scene:
    """All participants of one seed."""

    def __init__(
        self,
        seed: object,
        folder: Path,
        relay: HostileRelay,
        url: str,
        observe: Callable[[Any], None],
        *,
        hostile_s: float,
        rounds_min: int = 0,
        clock: Callable[[], float],
        repeatable: bool = False,
    ) -> None:
        """Describe a run.

        Args:
            seed: Decides what applications do.
            folder: Gets a folder for each participant.
            relay: What all of them use.
            url: Where it listens.
            observe: Gets what they do and see.
            hostile_s: For how many seconds senders send before the relay turns honest.
            rounds_min: How often each sends at least, whatever time it takes on a machine that is slow.
            clock: Unix seconds.
            repeatable: Let every content arrive twice.
        """
        rng = random.Random(f"scene {seed}")  # noqa: S311 - a simulation must be repeatable
        self._rng = rng
        self._folder = folder
        self._relay = relay
        self._url = url
        self._observe = observe
        self._hostile_s = hostile_s
        self._rounds_min = rounds_min
        self._clock = clock
        self._repeatable = repeatable
        self._identities: dict[str, PublicKey] = {}
        self._devices: dict[str, asyncio.Task[None]] = {}
        self._states: dict[str, BhumiState] = {}
        self._senders: dict[str, Sender] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self._plans = {(sender, device): fork(rng) for sender in SENDERS for device in DEVICES}
        self.outcomes: Counter[str] = Counter()
        """Of all sends, by name, and of pairs."""

    async def play(self) -> None:
        """Play the seed to its end."""
        async with contextlib.AsyncExitStack() as stack:
            for name in DEVICES:
                await stack.enter_async_context(self._device(name))
            for name in SENDERS:
                self._states[name] = self._state(stack, name)
                await self._open(stack, name)
            self._relay.participants = list(self._identities.values())
            if self._relay.is_patient:
                await asyncio.gather(*(self._accept(*pair, 10.0) for pair in self._plans))
                self._relay.is_patient = False
            until_s = asyncio.get_running_loop().time() + self._hostile_s
            await asyncio.gather(*(self._ask(*pair, rng, until_s) for pair, rng in self._plans.items()))
            self._relay.turn_honest()
            await self._end(stack)

    # Participants

    def _state(self, stack: contextlib.AsyncExitStack, name: str) -> BhumiState:
        state = BhumiState(self._folder / name, clock=self._clock, rng=fork(self._rng))
        stack.callback(state.close)
        self._identities[name] = PublicKey(state.identity)
        self._observe(seen.Named(name, state.identity))
        return state

    @contextlib.asynccontextmanager
    async def _device(self, name: str) -> AsyncIterator[None]:
        """Run a device inside the ``async with`` block, for which an invite of each sender is made."""
        async with contextlib.AsyncExitStack() as stack:
            state = self._states[name] = self._state(stack, name)
            suite = self._rng.choice(list(PairedSuite))
            for sender in SENDERS:
                self._tokens[sender, name] = encode_invite(state.make_invite(sender, suite=suite))

            def on_event(event: DeviceEvent) -> None:
                if isinstance(event, PeerJoined):
                    self._observe(seen.Joined(name, event.alias, event.peer))

            backoff = Backoff(fork(self._rng), first_s=0.01, cap_s=0.02)
            device = Device(
                *(state, self._url, self._handler(name)),
                on_event=on_event,
                rng=fork(self._rng),
                backoff=backoff,
                poll_s=0.1,
                clock=self._clock,
            )
            task = self._devices[name] = asyncio.get_running_loop().create_task(device.run())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _handler(self, device: str) -> Callable[[Request], Any]:
        async def handle(request: Request) -> bytes:
            self._observe(seen.Called(device, request.alias, request.peer, request.content))
            draw = random.Random(request.content)  # noqa: S311 - a simulation must be repeatable
            await asyncio.sleep(draw.choice((0, 0, 0, 0.05, 0.2)))
            if draw.random() < 1 / 8:
                raise ValueError("no")
            answer = b"done " + request.content
            self._observe(seen.Answers(device, request.content, answer))
            return answer

        return handle

    async def _open(self, stack: contextlib.AsyncExitStack, name: str) -> None:
        sender = Sender(
            *(self._states[name], self._url),
            timeouts=TIMEOUTS,
            find=self._rng.random() < 1 / 4,
            rng=fork(self._rng),
            connect_timeout_s=5.0,
            clock=self._clock,
        )
        self._senders[name] = await stack.enter_async_context(sender)

    # With the hostile relay

    async def _ask(self, sender: str, device: str, rng: random.Random, until_s: float) -> None:
        """Pair, and send unique contents one after the other, as impatient applications do."""
        number = 0
        while number < self._rounds_min or asyncio.get_running_loop().time() < until_s:
            number += 1
            await asyncio.sleep(rng.uniform(0, THINK_S))
            if not self._is_paired(sender, device) and await self._accept(sender, device) is not None:
                continue
            content = f"{sender} {device} {number} {rng.getrandbits(64):x}".encode()
            draw = rng.random()
            if draw < 1 / 4:
                await self._cancelled(sender, device, content, rng.uniform(0, 0.3))
            elif draw < 1 / 2:
                await asyncio.gather(
                    self._send(sender, device, content, rng.uniform(0.05, 0.6)),
                    self._send(sender, device, content + b" too", rng.uniform(0.05, 0.6)),
                )
            else:
                await self._send(sender, device, content, rng.choice((0.1, 0.3, 1.0)))
            if rng.random() < 1 / 6:
                await self._recover(sender)

    def _is_paired(self, sender: str, device: str) -> bool:
        return self._states[sender].peer(self._identities[device]) is not None

    async def _accept(self, sender: str, device: str, timeout_s: float = 1.0) -> Exception | None:
        """Use the invite of a device; return what was raised, None for a pairing."""
        self._observe(seen.Accepts(sender, device))
        try:
            async with asyncio.timeout(timeout_s):
                await self._senders[sender].accept(self._tokens[sender, device], alias=device)
        except (WaystationError, TimeoutError) as error:
            return error
        return None

    async def _send(self, sender: str, device: str, content: bytes, timeout_s: float | None = None) -> Reply | None:
        """Send a content that nobody sends again; a documented error is no outcome."""
        self._observe(seen.Asks(sender, device, content))
        try:
            reply = await self._senders[sender].send(device, content, timeout_s=timeout_s, repeatable=self._repeatable)
        except WaystationError as error:
            self.outcomes[type(error).__name__] += 1
            return None
        self.outcomes[reply.outcome.value] += 1
        self._observe(seen.Replied(content, reply.outcome.value, reply.content))
        return reply

    async def _cancelled(self, sender: str, device: str, content: bytes, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._send(sender, device, content)

    async def _recover(self, sender: str) -> None:
        with contextlib.suppress(WaystationError):
            for recovered in await self._senders[sender].recover():
                if recovered.reply is not None:
                    reply = recovered.reply
                    self._observe(seen.Recovers(sender, recovered.peer, reply.outcome.value, reply.content))

    # With an honest one

    async def _end(self, stack: contextlib.AsyncExitStack) -> None:
        if self._rng.random() < 1 / 3:
            for name in SENDERS:
                await self._senders[name].__aexit__(None, None, None)
                await self._open(stack, name)
        for name, task in self._devices.items():
            if task.done():
                self._observe(Unfulfilled(f"{name} has ended: {task.exception()!r}"))
                return
        try:
            async with asyncio.timeout(RETURN_S):
                await self._relay.has_again({self._identities[name] for name in DEVICES})
        except TimeoutError:
            self._observe(Unfulfilled("a device does not come back"))
            return
        for sender in SENDERS:
            await self._recover(sender)
            for device in DEVICES:
                await self._must_work(sender, device)
        for name, state in self._states.items():
            self._observe(seen.Peers(name, tuple(peer.identity for peer in state.peers())))

    async def _must_work(self, sender: str, device: str) -> None:
        """See to it that a pair works, or that a new invite helps where its sender is asked for one."""
        lack = await self._lack_of(sender, device)
        if lack is not None and _NEW_INVITE in lack:
            self.outcomes["paired_anew"] += 1
            invite = self._states[device].make_invite(sender)
            self._tokens[sender, device] = encode_invite(invite)
            refusal = await self._accept_at_last(sender, device)
            lack = refusal or await self._lack_of(sender, device)
        if lack is not None:
            pending = [each.kind.value for each in self._states[sender].pending()]
            self._observe(Unfulfilled(f"{sender} cannot reach {device}: {lack}; pending: {pending}"))

    async def _lack_of(self, sender: str, device: str) -> str | None:
        """Return why a pair does not work, in the words for people; None when it does."""
        if not self._is_paired(sender, device):
            refusal = await self._accept_at_last(sender, device)
            if refusal is not None:
                return refusal
        reply, number = None, 0
        ends_s = asyncio.get_running_loop().time() + HONEST_S
        while asyncio.get_running_loop().time() < ends_s:
            number += 1
            draw = self._rng.getrandbits(64)
            reply = await self._send(sender, device, f"{sender} {device} last {number} {draw:x}".encode())
            if reply is not None and reply.outcome in _HANDLED:
                return None
            await asyncio.sleep(0.2)
        return "nothing is sent" if reply is None else f"{reply.outcome.value}: {reply.sentence}"

    async def _accept_at_last(self, sender: str, device: str) -> str | None:
        """Use an invite; return why that fails, None for a pairing."""
        error: Exception | None = None
        for _ in range(HONEST_TRIES):
            error = await self._accept(sender, device, _ACCEPT_S)
            if not isinstance(error, RelayUnreachableError):
                break
        if error is None:
            return None
        return str(error) if isinstance(error, InviteRefusedError) else repr(error)
