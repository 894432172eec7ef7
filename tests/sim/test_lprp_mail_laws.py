"""Each law about mail sees what it must see, in a handful of observations."""

import pytest

from tests.sim.build_lprp import ALICE, BOB, HOST, MALLORY, THERE, WALL_MS, answer, heard, measured, packet, said, view
from waystation.core.instant import Instant
from waystation.sim import lprp_observations as seen
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.lprp_mail_laws import DeliveredOnce, OnlySent, PromiseKept, TrueOutcome

NOW = Instant(1_000_000)
KEY = ALICE.public
MAIL = packet(BOB, 0x102, bytes(64), recipient=KEY)
TAKEN = [heard(MAIL, THERE), said(answer(0x202, MAIL), THERE)]
DONE = packet(ALICE, 0x802, MAIL.signature)
GRANT = said(packet(HOST, 0x204, bytes(64), recipient=KEY))
GOT = seen.AppGot(KEY, 0, 1, MAIL.data)
KEPT = seen.AppKept(KEY, MAIL.signature)


def see(law, observations):
    """Show all observations; return the law that the last one breaks, or None. No other one may break any."""
    watch = Watch([PromiseKept([(KEY, 0)]) if law is PromiseKept else law()])
    for observation in observations[:-1]:
        watch.observe(observation, NOW)
    try:
        watch.observe(observations[-1], NOW)
    except ViolationError as error:
        return error.invariant
    return None


class TestPromiseKept:
    """A 202 is a promise."""

    def test_promise_stands_on_the_disk_first(self):
        """A 202 for what is not stored is premature, unless it was delivered meanwhile."""
        early = said(answer(0x202, MAIL), THERE, is_stored=False)

        assert see(PromiseKept, [heard(MAIL, THERE), early]) == "promise-kept"
        assert see(PromiseKept, [heard(MAIL, THERE), heard(DONE), early]) is None

    @pytest.mark.parametrize("shown", [measured, lambda views: seen.HostBegan(0, 2, WALL_MS, views)])
    def test_queue_holds_what_was_promised(self, shown):
        """At any time, and after a restart, what was accepted and not confirmed waits."""
        assert see(PromiseKept, [*TAKEN, shown({KEY: view(queue=1)})]) is None
        assert see(PromiseKept, [*TAKEN, shown({KEY: view(queue=0)})]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, shown({})]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, heard(DONE), shown({})]) is None

    def test_only_the_recipient_confirms(self):
        """An 802 of somebody else removes nothing."""
        others = packet(MALLORY, 0x802, MAIL.signature)

        assert see(PromiseKept, [*TAKEN, heard(others), measured()]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, heard(DONE, is_signed=False), measured()]) == "promise-kept"

    def test_in_the_end_everything_has_arrived(self):
        """When the town has healed, the application has it and no queue holds anything."""
        end = measured(phase="healed")
        left = measured({KEY: view(queue=1)}, "healed")

        assert see(PromiseKept, [*TAKEN, heard(DONE), end]) == "promise-kept"
        assert see(PromiseKept, [*TAKEN, heard(DONE), KEPT, end]) is None
        assert see(PromiseKept, [*TAKEN, heard(DONE), KEPT, left]) == "promise-kept"


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
        """Nobody has a lease whose host never said so."""
        told = seen.LeaseTold(KEY, 0)

        assert see(TrueOutcome, [told]) == "true-outcome"
        assert see(TrueOutcome, [GRANT, told]) is None
