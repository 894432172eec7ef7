"""Laws of sdk.bhumi_listener: each connection counts for itself what its relay knows, and is left in good order."""

import asyncio
import contextlib
import time

import pytest

from tests.sdk.build import ALICE, BOB, LoopbackRelay, ScriptedRelay
from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.client.base import commit_of
from waystation.protocols.bhumi.client.device import DEVICE_FEATURES, Delivered
from waystation.protocols.bhumi.extension_messages import BindChallenge, Relays
from waystation.protocols.bhumi.messages import Feature, FrameType, RecentResponse
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sdk.bhumi import listener as bhumi_listener
from waystation.sdk.bhumi.listener import Listener
from waystation.sdk.bhumi.moves import Presences
from waystation.transport.dial import RelayUrl

RELAY = KeyPair.from_seed(bytes([0xC3]) * 32)
PRESENCES = Presences(ALICE, time.time)


class Facts:
    """What an I_AM is made of, in memory."""

    key_pair = ALICE

    def __init__(self):
        self.valid = [bytes([1]) * 32]
        self.answers = []
        self.count = 0

    def preimages(self):
        return list(self.valid)

    def recent_responses(self):
        return list(self.answers)

    def issued_from(self, position):
        return [each for each in enumerate(self.valid) if each[0] >= position]

    def changes(self):
        return (0, self.count)

    def give(self, preimage):
        """Give out one more."""
        self.valid.append(preimage)
        self.count += 1


@contextlib.asynccontextmanager
async def listening(relay, facts=None, **options):
    """Give an open connection to a relay, and the events of it."""
    events = []
    made = Listener(
        facts or Facts(), RelayUrl.parse(relay.url), on_event=lambda _, event: events.append(event), **options
    )
    await made.dial(None)
    try:
        yield made, events
    finally:
        await made.aclose()


async def named(relay, listener, *adverts, bind=None):
    """Let a scripted relay accept everything and answer what is asked; return the presence that comes of it."""
    ((peer, _),) = await relay.wait_for(FrameType.I_AM)
    relay.send(peer, messages.Options(DEVICE_FEATURES & ~(Feature(0) if bind else Feature.BINDING)))
    relay.send(peer, messages.Keepalive())
    if bind is not None:
        relay.pipes[peer].write([extension_wire.encode_extension(bind)])
    await eventually(lambda: listener.machine.accepts(Feature.PRESENCE), "OPTIONS")
    await eventually(lambda: bind is None or listener.relay_id is not None, "BIND")
    asserting = asyncio.create_task(listener.find_and_assert(PRESENCES, None))
    if bind is None:
        await relay.wait_for(FrameType.RELAYS_REQUEST)
        relay.pipes[peer].write([extension_wire.encode_extension(Relays(adverts))])
    return await asserting


def test_new_preimages_are_told_once():
    """Only what this relay does not know yet goes to it."""

    async def scenario():
        async with ScriptedRelay() as relay:
            facts = Facts()
            async with listening(relay, facts) as (listener, _):
                await relay.wait_for(FrameType.I_AM)
                for number in (2, 2, 3):
                    if bytes([number]) * 32 not in facts.valid:
                        facts.give(bytes([number]) * 32)
                    listener.register_new()
                    listener.flush()
                return [payload[2:] for _, payload in await relay.wait_for(FrameType.UPDATE_COMMITS, 2)]

    assert asyncio.run(scenario()) == [commit_of(bytes([2]) * 32), commit_of(bytes([3]) * 32)]


def test_refresh_hands_answers_over():
    """A second I_AM has what is valid now, answers included."""

    async def scenario():
        async with ScriptedRelay() as relay:
            facts = Facts()
            async with listening(relay, facts) as (listener, _):
                await relay.wait_for(FrameType.I_AM)
                facts.valid, facts.answers = [bytes([7]) * 32], [RecentResponse(bytes([1]) * 32, b"late")]
                listener.refresh()
                listener.flush()
                said = await relay.wait_for(FrameType.I_AM, 2)
                return wire.decode_i_am(said[1][1])

    introduced = asyncio.run(scenario())
    assert introduced.commits == (commit_of(bytes([7]) * 32),)
    assert introduced.responses == (RecentResponse(bytes([1]) * 32, b"late"),)


def test_commit_precedes_the_answer():
    """The relay knows the next preimage before its peer does."""

    async def scenario():
        async with ScriptedRelay() as relay:
            facts = Facts()
            async with listening(relay, facts) as (listener, events):
                ((peer, _),) = await relay.wait_for(FrameType.I_AM)
                relay.send(peer, messages.Deliver(7, b"hi"))
                await eventually(lambda: any(isinstance(event, Delivered) for event in events), "a delivery")
                facts.give(bytes([2]) * 32)
                assert listener.acknowledge(7, b"answer") is None
                await relay.wait_for(FrameType.ACK)
                return [kind for _, kind, _ in relay.frames][-2:]

    assert asyncio.run(scenario()) == [FrameType.UPDATE_COMMITS, FrameType.ACK]


