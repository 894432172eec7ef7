"""Probes a relay as its users would: a temporary identity sends messages to itself through the relay (spec section 10).

The temporary device registers at the candidate as a real one does, and an anonymous sender sends it requests. Both use
the code of real devices and senders, and realistic sizes. So a relay cannot treat probes better than requests.
Results are stored locally and never sent (BHUMI-QALOCAL).

A candidate must be a relay that the user named or one with a verified advert. At most one probe is made in ten minutes,
however many relays request one (BHUMI-PROBE).
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.bhumi.client.device import Delivered, ProbeAsked
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, RecentResponse
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    MalformedPayloadError,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi.dialect import Dialect, read_answer, read_request, write_answer, write_request
from waystation.sdk.bhumi.listener import Listener
from waystation.sdk.bhumi.moves import Presences, RelayChoice
from waystation.sdk.bhumi.pairing.relay_authorities import Trust
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.retry import Verdict
from waystation.sdk.errors import AnswerError
from waystation.transport.dial import RelayUrl

__all__ = ["CONTENT_BYTES_MAX", "PROBE_EVERY_S", "SLOW_S", "ProbeResult", "Prober"]

PROBE_EVERY_S: Final = 600.0
"""One probe in this time, however many relays ask (specs/bhumi.md 5)."""
SLOW_S: Final = 2.0
"""An exchange that takes longer is slow: from here on the score gives nothing for latency."""
CONTENT_BYTES_MAX: Final = 4_096
"""Ours: what people and sensors say to each other is seldom longer."""
_DEADLINE_MAX_S: Final = 60
_EXCHANGES_MAX: Final = 3
_COMMITS_MAX: Final = 16  # ours: as a device with a handful of peers has
_CARRIED_MAX: Final = 4


class ProbeResult(NamedTuple):
    """What came of a probe."""

    verdict: QaVerdict
    latency_s: float
    """Of the slowest exchange, or up to where the probe ended."""


class Prober:
    """Makes the probes of one participant."""

    def __init__(
        self,
        relays: RelayChoice,
        quality: RelayQuality,
        tls: Trust,
        rng: random.Random,
        *,
        findable: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describe who tries.

        Args:
            relays: Know which relays may be tried.
            quality: Gets the verdicts.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            rng: Source of secrets, and of sizes.
            findable: Whether the throw-away identity asserts presence, as this participant's own device does.
            clock: Seconds, for the rate.
        """
        self._relays = relays
        self._quality = quality
        self._tls = tls
        self._rng = rng
        self._findable = findable
        self._clock = clock
        self._next_at_s = -math.inf

    def admit(self, address: str) -> str | None:
        """Return why a candidate is not tried now; None admits it, and the next one only in ten minutes."""
        if self._clock() < self._next_at_s:
            return f"a probe was made less than {PROBE_EVERY_S:g} s ago"
        if not self._relays.knows(address):
            return "the candidate is neither named by the user nor known by a verified advert"
        self._next_at_s = self._clock() + PROBE_EVERY_S
        return None

    async def probe(self, address: str, deadline_s: int) -> ProbeResult:
        """Try a relay that was admitted, and note the verdict.

        Args:
            address: Of the candidate.
            deadline_s: When to give up; 1 to 60 s, other values are brought into this range.

        Raises:
            HostError: The verdict cannot be kept.
        """
        began = asyncio.get_running_loop().time()
        relay = RelayUrl.parse(address)
        run = _Run(relay, self._tls, self._rng, only_public=self._relays.by_gossip(relay))
        try:
            async with asyncio.timeout(max(1, min(deadline_s, _DEADLINE_MAX_S))):
                result = await run.verdict(findable=self._findable)
        except TimeoutError:
            result = ProbeResult(QaVerdict.SLOW, asyncio.get_running_loop().time() - began)
        finally:
            await run.close()
        self._quality.probed(str(relay), result.verdict, result.latency_s)
        return result


class _ThrowAway:
    """An identity for one probe, with what a device's I_AM is made of; an ``Introduction``."""

    def __init__(self, relay: RelayUrl, rng: random.Random) -> None:
        self.key_pair = KeyPair.from_seed(rng.randbytes(SEED_BYTES))
        self._valid = [rng.randbytes(PREIMAGE_BYTES) for _ in range(rng.randint(1, _COMMITS_MAX))]
        self._carried = [_old_answer(relay, rng) for _ in range(rng.randint(0, _CARRIED_MAX))]
        self._changes_count = 0

    def issued_from(self, position: int) -> list[tuple[int, bytes]]:
        """Return nothing: there are never more preimages than a relay takes."""
        del position
        return []

    def preimages(self) -> list[bytes]:
        """Return those that can be used now."""
        return list(self._valid)

    def recent_responses(self) -> list[RecentResponse]:
        """Return what looks like answers of the last minutes."""
        return self._carried

    def changes(self) -> tuple[int, int]:
        """Return a value that differs after ``replace``."""
        return 0, self._changes_count

    def replace(self, spent: bytes, issued: bytes) -> None:
        """Note that an answer spent one preimage and gave out another."""
        self._valid = [issued, *(each for each in self._valid if each != spent)]
        self._changes_count += 1


@dataclass(slots=True, eq=False)
class _Exchange:
    """One request to ourselves, and the answer that it is to get."""

    preimage: bytes
    request: DeviceMessage
    answer: MessageResponse
    deliveries_count: int = 0
    """How often exactly this request was delivered."""


