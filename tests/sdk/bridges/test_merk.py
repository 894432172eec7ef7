"""Bundles over MERK, between real clients and the node's own relay machine."""

import asyncio
import contextlib
import time

import pytest

from tests.sdk.bsp.build_carrier import FULL, STRANGER, A, B, CarrierSession, run
from tests.sdk.merk.build import NOWHERE, QUICK, Events, OriginalServer, RelayServer
from waystation.core.errors import HostError, LocalError
from waystation.protocols.merk.messages import MessageType
from waystation.sdk.bridges.merk import HELLO, MERK_BUNDLE_BYTES_MAX, BspOverMerk, merk_keys_of
from waystation.sdk.bsp.carrier import CarrierFailure
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import NotCarriedError, RelayUnreachableError
from waystation.sdk.merk import Connected, Keys, MerkClient


@contextlib.asynccontextmanager
async def carrier(relay, key_pair, *peers, **options):
    """Give an open carrier of one device, connected to a relay, and its session."""
    events = Events()
    session = CarrierSession(key_pair, *peers)
    carrying = BspOverMerk(
        relay.url, keys=options.pop("keys", merk_keys_of(key_pair)), only=True, on_event=events, **QUICK, **options
    )
    await carrying.open(session)
    try:
        await events.until(Connected)
        yield carrying, session, events
    finally:
        await carrying.close()


@contextlib.asynccontextmanager
async def both(relay, **options):
    """Give carriers of A and B, each greeted by the other or not."""
    async with carrier(relay, A, B, **options) as a, carrier(relay, B, A, **options) as b:
        yield a, b


def test_longest_record_arrives_and_no_relay_can_read_it():
    """The longest message there is fits one bundle, comes once, and stands in no frame, nor does what it is."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, a_desk, _), (_, b_desk, _)):
            await a.carry(B.public, a_desk.seal(B.public, FULL))
            await b_desk.until_taken()
            return b_desk.taken, b"".join(relay.frames)

    taken, frames = run(scenario)

    assert taken == [(A.public, FULL)]
    assert FULL[:64] not in frames
    assert b"BSPF" not in frames


def test_order_and_count_are_kept():
    """Bundles come as they were carried, each once."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, a_desk, _), (b, b_desk, _)):
            for number in range(20):
                await a.carry(B.public, a_desk.seal(B.public, b"%d" % number))
                await b.carry(A.public, b_desk.seal(A.public, b"-%d" % number))
            return await b_desk.until_taken(20), await a_desk.until_taken(20)

    to_b, to_a = run(scenario)

    assert to_b == [b"%d" % number for number in range(20)]
    assert to_a == [b"-%d" % number for number in range(20)]


def test_absent_peer_is_told():
    """A bundle for somebody who was there and is away counts as lost, at once."""

    async def scenario():
        async with RelayServer() as relay, carrier(relay, A, B) as (a, session, _):
            async with carrier(relay, B, A):
                await a.carry(B.public, session.seal(B.public, b"there"))
            with pytest.raises(NotCarriedError, match="no node linked") as raised:
                await a.carry(B.public, session.seal(B.public, b"away"))
            return raised.value.peer

    assert run(scenario) == B.public


def test_peer_that_never_was_there_is_told():
    """Nothing can be encrypted for somebody whom the mesh has never seen."""

    async def scenario():
        async with RelayServer() as relay, carrier(relay, A, B) as (a, session, _):
            with pytest.raises(Exception, match="nobody knows the agreement key"):
                await a.carry(B.public, session.seal(B.public, b"x"))

    run(scenario)


def test_whoever_connects_says_hello():
    """When B comes, A is told that B can be reached; B has taken no bundle for it, and said it once."""

    async def scenario():
        async with RelayServer() as relay, carrier(relay, A, B) as (_, a_desk, _):
            await a_desk.until_reached(B)  # A's own connection is new
            async with carrier(relay, B, A) as (_, b_desk, _):
                await a_desk.until_reached(B, 2)
                return a_desk.reached_peers, a_desk.refused_count, b_desk.taken

    assert run(scenario) == ([B.public, B.public], 0, [])


