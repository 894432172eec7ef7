"""Each law about leases, lists and sizes sees what it must see, in a handful of observations."""

import pytest

from tests.sim.build import NOW, broken_by_last
from tests.sim.lprp.build import (
    ALICE,
    BOB,
    GRANT,
    HERE,
    HOST,
    KEY,
    MAIL,
    THERE,
    WALL_MS,
    answer,
    measured,
    packet,
    received,
    sent,
    view,
)
from waystation.sim.invariants import Watch
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.invariants import (
    LIMITS,
    Bookkeeping,
    Bounded,
    FairRefusal,
    LeaseKept,
    Whitelists,
)
from waystation.sim.lprp.model import Model
from waystation.sim.lprp.packets import set_hash

LIST = packet(ALICE, 0x108, set_hash(frozenset({BOB.public})) + BOB.public)


def see(law, observations):
    """Show all observations; return the law that the last one breaks, or None. No other one may break any."""
    model = Model([HOST.public], 60_000, 10_000)
    laws = {
        Whitelists: lambda: Whitelists(model),
        LeaseKept: lambda: LeaseKept(model),
        FairRefusal: lambda: FairRefusal(model),
    }
    return broken_by_last([Bookkeeping(model), laws.get(law, law)()], observations)


class TestWhitelists:
    """The list is what its tenant made."""

    def test_answers_and_views_agree_with_the_tenant(self):
        """After a 208 the list has the key, and a host that shows another number has lost it."""
        begun = [received(LIST), sent(answer(0x208, LIST))]
        wrong = packet(ALICE, 0x108, set_hash(frozenset()) + BOB.public)

        assert see(Whitelists, [*begun, measured({KEY: view(whitelist=1)})]) is None
        assert see(Whitelists, [*begun, measured({KEY: view(whitelist=7)})]) == "whitelist"
        assert see(Whitelists, [received(wrong), sent(answer(0x208, wrong))]) == "whitelist"
        assert see(Whitelists, [sent(answer(0x208, LIST))]) == "whitelist"

    def test_right_update_is_taken_from_who_has_a_lease(self):
        """A 408 to a change that fits is untrue, but for one who is no tenant any more."""
        refused = [received(LIST), sent(answer(0x408, LIST))]

        assert see(Whitelists, refused) is None
        assert see(Whitelists, [GRANT, *refused]) == "whitelist"

    def test_client_believes_what_is_so(self):
        """A client that is sure of another list than the host's has been lied to, or guesses."""
        told = seen.WhitelistReported(KEY, 0, (BOB.public,))

        assert see(Whitelists, [received(LIST), sent(answer(0x208, LIST)), told]) is None
        assert see(Whitelists, [told]) == "whitelist"


class TestLeaseKept:
    """A lease has an end, and that is where it was."""

    @pytest.mark.parametrize(("left_ms", "verdict"), [(50_000, None), (40_000, "lease-kept"), (60_000, "lease-kept")])
    def test_end_stays_where_it_is(self, left_ms, verdict):
        """Neither a restart nor a replay moves it."""
        shown = measured({KEY: view(lease_ms_left=left_ms)}, wall_ms=WALL_MS + 10_000)
        began = seen.HostStarted(0, shown.wall_ms, shown.views)

        assert see(LeaseKept, [GRANT, shown]) == verdict
        assert see(LeaseKept, [GRANT, began]) == verdict

    def test_lease_does_not_vanish(self):
        """Who was granted one is shown."""
        assert see(LeaseKept, [GRANT, measured()]) == "lease-kept"
        assert see(LeaseKept, [measured()]) is None


class TestFairRefusal:
    """No without a reason."""

    def test_mail_for_a_tenant_with_room_is_not_refused(self):
        """402 is for those without a lease, or with a queue that may be full."""
        refused = [received(MAIL, THERE), sent(answer(0x402, MAIL), THERE)]
        many = [received(packet(BOB, 0x102, bytes(64), WALL_MS + number, KEY), THERE) for number in range(1, 20)]

        assert see(FairRefusal, refused) is None
        assert see(FairRefusal, [GRANT, *refused]) == "fair-refusal"
        assert see(FairRefusal, [GRANT, *many, *refused]) is None

    def test_lease_is_to_be_had(self):
        """404 is sent to nobody in a town with room."""
        ask = packet(BOB, 0x104, bytes(64))

        assert see(FairRefusal, [received(ask), sent(answer(0x404, ask))]) == "fair-refusal"


class TestBounded:
    """Nothing for ever."""

    @pytest.mark.parametrize("name", sorted(LIMITS))
    def test_limit_holds(self, name):
        """One more than the limit is too many."""
        room = {"tenants": 1} if name != "tenants" else {}

        assert see(Bounded, [measured(**{**room, name: LIMITS[name]})]) is None
        assert see(Bounded, [measured(**{**room, name: LIMITS[name] + 1})]) == "bounded"

    def test_queues_and_lists_are_bounded_too(self):
        """256 packets in all queues on average, 256 in each, and 256 keys."""
        assert see(Bounded, [measured(packets=257, tenants=1)]) == "bounded"
        assert see(Bounded, [measured({KEY: view(queue=257)})]) == "bounded"
        assert see(Bounded, [measured({KEY: view(whitelist=257)})]) == "bounded"

    @pytest.mark.parametrize("name", ["challenges", "deliveries", "under_way"])
    def test_nothing_is_left_in_the_end(self, name):
        """When everybody has left for long, what goes on must have ended."""
        assert see(Bounded, [measured(phase="trouble", **{name: 1})]) is None
        assert see(Bounded, [measured(phase="settled", **{name: 1})]) == "bounded"


def test_books_ignore_what_was_sent_to_another_host():
    """A heartbeat for somebody else says nothing about this host's tenant."""
    model = Model([HOST.public], 60_000, 10_000)
    watch = Watch([Bookkeeping(model)])
    foreign = packet(ALICE, 0x100, recipient=BOB.public)

    for observation in (GRANT, received(foreign, THERE), received(packet(ALICE, 0x100), HERE)):
        watch.observe(observation, NOW)

    assert model.contact(0, KEY).places(NOW, 10_000) == {HERE}