class _Run:
    """One probe: a device and a sender at one relay, each by a connection of its own."""

    def __init__(self, relay: RelayUrl, tls: Trust, rng: random.Random, *, only_public: bool) -> None:
        self._relay = relay
        self._tls = tls
        self._rng = rng
        self._only_public = only_public
        self._self = _ThrowAway(relay, rng)
        self._own = SharedSecrets(self._self.key_pair)
        self._asker = SharedSecrets(KeyPair.from_seed(rng.randbytes(SEED_BYTES)))
        self._listener = Listener(self._self, relay, on_event=self._on_event)
        self._channel = Channel(relay, tls, float(_DEADLINE_MAX_S), only_public=only_public)
        self._exchange: _Exchange | None = None
        self._is_cheated = False

    async def verdict(self, *, findable: bool) -> ProbeResult:
        """Return how the relay did."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._listener.dial(self._tls, only_public=self._only_public)
            await self._listener.wait_registered()
        except HostError:
            return ProbeResult(QaVerdict.UNREACHABLE, loop.time() - began)
        if findable:
            await self._listener.find_and_assert(Presences(self._self.key_pair, time.time), None)
        slowest_s = 0.0
        for _ in range(self._rng.randint(1, _EXCHANGES_MAX)):
            sent_at = loop.time()
            verdict = await self._ask(self._self.preimages()[-1])
            slowest_s = max(slowest_s, loop.time() - sent_at)
            if verdict is not QaVerdict.OK:
                return ProbeResult(verdict, slowest_s)
        return ProbeResult(QaVerdict.OK if slowest_s <= SLOW_S else QaVerdict.SLOW, slowest_s)

    async def close(self) -> None:
        """End both connections."""
        await self._channel.close()
        await self._listener.aclose()

    async def _ask(self, preimage: bytes) -> QaVerdict:
        """Have one exchange with ourselves, and return how it went; how long it took is judged elsewhere."""
        request = DeviceMessage(ContentType.BINARY, _content(self._rng), str(self._relay))
        following = self._rng.randbytes(PREIMAGE_BYTES)
        answer = MessageResponse(ResponseStatus.OK, following, _content(self._rng), str(self._relay))
        exchange = self._exchange = _Exchange(preimage, request, answer)
        identity = self._self.key_pair.public
        payload = write_request(Dialect.E2E, self._asker, identity, preimage, request, self._rng)
        try:
            verdict, got, _ = await self._channel.ask(identity, preimage, payload)
        except LocalError:  # the relay takes less than what people say to each other
            return QaVerdict.WRONG
        if verdict is Verdict.ANSWERED:
            return QaVerdict.OK if self._is_right(exchange, got) else QaVerdict.WRONG
        is_broken = self._listener.has_ended or not self._channel.is_open
        return QaVerdict.UNREACHABLE if is_broken or verdict is Verdict.UNREACHABLE else QaVerdict.WRONG

    def _is_right(self, exchange: _Exchange, got: bytes) -> bool:
        """Return whether our request came once, nothing else did, and our answer came back."""
        if exchange.deliveries_count != 1 or self._is_cheated:
            return False
        identity = self._self.key_pair.public
        with contextlib.suppress(AnswerError):
            return read_answer(Dialect.E2E, self._asker, identity, exchange.preimage, got) == exchange.answer
        return False

    def _on_event(self, listener: Listener, event: Any) -> None:
        if isinstance(event, ProbeAsked):  # what a device does that has made its probe
            listener.refuse_probe(event.probe_id)
        if not isinstance(event, Delivered):
            return
        exchange = self._exchange
        if exchange is None or not self._is_ours(exchange, event):
            self._is_cheated = True
            listener.acknowledge(event.message_id, b"")  # as a device answers what makes no sense
            return
        exchange.deliveries_count += 1
        self._self.replace(exchange.preimage, exchange.answer.next_preimage)
        asker = self._asker.key_pair.public
        answer = write_answer(Dialect.E2E, self._own, asker, exchange.preimage, exchange.answer, self._rng)
        listener.acknowledge(event.message_id, answer)

    def _is_ours(self, exchange: _Exchange, delivered: Delivered) -> bool:
        if delivered.preimage not in (None, exchange.preimage):
            return False
        asker, preimage = self._asker.key_pair.public, exchange.preimage
        try:
            return read_request(Dialect.E2E, self._own, asker, preimage, delivered.payload) == exchange.request
        except MalformedPayloadError:
            return False


def _content(rng: random.Random) -> bytes:
    """Return content of a drawn size; short ones are as likely as ones twice as long."""
    return rng.randbytes(int(2 ** rng.uniform(0, math.log2(CONTENT_BYTES_MAX))))


def _old_answer(relay: RelayUrl, rng: random.Random) -> RecentResponse:
    """Return an answer as a device carries one: sealed, so that only its peer can read it."""
    preimage, peer = rng.randbytes(PREIMAGE_BYTES), KeyPair.from_seed(rng.randbytes(SEED_BYTES))
    own = SharedSecrets(KeyPair.from_seed(rng.randbytes(SEED_BYTES)))
    answer = MessageResponse(ResponseStatus.OK, rng.randbytes(PREIMAGE_BYTES), _content(rng), str(relay))
    return RecentResponse(preimage, write_answer(Dialect.E2E, own, peer.public, preimage, answer, rng))
