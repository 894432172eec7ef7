"""Laws of carriers: what is due goes out as bundles, and what fails is tried again."""

import asyncio

import pytest

from tests.sdk.bsp.build import WITHIN_S, acquaint, bodies, delivered, devices, next_event
from waystation.core.errors import HostError, RemoteError
from waystation.sdk.bsp import (
    BundleRefused,
    Carrier,
    CarrierTrouble,
    LinkTerms,
    Mode,
    PeerHolds,
    PeerUp,
    Refusal,
)
from waystation.sdk.bsp import carrier as bsp_carrier

PASSES_ON = LinkTerms("merk", base_ms=1_000)
WEAK = bytes([1]) + bytes(31)
"""The neutral point: nothing can be sealed for it."""
KEEPS = LinkTerms("lprp", base_ms=86_400_000, outlives=True, mode=Mode.BATCH)


class Post:
    """A relay in memory: bundles go to the carrier of the recipient at once, or to a pile while it is away."""

    def __init__(self, terms):
        self.terms = terms
        self.carriers = {}
        self.piles = {}
        self.refusals_count = 0
        self.carried = []
        self.piled = asyncio.Event()

    def carrier(self, key):
        """Return the carrier of one peer."""
        return PostCarrier(self, key)


class PostCarrier:
    """One client of the relay."""

    bundle_bytes_max = 40_000

    def __init__(self, post, key):
        self.post, self.key, self.terms, self.session = post, key, post.terms, None

    def reaches(self, peer):
        """Return whether the other one ever came."""
        return peer != self.key

    async def open(self, session):
        """Take what waits, then what comes."""
        self.session = session
        self.post.carriers[self.key] = self
        for bundle in self.post.piles.pop(self.key, []):
            await session.take(bundle)
        for other in self.post.carriers.values():
            if other is not self:
                other.session.reached(self.key)

    async def close(self):
        """Be away."""
        self.post.carriers.pop(self.key, None)

    async def carry(self, peer, bundle):
        """Hand a bundle over."""
        assert len(bundle) <= self.bundle_bytes_max
        if self.post.refusals_count:
            self.post.refusals_count -= 1
            raise HostError("the relay is out of reach")
        self.post.carried.append(peer)
        if peer in self.post.carriers:
            await self.post.carriers[peer].session.take(bundle)
        elif self.terms.outlives:
            self.post.piles.setdefault(peer, []).append(bundle)
            self.post.piled.set()
        else:
            raise HostError("the recipient is away")


@pytest.mark.parametrize("terms", [PASSES_ON, KEEPS])
def test_messages_go_both_ways_by_a_carrier(tmp_path, terms):
    """Two devices at one relay come to hold the same, and know it of each other."""
    post = Post(terms)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            alices, bobs, answers = alice.news(), bob.news(), alice.news()
            for peer in (alice, bob):
                await peer.attach(post.carrier(peer.key))
            for number in range(3):
                await alice.send(group, bytes([number]) * 30_000)
            await bob.send(group, b"from bob")
            await delivered(alices, 4)
            await delivered(bobs, 4)
            for _ in range(3):
                await next_event(answers, lambda event: isinstance(event, PeerHolds))
            return sorted(bodies(alice, group)), sorted(bodies(bob, group)), alice.status()

    alices, bobs, status = asyncio.run(main())

    assert alices == bobs
    assert len(alices) == 4
    assert (status.peers[0].link, status.peers[0].owed_count) == (terms.kind, 0)


def test_relay_that_keeps_brings_what_was_sent_to_somebody_away(tmp_path):
    """What a relay has taken arrives although the two are never there together."""
    post = Post(KEEPS)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.attach(post.carrier(alice.key))
            await alice.send(group, b"for later")
            await asyncio.wait_for(post.piled.wait(), WITHIN_S)
            await alice.aclose()
            news = bob.news()
            await bob.attach(post.carrier(bob.key))
            await delivered(news, 1)
            return bodies(bob, group)

    assert asyncio.run(main()) == [b"for later"]


@pytest.mark.parametrize("terms", [PASSES_ON, KEEPS])
def test_relay_that_fails_is_tried_again(tmp_path, monkeypatch, terms):
    """What a relay did not take is told, and goes out again after a pause."""
    monkeypatch.setattr(bsp_carrier, "PAUSE_S", 0.01)
    post = Post(terms)
    post.refusals_count = 2

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            alices, bobs = alice.news(), bob.news()
            await bob.attach(post.carrier(bob.key))
            await alice.attach(post.carrier(alice.key))
            await alice.send(group, b"hello")
            troubles = [await next_event(alices, lambda event: isinstance(event, CarrierTrouble)) for _ in range(2)]
            await delivered(bobs, 1)
            return [(trouble.kind, trouble.reason) for trouble in troubles]

    assert asyncio.run(main()) == [(terms.kind, "the relay is out of reach")] * 2