def test_registration_that_never_comes_is_an_error():
    """Whoever waits for it learns why the connection ended."""

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay) as (listener, _):
            await relay.wait_for(FrameType.I_AM)
            relay.stop()
            with pytest.raises(HostError):
                await listener.wait_registered()
            return listener.has_ended, listener.is_open

    assert asyncio.run(scenario()) == (True, False)


@pytest.mark.parametrize("finishes", [True, False])
def test_leaving_waits_for_what_is_under_way(finishes):
    """A connection is left once its last answer has gone, or when timeouts ends."""

    async def scenario():
        async with LoopbackRelay() as relay, listening(relay) as (listener, _):
            await listener.wait_registered()
            done = asyncio.Event()
            task = asyncio.create_task(done.wait())
            listener.handling.add(task)
            task.add_done_callback(listener.handling.discard)
            leaving = asyncio.create_task(listener.leave(60.0 if finishes else 0.01))
            await asyncio.sleep(0)
            stood = listener.is_open
            if finishes:
                done.set()
            await leaving
            task.cancel()
            return stood, listener.is_open

    assert asyncio.run(scenario()) == (True, False)


def test_relay_names_itself():
    """The key of BIND is the place in the presence; the advert is not asked for."""

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay) as (listener, _):
            presence = await named(relay, listener, bind=BindChallenge(RELAY.public, bytes(32)))
            return presence, relay.of_type(FrameType.RELAYS_REQUEST), listener.presence_due_s

    presence, asked, due_s = asyncio.run(scenario())
    assert (presence.relay_id, presence.identity, asked) == (RELAY.public, ALICE.public, [])
    assert due_s < 1e12


def test_relay_is_named_by_its_own_advert():
    """Without BIND the advert that names the dialled address tells the key."""

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay) as (listener, _):
            now_s = int(time.time())
            others = [sign_advert(BOB, "tls://other.example:1", now_s, 600)]
            return await named(relay, listener, *others, sign_advert(RELAY, relay.url, now_s, 600))

    assert asyncio.run(scenario()).relay_id == RELAY.public


@pytest.mark.parametrize("fault", ["another address", "over", "forged", "none"])
def test_advert_that_cannot_be_believed_names_nobody(monkeypatch, fault):
    """A presence is not asserted at a place that nobody has named."""
    monkeypatch.setattr(bhumi_listener, "_NAME_TIMEOUT_S", 0.05)

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay) as (listener, _):
            now_s = int(time.time())
            good = sign_advert(RELAY, relay.url, now_s, 600)
            forged = type(good)(BOB.public, now_s, 600, relay.url, good.signature)
            adverts = {
                "another address": [sign_advert(RELAY, "tls://other.example:1", now_s, 600)],
                "over": [sign_advert(RELAY, relay.url, now_s - 700, 600)],
                "forged": [forged],
                "none": [],
            }[fault]
            return await named(relay, listener, *adverts), relay.of_type(FrameType.PRESENCE)

    assert asyncio.run(scenario()) == (None, [])


def test_what_is_known_elsewhere_will_do():
    """A key from the book saves the question."""

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay) as (listener, _):
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.send(peer, messages.Options(Feature.PRESENCE))
            await eventually(lambda: listener.machine.accepts(Feature.PRESENCE), "OPTIONS")
            return await listener.find_and_assert(PRESENCES, BOB.public)

    assert asyncio.run(scenario()).relay_id == BOB.public


def test_relay_without_presence_is_told_nothing():
    """A relay of the seed's protocol gets no frame that it does not know."""

    async def scenario():
        async with LoopbackRelay() as relay, listening(relay, original_relay=True) as (listener, _):
            await listener.wait_registered()
            presence = await listener.find_and_assert(PRESENCES, RELAY.public)
            return presence, listener.renew_presence(PRESENCES), relay.of_type(FrameType.PRESENCE)

    assert asyncio.run(scenario()) == (None, None, [])


@pytest.mark.parametrize("original_relay", [False, True])
def test_original_relay_is_recognised(original_relay):
    """A relay that answers no OPTIONS and puts the preimage into DELIVER is asked after by name (interop N2)."""

    async def scenario():
        async with ScriptedRelay() as relay, listening(relay, original_relay=original_relay) as (listener, _):
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.send(peer, messages.Deliver(1, b"request", bytes(32)))
            if original_relay:
                await eventually(lambda: listener.machine._unanswered, "the delivery")
                return ""
            await listener.ended
            return listener.reason()

    reason = asyncio.run(scenario())
    assert reason.endswith("then listen with --original-relay") is not original_relay
