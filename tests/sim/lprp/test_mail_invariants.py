"""Each law about mail sees what it must see, in a handful of observations."""

import pytest

from tests.sim.build import broken_by_last
from tests.sim.lprp.build import (
    ALICE,
    BOB,
    GRANT,
    KEY,
    MAIL,
    MALLORY,
    THERE,
    WALL_MS,
    answer,
    measured,
    packet,
    received,
    sent,
    view,
)
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.mail_invariants import DeliveredOnce, OnlySent, PromiseKept, TrueOutcome

TAKEN = [received(MAIL, THERE), sent(answer(0x202, MAIL), THERE)]
DONE = packet(ALICE, 0x802, MAIL.signature)
GOT = seen.AppGot(KEY, 0, 1, MAIL.data)
KEPT = seen.AppKept(KEY, MAIL.signature)


def see(law, observations):
    """Show all observations; return the law that the last one breaks, or None. No other one may break any."""
    return broken_by_last([PromiseKept([(KEY, 0)]) if law is PromiseKept else law()], observations)


class TestPromiseKept:
    """A 202 is a promise."""

    def test_promise_stands_on_the_disk_first(self):
        """A 202 for what is not stored is premature, unless it was delivered meanwhile."""
        early = sent(answer(0x202, MAIL), THERE, is_stored=False)

        assert see(PromiseKept, [received(MAIL, THERE), early]) == "promise-kept"
        assert see(PromiseKept, [received(MAIL, THERE), received(DONE), early]) is None

    @pytest.mark.parametrize("shown", [measured, lambda views: seen.HostStarted(0, WALL_MS, views)])
    def test_queue_holds_what_was_promised(self, shown):
        """At any time, and after a restart, what was accepted and not confirmed waits."""
        assert see(PromiseKept, [*TAKEN, shown({KEY: view(queue=1)})]) is None
        assert see(PromiseKept, [*TAKEN, shown({KEY: view(queue=0)})]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, shown({})]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, received(DONE), shown({})]) is None

    def test_only_the_recipient_confirms(self):
        """An 802 of somebody else removes nothing."""
        others = packet(MALLORY, 0x802, MAIL.signature)

        assert see(PromiseKept, [*TAKEN, received(others), measured()]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, received(DONE, is_signed=False), measured()]) == "promise-kept"

    def test_in_the_end_everything_has_arrived(self):
        """When the town has healed, the application has it and no queue holds anything."""
        end = measured(phase="healed")
        left = measured({KEY: view(queue=1)}, "healed")

        assert see(PromiseKept, [*TAKEN, received(DONE), end]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, received(DONE), KEPT, end]) is None
        assert see(PromiseKept, [*TAKEN, received(DONE), KEPT, left]) == "promise-kept"


class TestDeliveredOnce:
    """Once is enough."""

    def test_second_telling_needs_a_reason(self):
        """A packet comes again after it was handed back, or in another life, and never after it was confirmed."""
        back = seen.HandedBack(KEY, 0, 1, MAIL.signature)
        confirmed = seen.Confirmed(KEY, MAIL.signature)

        assert see(DeliveredOnce, [GOT, GOT]) == "delivered-once"
        assert see(DeliveredOnce, [GOT, back, GOT]) is None
        assert see(DeliveredOnce, [GOT, GOT._replace(life=2)]) is None
        assert see(DeliveredOnce, [GOT, confirmed, GOT._replace(life=2)]) == "delivered-once"
        assert see(DeliveredOnce, [GOT, confirmed, GOT._replace(host=1)]) == "delivered-once"

    def test_nothing_is_kept_twice(self):
        """An application has one copy."""
        assert see(DeliveredOnce, [KEPT, KEPT]) == "delivered-once"


class TestOnlySent:
    """Nothing out of nothing."""

    def test_application_gets_what_was_signed_for_it(self):
        """Another text, nobody's text, and somebody else's mail are each told."""
        made = seen.Made(MAIL.signature, MAIL.data)
        bent = MAIL.data[:-1] + b"x"

        assert see(OnlySent, [made, GOT]) is None
        assert see(OnlySent, [GOT]) == "only-sent"
        assert see(OnlySent, [made, GOT._replace(data=bent)]) == "only-sent"
        assert see(OnlySent, [seen.Made(MAIL.signature, bent), GOT._replace(data=bent)]) == "only-sent"
        assert see(OnlySent, [made, GOT._replace(key=BOB.public)]) == "only-sent"


class TestTrueOutcome:
    """Clients tell the truth."""

    def test_outcome_is_what_the_host_said(self):
        """Accepted needs a 202, refused a 402, and neither is told twice."""
        sending = seen.Sending(BOB.public, 0, MAIL.signature)
        accepted, refused, silence = (
            seen.Finished(BOB.public, 0, MAIL.signature, each) for each in ("ACCEPTED", "REFUSED", "UNANSWERED")
        )

        assert see(TrueOutcome, [sending, *TAKEN, accepted]) is None
        assert see(TrueOutcome, [sending, accepted]) == "true-outcome"
        assert see(TrueOutcome, [sending, *TAKEN, refused]) == "true-outcome"
        assert see(TrueOutcome, [sending, silence]) is None
        assert see(TrueOutcome, [sending, silence, silence]) == "true-outcome"

    def test_lease_is_what_the_host_gave(self):
        """Nobody has a lease whose host never sent so."""
        told = seen.LeaseReported(KEY, 0)

        assert see(TrueOutcome, [told]) == "true-outcome"
        assert see(TrueOutcome, [GRANT, told]) is None