def test_hello_of_a_stranger_is_ignored():
    """Only known peers are reached."""

    async def scenario():
        async with (
            RelayServer() as relay,
            carrier(relay, A, B) as (_, session, _),
            MerkClient(relay.url, keys=merk_keys_of(STRANGER), only=True, **QUICK) as stranger,
        ):
            outcome = (await stranger.send(A.public, HELLO)).outcome
            await stranger.send(A.public, CarrierSession(STRANGER).seal(A.public, b"x"))
            await session.until(lambda each: each.refused_count)
            return outcome.ok, session.reached_peers, session.taken

    assert run(scenario) == (True, [B.public], [])


def test_hello_of_yesterday_is_ignored():
    """What a relay may have kept back for a day says nothing about who is there now."""

    async def scenario():
        async with (
            RelayServer() as relay,
            carrier(relay, A, B) as (_, session, _),
            MerkClient(relay.url, keys=merk_keys_of(B), only=True, clock=lambda: time.time() - 86_400, **QUICK) as b,
        ):
            await b.send(A.public, HELLO)
            await b.send(A.public, b"BSPF junk")
            await session.until(lambda each: each.refused_count)
            return session.reached_peers

    assert run(scenario) == [B.public]


def test_connection_comes_back():
    """After the relay has cut everybody both are reached again, and bundles go on."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, a_desk, a_events), (_, b_desk, b_events)):
            await a.carry(B.public, a_desk.seal(B.public, b"before"))
            await relay.cut()
            await a_events.until(Connected, count=2)
            await b_events.until(Connected, count=2)
            await relay.until_proved(4)
            await a.carry(B.public, a_desk.seal(B.public, b"after"))
            return await b_desk.until_taken(2), a_desk.reached_peers.count(B.public) >= 2

    assert run(scenario) == ([b"before", b"after"], True)


def test_broken_connection_acknowledges_nothing():
    """A bundle that left on a connection which breaks before the relay tells its outcome counts as lost."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, session, _), _):
            await a.carry(B.public, session.seal(B.public, b"1"))
            relay.hold.clear()
            carrying = asyncio.create_task(a.carry(B.public, session.seal(B.public, b"2")))
            await asyncio.wait([carrying], timeout=0.02)
            await relay.cut()
            relay.hold.set()
            with pytest.raises(NotCarriedError, match="nobody can say"):
                await carrying

    run(scenario)


@pytest.mark.slow
def test_original_relay_tells_nothing_and_carries():
    """With a relay that has no notices, a bundle that left on a standing connection counts as carried."""
    keys = [merk_keys_of(each) for each in (A, B)]

    async def scenario():
        async with OriginalServer() as relay, both(relay) as ((a, a_desk, _), (_, b_desk, _)):
            await a.merk.send(B.public, "pins the key", agreement_key=keys[1].agreement_public)
            await a.carry(B.public, a_desk.seal(B.public, b"x"))
            return await b_desk.until_taken()

    assert run(scenario) == [b"x"]


def test_no_relay_is_told():
    """Opening waits for nobody; carrying says that no relay was reached."""

    async def scenario():
        a = BspOverMerk(NOWHERE, keys=merk_keys_of(A), only=True, connect_s=0.05, **QUICK)
        session = CarrierSession(A, B)
        await a.open(session)
        with pytest.raises(RelayUnreachableError):
            await a.carry(B.public, session.seal(B.public, b"x"))
        await a.close()

    run(scenario)


def test_carrier_without_any_relay_says_so():
    """When there is nothing to try any more, every bundle is refused with the reason."""

    async def scenario():
        events = Events()
        a, session = BspOverMerk((), keys=merk_keys_of(A), only=True, on_event=events, **QUICK), CarrierSession(A, B)
        await a.open(session)
        (failure,) = await events.until(CarrierFailure)
        with pytest.raises(HostError, match="no relay is known"):
            await a.carry(B.public, session.seal(B.public, b"x"))
        await a.close()
        return failure.kind

    assert run(scenario) == "merk"


