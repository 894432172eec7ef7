"""Bundles over Bhumi, between real participants and the node's own relay machine."""

import asyncio
import contextlib
import random

import pytest

from tests.sdk.bsp.build_carrier import FULL, STRANGER, A, B, CarrierSession, run
from tests.sdk.build import LoopbackRelay
from tests.sdk.lprp.build import Events, until
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sdk.bhumi import Backoff, BhumiState, ContentType, Device, Listening, Sender, Timeouts, Trouble
from waystation.sdk.bridges.bhumi import BHUMI_BUNDLE_BYTES_MAX, REQUEST_BEGINS, BspOverBhumi
from waystation.sdk.bsp.carrier import CarrierFailure
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import HomeBusyError, NotCarriedError, OfflineError, RelayUnreachableError, UncertainError
from waystation.sdk.identity import put_key

QUICK = Timeouts(doubt_s=3.0, settle_s=1.0)
NOWHERE = "tcp://127.0.0.1:9"


class Participant:
    """An open carrier of one device, and what belongs to it."""

    def __init__(self, tmp_path, relay, key_pair, *peers, session=None, own_key=False, **options):
        home = tmp_path / key_pair.public.hex()[:8]
        if not own_key:
            put_key(home / "node.key", key_pair)
        self.state = BhumiState(home)
        self.session = session or CarrierSession(key_pair, *peers)
        self.events = Events()
        options.setdefault("timeouts", QUICK)
        options.setdefault("backoff", Backoff(random.Random(1), first_s=0.01, cap_s=0.02))
        options.setdefault("poll_first_s", 0.02)
        options.setdefault("look_s", 0.01)
        self.carrier = BspOverBhumi(
            self.state, relay if isinstance(relay, str) else relay.url, on_event=self.events, **options
        )
        self._waits = options.get("listens", True) and not isinstance(relay, str)

    async def __aenter__(self):
        try:
            await self.carrier.open(self.session)
            if self._waits:
                await self.events.until(Listening)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_):
        await self.carrier.close()
        self.state.close()

    async def carry(self, peer, *bodies):
        """Carry a bundle of messages."""
        await self.carrier.carry(peer.public, self.session.seal(peer.public, *bodies))


@contextlib.asynccontextmanager
async def pair(tmp_path, relay, **options):
    """Give A, who listens, and B, who has accepted A's invite and whom ``options`` are for."""
    async with Participant(tmp_path, relay, A, B) as a, Participant(tmp_path, relay, B, A, **options) as b:
        assert await b.carrier.accept(a.carrier.invite()) == A.public
        yield a, b


def polls(relay):
    """Return how many requests a relay has seen."""
    return len(relay.of_type(FrameType.SEND))


def test_longest_record_arrives_and_an_answer_comes_back(tmp_path):
    """The longest message fits a request, and what is due to the asker, as long as that, comes with the response."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            a.session.due[B.public].append(FULL)
            await b.carry(A, FULL, b"and more")
            seen = b"".join(payload for _, _, payload in relay.frames)
            return a.session.taken, b.session.taken, seen

    to_a, to_b, seen = run(scenario)

    assert to_a == [(B.public, FULL), (B.public, b"and more")]
    assert to_b == [(A.public, FULL)]
    assert FULL[:64] not in seen
    assert b"BSPF" not in seen


def test_both_sides_ask(tmp_path):
    """Listeners ask each other, either way and at the same time; everything comes once, in order."""
    numbers = [b"%d" % number for number in range(10)]

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            await a.session.until_reached(B)

            async def ask(one, other):
                for number in numbers:
                    await one.carry(other, number)

            await asyncio.gather(ask(a, B), ask(b, A))
            return a.session.bodies(), b.session.bodies()

    assert run(scenario) == (numbers, numbers)


def test_largest_bundle_fits_request_and_response(tmp_path):
    """Bundles of just the bound go both ways through a relay as it is by default."""
    most = BHUMI_BUNDLE_BYTES_MAX

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            for session, peer in ((a.session, B), (b.session, A)):
                session.due[peer.public].extend([bytes(most // 2 - 210)] * 2)
            bundle = await b.session.make(A.public, b.carrier.bundle_bytes_max)
            await b.carrier.carry(A.public, bundle)
            return len(bundle), len(a.session.taken), len(b.session.taken)

    size, to_a, to_b = run(scenario)

    assert most - 300 < size <= most
    assert (to_a, to_b) == (2, 2)


def test_only_listeners_are_reached(tmp_path):
    """A peer can be asked once it has said that it listens, or has answered; one that only polls never is."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            await a.session.until_reached(B)
            await b.session.until_reached(A)
            mutual = a.carrier.reaches(B.public), b.carrier.reaches(A.public), a.carrier.reaches(STRANGER.public)
        async with LoopbackRelay() as relay, pair(tmp_path / "2", relay, listens=False) as (a, b):
            await until(lambda: polls(relay) > 3)
            return mutual, a.carrier.reaches(B.public), b.carrier.reaches(A.public), a.session.reached_peers

    assert run(scenario) == ((True, True, False), False, True, [])


