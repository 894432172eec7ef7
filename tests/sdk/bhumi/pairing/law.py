"""What a relay may not bring about, judged by what applications did alone; and the script of one seed.

Two senders pair with two devices through one relay, send unique contents, wait briefly, cancel, recover. Then the relay
turns honest, and every pair must work.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.sdk.bhumi.pairing.drawn import DrawnRelay
from tests.sdk.build import RunningDevice
from waystation.core.errors import WaystationError
from waystation.protocols.bhumi.payload.invite import encode_invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.bhumi import BhumiState, PeerJoined, Sender, Timeouts
from waystation.sdk.bhumi.outcome import Outcome

SENDERS = ("bob", "carol")
DEVICES = ("alice", "dave")
TIMEOUTS = Timeouts(doubt_s=2.0, settle_s=0.3)
HONEST_TRIES = 3
HONEST_S = 40.0
"""Requests that were in doubt when the relay turned honest may still be on their way when another one is sent."""


@dataclass
class Ledger:
    """What the applications on all sides did."""

    seed: int
    sent: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Sender and device of each content that some application has sent."""
    calls: Counter = field(default_factory=Counter)
    """How often a handler was called with a content."""
    answers: dict[bytes, bytes] = field(default_factory=dict)
    """What the handler has answered, by content; nothing where it raised."""
    accepted: set[tuple[str, str]] = field(default_factory=set)
    """Sender and device of each invite that some application has accepted."""
    identities: dict[str, bytes] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Sentences about what must not be."""

    def note(self, holds, sentence):
        """Note that a law is broken."""
        if not holds:
            self.broken.append(f"seed {self.seed}: {sentence}")

    def on_call(self, device, request):
        """A handler is called: some paired peer has sent just this, and it comes for the first time."""
        who = (request.alias, device)
        self.note(self.sent.get(request.content) == who, f"{who} handles {request.content!r}, which it did not send")
        self.note(self.identities.get(request.alias) == request.peer, f"{request.alias} is not whom it was invited as")
        self.note(who in self.accepted, f"{who} have not been paired")
        self.calls[request.content] += 1
        self.note(
            self.calls[request.content] == 1, f"{request.content!r} is handled {self.calls[request.content]} times"
        )

    def on_reply(self, content, reply):
        """A call of ``send`` ended: an answer is the very one that the handler gave to this content."""
        if reply.outcome is Outcome.ANSWERED:
            answer = self.answers.get(content)
            self.note(reply.content == answer, f"{content!r} is answered {reply.content!r}, not {answer!r}")
        elif reply.outcome is Outcome.FAILED:
            self.note(self.calls[content] == 1, f"{content!r} has failed, and was handled {self.calls[content]} times")
        else:
            self.note(not reply.content, f"{content!r} has no answer, and the content {reply.content!r}")

    def on_recovered(self, sender, recovered):
        """An outcome that came later: a content that it has is some answer of that device to this sender."""
        device = next((name for name, key in self.identities.items() if key == recovered.peer), "a stranger")
        given = {self.answers.get(content) for content, who in self.sent.items() if who == (sender, device)}
        reply = recovered.reply
        if reply is not None and reply.outcome is Outcome.ANSWERED and b"spares" not in reply.content:
            self.note(reply.content in given, f"{sender} recovers {reply.content!r}, which {device} has not said")

    def on_peers(self, name, state, others):
        """The peers of a participant are those that its application has accepted or invited."""
        known = {peer.identity for peer in state.peers()}
        self.note(known <= {self.identities[other] for other in others}, f"{name} is paired with a stranger")


class Scene:
    """All participants of one seed."""

    def __init__(self, seed, folder, *, repeatable=False):
        self._repeatable = repeatable
        self.ledger = Ledger(seed)
        self._rng = random.Random(f"script {seed}")
        self._folder = folder
        self._relay = DrawnRelay(seed)
        self._devices = {}
        self._states = {}
        self._senders = {}
        self._tokens = {}
        self.outcomes = Counter()
        """Of all sends, by name."""

    async def play(self):
        """Play the seed to its end, and return the laws that were broken."""
        async with contextlib.AsyncExitStack() as stack:
            await self._set_up(stack)
            if self._relay.is_patient:
                await asyncio.gather(*(self._accept(sender, device, 10) for sender in SENDERS for device in DEVICES))
                self._relay.is_patient = False
            async with asyncio.timeout(300):
                await asyncio.gather(*(self._ask(sender, device) for sender in SENDERS for device in DEVICES))
            self._relay.turn_honest()
            async with asyncio.timeout(300):
                await self._end(stack)
        return self.ledger.broken

    async def _set_up(self, stack):
        await stack.enter_async_context(self._relay)
        for name in DEVICES:
            device = RunningDevice(self._folder / name, self._relay.url, self._handler(name))
            self._devices[name] = await stack.enter_async_context(device)
            self.ledger.identities[name] = device.state.identity
            suite = self._rng.choice(list(PairedSuite))
            for sender in SENDERS:
                self._tokens[sender, name] = encode_invite(device.state.make_invite(sender, suite=suite))
        for name in SENDERS:
            state = self._states[name] = BhumiState(self._folder / name)
            stack.callback(state.close)
            self.ledger.identities[name] = state.identity
            await self._open(stack, name)
        self._relay.participants = list(self.ledger.identities.values())

    async def _open(self, stack, name):
        sender = Sender(
            self._states[name],
            self._relay.url,
            timeouts=TIMEOUTS,
            find=self._rng.random() < 1 / 4,
            connect_timeout_s=5.0,
        )
        self._senders[name] = await stack.enter_async_context(sender)

    def _handler(self, device):
        async def handle(request):
            self.ledger.on_call(device, request)
            draw = random.Random(request.content)
            await asyncio.sleep(draw.choice((0, 0, 0, 0.05, 0.2)))
            if draw.random() < 1 / 8:
                raise ValueError("no")
            self.ledger.answers[request.content] = b"done " + request.content
            return self.ledger.answers[request.content]

        return handle

    # With the hostile relay

    async def _ask(self, sender, device):
        """Pair, and send unique contents one after the other, as impatient applications do."""
        rng = random.Random(f"{self.ledger.seed} {sender} {device}")
        for number in range(rng.randint(4, 8)):
            if not self._is_paired(sender, device) and await self._accept(sender, device) != "paired":
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

    def _is_paired(self, sender, device):
        return self._states[sender].peer(self.ledger.identities[device]) is not None

    async def _accept(self, sender, device, timeout_s=1.0):
        self.ledger.accepted.add((sender, device))
        try:
            async with asyncio.timeout(timeout_s):
                await self._senders[sender].accept(self._tokens[sender, device], alias=device)
        except (WaystationError, TimeoutError) as error:
            return repr(error)
        return "paired"

    async def _send(self, sender, device, content, timeout_s=None):
        """Send a content that nobody sends again; a documented error is no outcome."""
        self.ledger.sent[content] = (sender, device)
        try:
            reply = await self._senders[sender].send(device, content, timeout_s=timeout_s, repeatable=self._repeatable)
        except WaystationError as error:
            self.outcomes[type(error).__name__] += 1
            return None
        self.outcomes[reply.outcome.value] += 1
        self.ledger.on_reply(content, reply)
        return reply

    async def _cancelled(self, sender, device, content, timeout_s):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._send(sender, device, content)

    async def _recover(self, sender):
        with contextlib.suppress(WaystationError):
            for recovered in await self._senders[sender].recover():
                self.ledger.on_recovered(sender, recovered)

    # With an honest one

    async def _end(self, stack):
        if self._rng.random() < 1 / 3:
            for name in SENDERS:
                await self._senders[name].__aexit__(None, None, None)
                await self._open(stack, name)
        for name in DEVICES:
            self.ledger.note(not self._devices[name].task.done(), f"{name} has ended: {self._devices[name].task}")
        await self._relay.has_again({self.ledger.identities[name] for name in DEVICES})
        for sender in SENDERS:
            await self._recover(sender)
            for device in DEVICES:
                await self._must_work(sender, device)
        for name in DEVICES:
            state = self._devices[name].state
            self.ledger.on_peers(name, state, SENDERS)
            joined = {
                (event.alias, event.peer) for event in self._devices[name].events if isinstance(event, PeerJoined)
            }
            invited = {(sender, self.ledger.identities[sender]) for sender in SENDERS}
            self.ledger.note(joined <= invited, f"{name} was joined by {joined - invited}")
        for name in SENDERS:
            self.ledger.on_peers(name, self._states[name], DEVICES)

    async def _must_work(self, sender, device):
        if not self._is_paired(sender, device):
            for _ in range(HONEST_TRIES):
                said = await self._accept(sender, device, 20)
                if "RelayUnreachable" not in said:
                    break
            self.ledger.note(said == "paired", f"{sender} cannot pair with {device} any more: {said}")
            if said != "paired":
                return
        reply, number, ends = None, 0, time.monotonic() + HONEST_S
        while time.monotonic() < ends and (reply is None or reply.outcome not in {Outcome.ANSWERED, Outcome.FAILED}):
            number += 1
            reply = await self._send(sender, device, f"{sender} {device} last {number}".encode())
            await asyncio.sleep(0 if reply is not None and reply.ok else 0.2)
        held = self._states[sender].peer(self.ledger.identities[device])
        pending = [each.kind for each in self._states[sender].pending()]
        works = reply is not None and reply.outcome in {Outcome.ANSWERED, Outcome.FAILED}
        if reply is not None and reply.outcome is Outcome.PERMISSIONS_IN_DOUBT:
            # The device has forgotten a permission whose request a relay left in doubt; nothing can end that.
            works = held.rights == 0 and bool(pending) and "ask them for a new invite" in reply.sentence
            self.outcomes["in doubt for ever"] += 1
        sentence = None if reply is None else reply.sentence
        self.ledger.note(works, f"{sender} to {device}: {sentence}; {held.rights} permissions, pending {pending}")