def test_full_disk_is_told_and_the_next_bundle_taken():
    """What our disk refuses is lost to us, not the end of receiving."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, a_desk, _), (_, b_desk, b_events)):
            b_desk.full = True
            await a.carry(B.public, a_desk.seal(B.public, b"lost"))
            (failure,) = await b_events.until(CarrierFailure)
            b_desk.full = False
            await a.carry(B.public, a_desk.seal(B.public, b"kept"))
            return failure.reason, await b_desk.until_taken()

    assert run(scenario) == ("the disk is full", [b"kept"])


def test_other_messages_are_handed_on():
    """Texts, and bytes that are no bundle, are the application's."""
    others = []

    async def scenario():
        async with (
            RelayServer() as relay,
            carrier(relay, A, B, on_message=others.append) as (_, session, _),
            MerkClient(relay.url, keys=merk_keys_of(B), only=True, **QUICK) as b,
        ):
            await b.send(A.public, "hello")
            await b.send(A.public, b"\0\1")
            await b.send(A.public, b"BSPF junk")
            await session.until(lambda each: each.refused_count)
            return [message.content for message in others]

    texts, data = run(scenario)

    assert (texts.text, data.data) == ("hello", b"\0\1")


def test_peer_with_another_key_at_the_relay():
    """A mapped peer is written to by its relay key, and known by it."""
    relay_keys = merk_keys_of(STRANGER)
    known = Identities({B.public: STRANGER.public})

    async def scenario():
        async with (
            RelayServer() as relay,
            carrier(relay, A, B, identities=known) as (a, a_desk, _),
            carrier(relay, B, A, keys=relay_keys) as (_, b_desk, _),
        ):
            await a_desk.until_reached(B, 2)
            await a.carry(B.public, a_desk.seal(B.public, b"x"))
            return await b_desk.until_taken()

    assert run(scenario) == [b"x"]


def test_bundle_beyond_the_bound_is_refused():
    """The caller has asked for less."""

    async def scenario():
        async with RelayServer() as relay, carrier(relay, A, B) as (a, _, _):
            with pytest.raises(LocalError, match="131072"):
                await a.carry(B.public, bytes(MERK_BUNDLE_BYTES_MAX + 1))

    run(scenario)


def test_largest_bundle_is_carried():
    """A bundle of just the bound goes through."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((a, a_desk, _), (_, b_desk, _)):
            a_desk.due[B.public].extend([bytes(MERK_BUNDLE_BYTES_MAX // 4 - 150)] * 4)
            bundle = await a_desk.make(B.public, a.bundle_bytes_max)
            await a.carry(B.public, bundle)
            return len(bundle), len(await b_desk.until_taken(4))

    size, count = run(scenario)

    assert MERK_BUNDLE_BYTES_MAX - 200 < size <= MERK_BUNDLE_BYTES_MAX
    assert count == 4


def test_silence_once_nothing_is_due():
    """Two carriers that have nothing to carry say hello once each, and nothing else to each other."""

    async def scenario():
        async with RelayServer() as relay, both(relay) as ((_, a_desk, _), _):
            await a_desk.until_reached(B, 2)
            await wait(0.1)
            return len(relay.of_kind(MessageType.DATA)), relay.of_kind(MessageType.ENCRYPTED_DATA)

    data_count, encrypted = run(scenario)

    assert data_count == 0
    assert len(encrypted) <= 2


async def wait(seconds):
    """Let some time pass in which nothing should happen."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def test_merk_keys_are_the_devices_own_and_the_same_at_every_start():
    """The signing key is the device's; the agreement key grows from it, and differs between devices."""
    first, again, other = merk_keys_of(A), merk_keys_of(A), merk_keys_of(B)

    assert first.signing == A
    assert first == again
    assert first.agreement_public != other.agreement_public
    assert first.agreement_secret != A.seed
    assert Keys.import_json(first.export_json()) == first