def test_peer_that_polls_gets_what_is_due(tmp_path):
    """Nobody can ask B; what becomes due for it comes by its next poll, in as many responses as it takes."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay, listens=False) as (a, b):
            a.session.due[B.public].append(b"soon")
            await b.session.until_taken()
            a.session.due[B.public].extend([FULL, FULL, FULL])
            await b.session.until_taken(4)
            return b.session.taken, a.session.taken

    to_b, to_a = run(scenario)

    assert to_b == [(A.public, b"soon")] + [(A.public, FULL)] * 3
    assert to_a == []


def test_polls_become_rare_and_begin_again(tmp_path):
    """Pauses double while nothing comes; a bundle that goes begins them anew, for its answers."""
    counts = []

    async def scenario():
        options = {"listens": False, "poll_first_s": 0.02, "poll_cap_s": 60.0}
        async with LoopbackRelay() as relay, pair(tmp_path, relay, **options) as (_, b):
            await wait(0.4)
            before = polls(relay)
            await wait(0.1)
            counts.append((before, polls(relay)))
            await b.carry(A, b"x")
            async with asyncio.timeout(1.0):  # without hope three more polls take longer than this
                await until(lambda: polls(relay) >= counts[0][1] + 2 + 3)

    run(scenario)

    # A pause is between half and all of 20, 40, 80, 160 and 320 ms: seven polls, besides the pairing and its spares.
    (before, after) = counts[0]
    assert before <= 7 + 5
    assert after - before <= 1


def test_listeners_are_silent(tmp_path):
    """When both listen, nobody asks for nothing: after the hellos nothing is said."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            await a.session.until_reached(B)
            await b.session.until_reached(A)
            await wait(0.05)
            before = polls(relay)
            await wait(0.15)
            return polls(relay) - before

    assert run(scenario) == 0


def test_absent_peer_is_told(tmp_path):
    """A bundle for somebody who is away counts as lost, and nobody has taken it."""

    async def scenario():
        async with LoopbackRelay() as relay:
            async with pair(tmp_path, relay) as (a, b):
                await b.carry(A, b"there")
            async with Participant(tmp_path, relay, B, A) as b:
                with pytest.raises(OfflineError):
                    await b.carry(A, b"away")
                return a.session.bodies()

    assert run(scenario) == [b"there"]


def test_whoever_comes_back_says_hello(tmp_path):
    """A, who was away, is back: B hears of it without having asked, and reaches A."""

    async def scenario():
        async with LoopbackRelay() as relay:
            async with pair(tmp_path, relay):
                pass
            async with Participant(tmp_path, relay, B, A) as b:
                with pytest.raises(OfflineError):
                    await b.carry(A, b"1")
                async with Participant(tmp_path, relay, A, B) as a:
                    await b.session.until_reached(A)
                    await b.carry(A, b"2")
                    return a.session.bodies()

    assert run(scenario) == [b"2"]