def test_peer_that_comes_gets_at_once_what_waits(tmp_path, monkeypatch):
    """When a carrier says that a peer is reached, a pause ends, and what went into the void goes out anew."""
    monkeypatch.setattr(bsp_carrier, "PAUSE_S", 60.0)
    post = Post(PASSES_ON)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            alices, bobs = alice.news(), bob.news()
            await alice.attach(post.carrier(alice.key))
            await alice.send(group, b"hello")
            await next_event(alices, lambda event: isinstance(event, CarrierTrouble))
            away = alice.status().peers[0].link
            await bob.attach(post.carrier(bob.key))
            await delivered(bobs, 1)
            return away, bodies(bob, group)

    assert asyncio.run(main()) == (None, [b"hello"])


def test_foreign_bundle_is_counted_and_harmless(tmp_path):
    """Junk that a relay hands over is refused, told and counted, and nothing else happens."""
    post = Post(PASSES_ON)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await acquaint(alice, bob, await alice.create_group("talk"))
            news, carrier = alice.news(), post.carrier(alice.key)
            await alice.attach(carrier)
            taken = await carrier.session.take(b"junk")
            told = await next_event(news, lambda event: isinstance(event, BundleRefused))
            return taken, told, alice.status().refused_bundles_count

    assert asyncio.run(main()) == (None, BundleRefused("merk", Refusal.FILE_FORM), 1)


def test_desk_makes_a_bundle_for_whoever_asks(tmp_path):
    """``make`` gives what is due, once; nothing for a stranger."""
    post = Post(PASSES_ON)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            carrier, theirs = post.carrier(alice.key), post.carrier(bob.key)
            carrier.reaches = lambda peer: False
            await alice.attach(carrier)
            await bob.attach(theirs)
            await alice.send(group, b"hello")
            made = [await carrier.session.make(bob.key, 40_000) for _ in range(2)]
            stranger = await carrier.session.make(bytes(32), 40_000)
            news = bob.news()
            sender = await theirs.session.take(made[0])
            await delivered(news, 1)
            return made[1], stranger, sender == alice.key, list(carrier.session.peers()) == [bob.key]

    assert asyncio.run(main()) == (None, None, True, True)


def test_carrier_that_cannot_open_is_closed_and_told(tmp_path):
    """A relay that cannot be had fails ``attach``, and the peer goes on without it."""
    post = Post(PASSES_ON)

    async def main():
        async with devices(tmp_path, 1) as (alice,):
            carrier = post.carrier(alice.key)

            async def refuse(session):
                raise HostError("no relay there")

            carrier.open = refuse
            with pytest.raises(HostError, match="no relay there"):
                await alice.attach(carrier)
            async with asyncio.timeout(WITHIN_S):
                return ((await alice.send(await alice.create_group(), b"hello")).message).order

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("terms", [PASSES_ON, KEEPS])
def test_peer_that_nothing_can_be_sealed_for_costs_nothing_but_a_word(tmp_path, terms):
    """A key that is no point of the curve is told as trouble, and what waits for it still waits."""
    post = Post(terms)

    async def main():
        async with devices(tmp_path, 1) as (alice,):
            group = await alice.create_group("talk")
            await alice.meet(WEAK)
            await alice.share(group, WEAK)
            news, carrier = alice.news(), post.carrier(alice.key)
            await alice.attach(carrier)
            await alice.send(group, b"hello")
            told = [await next_event(news, lambda event: isinstance(event, CarrierTrouble))]
            made = await carrier.session.make(WEAK, 40_000)
            told.append(await next_event(news, lambda event: isinstance(event, CarrierTrouble)))
            with pytest.raises(RemoteError):
                await alice.export_file(WEAK, tmp_path / "out.bsp")
            return made, [each.peer for each in told], alice.why(group, alice.history(group)[0].message_id)

    made, peers, why = asyncio.run(main())

    assert (made, peers) == (None, [WEAK, WEAK])
    assert (why.peers[0].status.copies, why.peers[0].status.next_in_us) == (0, 0)


def test_better_way_that_comes_up_takes_over_what_is_left(tmp_path):
    """A carrier that is at work stops behind the bundle in its hands when a connection stands, and repeats nothing."""
    post = Post(KEEPS)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            carrier, at_work, may_go = post.carrier(alice.key), asyncio.Event(), asyncio.Event()

            async def carry(peer, bundle):
                post.carried.append(peer)
                at_work.set()
                await may_go.wait()

            carrier.carry = carry
            await alice.attach(carrier)
            for number in range(4):
                await alice.send(group, bytes([number]) * 30_000)
            await asyncio.wait_for(at_work.wait(), WITHIN_S)
            alices, bobs = alice.news(), bob.news()
            bob.connect(alice.key, await alice.listen())
            await next_event(alices, lambda event: isinstance(event, PeerUp))
            await delivered(bobs, 3)
            may_go.set()
            await delivered(bobs, 1)
            return len(post.carried), len(bodies(bob, group))

    assert asyncio.run(main()) == (1, 4)


def test_carrier_is_asked_for_no_more_than_it_must_have():
    """A carrier needs its terms, its bound and four methods."""
    asked = {name for name in vars(Carrier) if not name.startswith("_")}

    assert asked == {"bundle_bytes_max", "carry", "close", "open", "reaches", "terms"}
