"""Each law of the wires sees what it must see, in a handful of datagrams."""

import pytest

from tests.sim.build import NOW, broken_by_last
from tests.sim.lprp.build import (
    ALICE,
    BOB,
    HERE,
    HOST,
    MALLORY,
    NOWHERE,
    THERE,
    WALL_MS,
    answer,
    measured,
    packet,
    received,
    sent,
    view,
)
from waystation.core.instant import Instant
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.invariants import Bookkeeping, Whitelists
from waystation.sim.lprp.model import Model
from waystation.sim.lprp.packets import set_hash, work_bits
from waystation.sim.lprp.wire_invariants import Answered, Earned, Mailed, Worked

BITS = 2
LEASE_MS = 600_000
ASK, BEAT = packet(ALICE, 0x104, bytes(64)), packet(ALICE, 0x100)
DEMAND, GRANT = answer(0x604, ASK), answer(0x204, ASK)
MAIL = packet(BOB, 0x102, bytes(364), recipient=ALICE.public)


def solve(demand, key, bits=BITS, time_ms=WALL_MS + 1):
    """Return the 101 with just so many bits of work."""
    counter = 0
    while work_bits(demand.data, counter.to_bytes(8, "big")) != bits:
        counter += 1
    return packet(key, 0x101, demand.signature + counter.to_bytes(8, "big"), time_ms)


WORK = solve(DEMAND, ALICE)
LEASE = [received(ASK), sent(DEMAND), received(WORK), sent(GRANT)]


def laws_of(*kinds):
    """Return these laws behind a model of their own."""
    model = Model([HOST.public], LEASE_MS, 10_000)
    laws = {
        Earned: lambda: Earned(model),
        Answered: Answered,
        Mailed: lambda: Mailed(model),
        Worked: lambda: Worked(model, BITS, exact=True),
        Whitelists: lambda: Whitelists(model),
    }
    return [Bookkeeping(model), *(laws[kind]() for kind in kinds)]


def see(law, observations, now=NOW):
    """Show all observations; return which law is broken by the last one, or None."""
    laws = laws_of(*{Answered: (Answered, Worked), Worked: (Worked, Whitelists)}.get(law, (Worked, law)))
    return broken_by_last(laws, observations, [*[NOW] * (len(observations) - 1), now])


class TestEarned:
    """Nothing leaves that was not paid for."""

    def test_nobody_gets_what_he_did_not_ask_for(self):
        """An address that never spoke gets nothing, nor one that was silent for too long."""
        late = Instant(NOW + 131_072_000 + 10_001)

        assert see(Earned, [sent(DEMAND)]) == "earned"
        assert see(Earned, [*LEASE, sent(answer(0x200, BEAT))], late) == "earned"
        assert see(Earned, [*LEASE, received(BEAT), sent(answer(0x200, BEAT))]) is None

    def test_noise_pays_for_nothing(self):
        """What fails the first look is not counted."""
        assert see(Earned, [received(None, size=400), sent(DEMAND)]) == "earned"

    def test_strangers_get_no_more_than_came_from_their_network(self):
        """A short request pays for its answer only together with its repeat, from any address of the network."""
        short = packet(BOB, 0x102, b"", recipient=ALICE.public)
        neighbour = (HERE[0].replace(".0.1", ".0.2"), 5)
        reply = sent(answer(0x602, short))

        assert see(Earned, [received(short), reply]) == "earned"
        assert see(Earned, [received(short), received(short, neighbour), reply]) is None
        assert see(Earned, [received(short), received(short, THERE), reply]) == "earned"

    def test_unproved_address_gets_four_times_its_bytes(self):
        """A tenant at a new address is sent four times what came from there, and not a byte more."""
        there = [*LEASE, received(BEAT, THERE)]

        assert see(Earned, [*there, sent(MAIL, THERE)]) is None
        assert see(Earned, [*there, sent(MAIL, THERE), sent(MAIL, THERE)]) == "earned"

    def test_proof_lifts_the_limit(self):
        """Who answered a challenge that went to an address may be sent anything there."""
        assert see(Earned, [*LEASE, *[sent(MAIL)] * 20]) is None

    def test_challenge_that_went_to_two_addresses_proves_neither(self):
        """Whoever asked from both could answer in the name of the first."""
        both = [received(ASK), sent(DEMAND), received(ASK, THERE), sent(DEMAND, THERE), received(WORK), sent(GRANT)]

        assert see(Earned, [*both, *[sent(MAIL)] * 2]) is None
        assert see(Earned, [*both, *[sent(MAIL)] * 3]) == "earned"

    def test_proof_of_one_tenant_serves_no_other(self):
        """Mail for Bob goes to Alice's address only as far as was paid for."""
        to_bob = packet(ALICE, 0x102, bytes(364), recipient=BOB.public)
        granted = sent(packet(HOST, 0x204, bytes(64), recipient=BOB.public), THERE)
        both = [*LEASE, received(packet(BOB, 0x104, bytes(64)), THERE), granted]

        assert see(Earned, [*both, *[sent(to_bob)] * 2]) is None
        assert see(Earned, [*both, *[sent(to_bob)] * 3]) == "earned"

    def test_restart_forgets_what_was_paid(self):
        """A host that began anew owes nothing to anybody."""
        assert see(Earned, [*LEASE, seen.HostStarted(0, WALL_MS, {}), sent(answer(0x200, BEAT))]) == "earned"