def test_connection_comes_back(tmp_path):
    """After the relay has cut everybody the listener is there again, and bundles go on."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            await b.carry(A, b"before")
            for peer in tuple(relay.pipes):
                relay.cut(peer)
            await a.events.until(Listening, count=2)
            await b.carry(A, b"after")
            await b.session.until_reached(A, 2)
            return a.session.bodies()

    assert run(scenario) == [b"before", b"after"]


def test_unpaired_peer_is_told(tmp_path):
    """Without an invite there is no way."""

    async def scenario():
        async with LoopbackRelay() as relay, Participant(tmp_path, relay, A, B) as a:
            with pytest.raises(NotCarriedError, match="no invite") as raised:
                await a.carry(B, b"x")
            return raised.value.peer

    assert run(scenario) == B.public


def test_no_relay_is_told(tmp_path):
    """Opening waits for nobody; carrying says that no relay was reached."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay):
            pass
        async with Participant(tmp_path, NOWHERE, B, A) as b:
            with pytest.raises(RelayUnreachableError):
                await b.carry(A, b"x")

    run(scenario)


def test_full_disk_is_told_and_the_next_bundle_taken(tmp_path):
    """What the peer's disk refuses counts as lost; the right to ask is not."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            a.session.full = True
            with pytest.raises(NotCarriedError, match="not taken"):
                await b.carry(A, b"lost")
            a.session.full = False
            await b.carry(A, b"kept")
            return a.session.bodies(), a.events.of_type(Trouble) != []

    assert run(scenario) == ([b"kept"], True)


def test_own_full_disk_loses_the_answer_only(tmp_path):
    """What we asked with has arrived although we could not keep the answer; that is told."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay) as (a, b):
            a.session.due[B.public].append(b"answer")
            b.session.full = True
            await b.carry(A, b"asked")
            (failure,) = await b.events.until(CarrierFailure)
            return a.session.bodies(), b.session.bodies(), failure

    bodies, none, failure = run(scenario)

    assert (bodies, none) == ([b"asked"], [])
    assert (failure.kind, failure.reason) == ("bhumi", "the disk is full")


@pytest.mark.parametrize("content", ["bundle of another", "unknown asker", "no flags"])
def test_what_a_known_peer_would_not_say_is_refused(tmp_path, content):
    """A bundle sealed by somebody else, an asker whom the device does not know, and a request cut short get nothing."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay, listens=False) as (a, b):
            await b.carry(A, b"fine")
            a.session.due[B.public].append(b"secret")
            a.session.known = [STRANGER.public] if content == "unknown asker" else [B.public, STRANGER.public]
            await b.carrier.close()
            asked = {
                "bundle of another": REQUEST_BEGINS + b"\1" + CarrierSession(STRANGER).seal(A.public, b"x"),
                "unknown asker": REQUEST_BEGINS + b"\1",
                "no flags": REQUEST_BEGINS,
            }
            async with Sender(b.state, relay.url, timeouts=QUICK) as sender:
                record = b.state.peer(A.public)
                reply = await sender.send(record, asked[content], ContentType.BINARY)
            return reply.status, reply.content, list(a.session.due[B.public])

    status, answer, due = run(scenario)

    assert status != 0
    assert b"secret" not in answer
    assert due == [b"secret"] or content == "unknown asker"


def test_other_requests_are_the_applications(tmp_path):
    """A request that is not about BSP goes to the application, and is refused where there is none."""

    async def answer(request):
        return f"you said {request.text}"

    async def scenario():
        async with (
            LoopbackRelay() as relay,
            Participant(tmp_path, relay, A, B, on_request=answer) as a,
            Participant(tmp_path, relay, STRANGER, B) as other,
        ):
            tokens = [each.carrier.invite() for each in (a, other)]
            state = BhumiState(tmp_path / "asker")
            async with Sender(state, relay.url, timeouts=QUICK) as sender:
                replies = [await sender.send(await sender.accept(token), "hi") for token in tokens]
            asker = state.identity.hex()[:8]
            state.close()
            return [(reply.status == 0, reply.text) for reply in replies], asker

    replies, asker = run(scenario)

    assert replies == [
        (True, "you said hi"),
        (False, f"Bhumi has not carried a bundle to {asker}: this is no request of BSP"),
    ]


def test_answer_to_a_former_process_is_taken(tmp_path):
    """A request whose answer its asker did not live to see is asked again at the next start, and the answer taken."""

    async def scenario():
        async with LoopbackRelay() as relay, pair(tmp_path, relay, listens=False, poll_first_s=60.0) as (a, b):
            await until(lambda: a.session.made_count and not b.state.pending())  # the first poll, and the last for long
            await b.carry(A, b"first")
            a.session.due[B.public].append(b"answer")
            a.session.gate.clear()
            asking = asyncio.create_task(b.carry(A, b"second"))
            before = polls(relay)
            await until(lambda: polls(relay) > before)
            asking.cancel()
            await asyncio.wait([asking])
            await b.carrier.close()
            a.session.gate.set()
            async with Participant(tmp_path, relay, B, A, listens=False) as again:
                await again.session.until_taken()
                return a.session.bodies(), again.session.bodies()

    assert run(scenario) == ([b"first", b"second"], [b"answer"])


def test_no_answer_acknowledges_nothing(tmp_path):
    """A request without an outcome in time counts as lost, whatever became of it."""

    async def scenario():
        options = {"timeouts": Timeouts(doubt_s=0.0), "listens": False}
        settings = BhumiSettings(ack_timeout_ms=1_000)
        async with LoopbackRelay(settings) as relay, pair(tmp_path, relay, **options) as (a, b):
            await until(lambda: not b.state.pending())
            a.session.gate.clear()
            asking = asyncio.create_task(b.carry(A, b"x"))
            before = polls(relay)
            await until(lambda: polls(relay) > before)
            relay.cut_senders()
            with pytest.raises(UncertainError):
                await asking
            a.session.gate.set()

    run(scenario)


def test_peer_with_another_key_at_the_relay(tmp_path):
    """A mapped peer is asked, and known, by its key at the relay."""

    async def scenario():
        async with LoopbackRelay() as relay:
            own = BhumiState(tmp_path / B.public.hex()[:8])
            own.close()
            known = Identities({B.public: own.identity})
            async with (
                Participant(tmp_path, relay, A, B, identities=known) as a,
                Participant(tmp_path, relay, B, A, own_key=True) as b,
            ):
                await b.carrier.accept(a.carrier.invite())
                await a.session.until_reached(B)
                await b.carry(A, b"1")
                await a.carry(B, b"2")
                return a.session.taken, b.session.taken

    assert run(scenario) == ([(B.public, b"1")], [(A.public, b"2")])


def test_two_listeners_cannot_share_a_folder(tmp_path):
    """The second is told, and the first goes on; closing the second twice does no harm."""

    async def scenario():
        async with LoopbackRelay() as relay:
            state = BhumiState(tmp_path)
            listening = asyncio.create_task(Device(state, relay.url, refuse).run())
            await relay.wait_for(FrameType.I_AM)
            second = BspOverBhumi(state, relay.url)
            with pytest.raises(HomeBusyError):
                await second.open(CarrierSession(A, B))
            await second.close()
            await second.close()
            goes_on = not listening.done()
            listening.cancel()
            await asyncio.wait([listening])
            state.close()
            return goes_on

    async def refuse(request):
        raise AssertionError(request)

    assert run(scenario)


def test_bundle_beyond_the_bound_is_refused(tmp_path):
    """The caller has asked for less."""

    async def scenario():
        async with LoopbackRelay() as relay, Participant(tmp_path, relay, A, B) as a:
            with pytest.raises(LocalError, match="64512"):
                await a.carrier.carry(B.public, bytes(BHUMI_BUNDLE_BYTES_MAX + 1))

    run(scenario)


def test_relay_that_takes_less_is_told(tmp_path):
    """A bundle that is too large for this relay counts as lost, with the relay's own sentence."""

    async def scenario():
        settings = BhumiSettings(max_payload_bytes=16_384)
        async with LoopbackRelay(settings) as relay, pair(tmp_path, relay) as (_, b):
            with pytest.raises(NotCarriedError, match="16384"):
                await b.carry(A, FULL)

    run(scenario)


async def wait(seconds):
    """Let some time pass in which nothing should happen."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