class TestAnswered:
    """Every datagram of a host has its reason."""

    def test_each_question_has_one_answer(self):
        """The same packet twice is two questions; a third answer is one too many."""
        twice = [received(ASK), received(ASK), sent(DEMAND), sent(DEMAND)]

        assert see(Answered, twice) is None
        assert see(Answered, [*twice, sent(DEMAND)]) == "answered"

    def test_answer_goes_where_the_question_came_from(self):
        """Another address has not asked, even with the same key."""
        assert see(Answered, [received(ASK), sent(DEMAND, THERE)]) == "answered"

    def test_work_is_answered_in_the_name_of_its_request(self):
        """A 204 names the 104, and the 101 pays for it."""
        assert see(Answered, LEASE) is None
        assert see(Answered, [received(ASK), sent(DEMAND), sent(GRANT)]) == "answered"
        poor = solve(DEMAND, ALICE, BITS - 1)
        assert see(Answered, [*LEASE[:2], received(poor), sent(answer(0x401, poor))]) is None

    def test_heartbeats_are_counted_too(self):
        """One 200 for each 100."""
        beaten = [received(BEAT), sent(answer(0x200, BEAT))]

        assert see(Answered, beaten) is None
        assert see(Answered, [*beaten, sent(answer(0x200, BEAT))]) == "answered"

    @pytest.mark.parametrize(
        "wrong",
        [
            sent(DEMAND, is_signed=False),
            sent(answer(0x202, ASK)),
            sent(packet(HOST, 0x604, ASK.signature, recipient=BOB.public)),
            sent(packet(HOST, 0x604, ASK.signature + b"x", recipient=ALICE.public)),
            sent(packet(HOST, 0x604, bytes(64), recipient=ALICE.public)),
            sent(packet(BOB, 0x102, b"", recipient=ALICE.public), is_signed=False),
        ],
    )
    def test_anything_else_is_wrong(self, wrong):
        """Unsigned, of another kind, to somebody else, too long, about nothing, or mail that nobody brought."""
        assert see(Answered, [received(ASK), wrong]) == "answered"

    def test_mail_is_as_it_came(self):
        """What was received may be sent on, byte for byte."""
        assert see(Answered, [received(MAIL, THERE), sent(MAIL, is_signed=False)]) is None

    def test_forged_questions_are_none(self):
        """A packet that its sender did not sign is not answered."""
        assert see(Answered, [received(ASK, is_signed=False), sent(DEMAND)]) == "answered"

    def test_restart_answers_nothing_from_before(self):
        """What was asked in another life has to be asked again."""
        assert see(Answered, [received(ASK), seen.HostStarted(0, WALL_MS, {}), sent(DEMAND)]) == "answered"


class TestMailed:
    """Mail follows the newest packet."""

    def test_mail_goes_to_the_address_on_file(self):
        """A replayed heartbeat from elsewhere brings no mail there; a newer one does."""
        newer = packet(ALICE, 0x100, time_ms=WALL_MS + 5)

        assert see(Mailed, [*LEASE, sent(MAIL)]) is None
        assert see(Mailed, [*LEASE, received(BEAT, NOWHERE), sent(MAIL, NOWHERE)]) == "mail-address"
        assert see(Mailed, [*LEASE, received(newer, THERE), sent(MAIL, THERE)]) is None

    def test_what_is_shown_agrees(self):
        """A host that shows another address has been moved."""
        places = {
            address: measured({ALICE.public: view(address=address)}) for address in ("10.1.0.1:2000", "9.9.9.9:9")
        }

        assert see(Mailed, [*LEASE, places["10.1.0.1:2000"]]) is None
        assert see(Mailed, [*LEASE, places["9.9.9.9:9"]]) == "mail-address"
        assert see(Mailed, [*LEASE, measured({ALICE.public: view()})]) is None


class TestWorked:
    """Work is asked for where it is due, and honoured."""

    def test_lease_costs_work_of_the_one_who_asked(self):
        """Too few bits, or the work of another key, buy nothing."""
        others = solve(DEMAND, MALLORY)

        assert see(Worked, LEASE) is None
        assert see(Worked, [received(ASK), sent(DEMAND), sent(GRANT)]) == "worked"
        assert (
            see(Worked, [received(ASK), sent(DEMAND), received(solve(DEMAND, ALICE, BITS - 1)), sent(GRANT)])
            == "worked"
        )
        assert see(Worked, [received(ASK), sent(DEMAND), received(others), sent(GRANT)]) == "worked"

    def test_work_for_one_host_is_none_at_another(self):
        """A demand that somebody else signed is no demand of this host."""
        forged = packet(MALLORY, 0x604, ASK.signature, recipient=ALICE.public)
        work = solve(forged, ALICE)

        assert see(Worked, [received(ASK), sent(forged, is_signed=True), received(work), sent(GRANT)]) == "worked"

    def test_strangers_pay_and_friends_do_not(self):
        """A 202 without work is for friends, and a 602 is not."""
        add = packet(ALICE, 0x108, set_hash(frozenset({BOB.public})) + BOB.public, WALL_MS + 2)
        befriended = [*LEASE, received(add), sent(answer(0x208, add))]
        after = Instant(NOW + 10_001)
        shown = Watch(laws_of(Worked, Whitelists))
        for observation in befriended:
            shown.observe(observation, NOW)
        shown.observe(received(MAIL, THERE), after)

        with pytest.raises(ViolationError, match="demands work of a friend"):
            shown.observe(sent(answer(0x602, MAIL), THERE), after)
        assert see(Worked, [*LEASE, received(MAIL, THERE), sent(answer(0x202, MAIL), THERE)]) == "worked"
        assert see(Worked, [*befriended, received(MAIL, THERE), sent(answer(0x202, MAIL), THERE)]) is None

    def test_mail_to_oneself_is_free(self):
        """A tenant is its own friend."""
        own = packet(ALICE, 0x102, bytes(64), recipient=ALICE.public)

        assert see(Worked, [*LEASE, received(own), sent(answer(0x202, own))]) is None

    def test_hasty_update_costs_work(self):
        """The first update is free, the next one within 2**19 ms is not, and a comparison always is."""
        bob, none = frozenset({BOB.public}), frozenset()
        first = packet(ALICE, 0x108, set_hash(bob) + BOB.public, WALL_MS + 2)
        second = packet(ALICE, 0x108, set_hash(none) + BOB.public, WALL_MS + 3)
        ask = packet(ALICE, 0x108, set_hash(bob) + bytes(32), WALL_MS + 4)
        begun = [*LEASE, received(first), sent(answer(0x208, first))]
        late_ms = WALL_MS + 524_289

        assert see(Worked, begun) is None
        assert see(Worked, [*begun, received(second), sent(answer(0x208, second))]) == "worked"
        assert see(Worked, [*begun, received(second), sent(answer(0x208, second), wall_ms=late_ms)]) is None
        assert see(Worked, [*begun, received(ask), sent(answer(0x208, ask))]) is None

    def test_good_work_is_not_refused(self):
        """A 401 is for too few bits, or for a challenge that has expired."""
        refused = sent(answer(0x401, WORK))
        poor = solve(DEMAND, ALICE, BITS - 1)
        late = received(WORK, wall_ms=WALL_MS + 524_289)

        assert see(Worked, [*LEASE[:3], refused]) == "worked"
        assert see(Worked, [*LEASE[:2], received(poor), sent(answer(0x401, poor))]) is None
        assert see(Worked, [*LEASE[:2], late, refused]) is None
