"""Each law of the wires sees what it must see, in a handful of datagrams."""

import pytest

from tests.sim.build_lprp import (
    ALICE,
    BOB,
    HERE,
    HOST,
    MALLORY,
    NOWHERE,
    THERE,
    WALL_MS,
    answer,
    heard,
    measured,
    packet,
    said,
    view,
)
from waystation.core.instant import Instant
from waystation.sim import lprp_observations as seen
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.lprp_books import Books
from waystation.sim.lprp_laws import Bookkeeping, Whitelists
from waystation.sim.lprp_packets import set_hash, work_bits
from waystation.sim.lprp_wire_laws import Answered, Earned, Mailed, Worked

NOW = Instant(1_000_000)
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
LEASE = [heard(ASK), said(DEMAND), heard(WORK), said(GRANT)]


def watch(*kinds):
    """Return a watch with these laws behind books of their own."""
    books = Books([HOST.public], LEASE_MS, 10_000)
    laws = {
        Earned: lambda: Earned(books),
        Answered: Answered,
        Mailed: lambda: Mailed(books),
        Worked: lambda: Worked(books, BITS, exact=True),
        Whitelists: lambda: Whitelists(books),
    }
    return Watch([Bookkeeping(books), *(laws[kind]() for kind in kinds)])


def see(law, observations, now=NOW):
    """Show all observations; return which law is broken by the last one, or None."""
    shown = watch(*{Answered: (Answered, Worked), Worked: (Worked, Whitelists)}.get(law, (Worked, law)))
    for observation in observations[:-1]:
        shown.observe(observation, NOW)
    try:
        shown.observe(observations[-1], now)
    except ViolationError as error:
        return error.invariant
    return None


class TestEarned:
    """Nothing leaves that was not paid for."""

    def test_nobody_gets_what_he_did_not_ask_for(self):
        """An address that never spoke gets nothing, nor one that was silent for too long."""
        late = Instant(NOW + 131_072_000 + 10_001)

        assert see(Earned, [said(DEMAND)]) == "earned"
        assert see(Earned, [*LEASE, said(answer(0x200, BEAT))], late) == "earned"
        assert see(Earned, [*LEASE, heard(BEAT), said(answer(0x200, BEAT))]) is None

    def test_noise_pays_for_nothing(self):
        """What fails the first look is not counted."""
        assert see(Earned, [heard(None, size=400), said(DEMAND)]) == "earned"

    def test_strangers_get_no_more_than_came_from_their_network(self):
        """A short request pays for its answer only together with its repeat, from any address of the network."""
        short = packet(BOB, 0x102, b"", recipient=ALICE.public)
        neighbour = (HERE[0].replace(".0.1", ".0.2"), 5)
        reply = said(answer(0x602, short))

        assert see(Earned, [heard(short), reply]) == "earned"
        assert see(Earned, [heard(short), heard(short, neighbour), reply]) is None
        assert see(Earned, [heard(short), heard(short, THERE), reply]) == "earned"

    def test_unproved_address_gets_four_times_its_bytes(self):
        """A tenant at a new address is sent four times what came from there, and not a byte more."""
        there = [*LEASE, heard(BEAT, THERE)]

        assert see(Earned, [*there, said(MAIL, THERE)]) is None
        assert see(Earned, [*there, said(MAIL, THERE), said(MAIL, THERE)]) == "earned"

    def test_proof_lifts_the_limit(self):
        """Who answered a challenge that went to an address may be sent anything there."""
        assert see(Earned, [*LEASE, *[said(MAIL)] * 20]) is None

    def test_challenge_that_went_to_two_addresses_proves_neither(self):
        """Whoever asked from both could answer in the name of the first."""
        both = [heard(ASK), said(DEMAND), heard(ASK, THERE), said(DEMAND, THERE), heard(WORK), said(GRANT)]

        assert see(Earned, [*both, *[said(MAIL)] * 2]) is None
        assert see(Earned, [*both, *[said(MAIL)] * 3]) == "earned"

    def test_proof_of_one_tenant_serves_no_other(self):
        """Mail for Bob goes to Alice's address only as far as was paid for."""
        to_bob = packet(ALICE, 0x102, bytes(364), recipient=BOB.public)
        granted = said(packet(HOST, 0x204, bytes(64), recipient=BOB.public), THERE)
        both = [*LEASE, heard(packet(BOB, 0x104, bytes(64)), THERE), granted]

        assert see(Earned, [*both, *[said(to_bob)] * 2]) is None
        assert see(Earned, [*both, *[said(to_bob)] * 3]) == "earned"

    def test_restart_forgets_what_was_paid(self):
        """A host that began anew owes nothing to anybody."""
        assert see(Earned, [*LEASE, seen.HostBegan(0, 2, WALL_MS, {}), said(answer(0x200, BEAT))]) == "earned"


class TestAnswered:
    """Every datagram of a host has its reason."""

    def test_each_question_has_one_answer(self):
        """The same packet twice is two questions; a third answer is one too many."""
        twice = [heard(ASK), heard(ASK), said(DEMAND), said(DEMAND)]

        assert see(Answered, twice) is None
        assert see(Answered, [*twice, said(DEMAND)]) == "answered"

    def test_answer_goes_where_the_question_came_from(self):
        """Another address has not asked, even with the same key."""
        assert see(Answered, [heard(ASK), said(DEMAND, THERE)]) == "answered"

    def test_work_is_answered_in_the_name_of_its_request(self):
        """A 204 names the 104, and the 101 pays for it."""
        assert see(Answered, LEASE) is None
        assert see(Answered, [heard(ASK), said(DEMAND), said(GRANT)]) == "answered"
        poor = solve(DEMAND, ALICE, BITS - 1)
        assert see(Answered, [*LEASE[:2], heard(poor), said(answer(0x401, poor))]) is None

    def test_heartbeats_are_counted_too(self):
        """One 200 for each 100."""
        beaten = [heard(BEAT), said(answer(0x200, BEAT))]

        assert see(Answered, beaten) is None
        assert see(Answered, [*beaten, said(answer(0x200, BEAT))]) == "answered"

    @pytest.mark.parametrize(
        "wrong",
        [
            said(DEMAND, is_signed=False),
            said(answer(0x202, ASK)),
            said(packet(HOST, 0x604, ASK.signature, recipient=BOB.public)),
            said(packet(HOST, 0x604, ASK.signature + b"x", recipient=ALICE.public)),
            said(packet(HOST, 0x604, bytes(64), recipient=ALICE.public)),
            said(packet(BOB, 0x102, b"", recipient=ALICE.public), is_signed=False),
        ],
    )
    def test_anything_else_is_wrong(self, wrong):
        """Unsigned, of another kind, to somebody else, too long, about nothing, or mail that nobody brought."""
        assert see(Answered, [heard(ASK), wrong]) == "answered"

    def test_mail_is_as_it_came(self):
        """What was heard may be sent on, byte for byte."""
        assert see(Answered, [heard(MAIL, THERE), said(MAIL, is_signed=False)]) is None

    def test_forged_questions_are_none(self):
        """A packet that its sender did not sign is not answered."""
        assert see(Answered, [heard(ASK, is_signed=False), said(DEMAND)]) == "answered"

    def test_restart_answers_nothing_from_before(self):
        """What was asked in another life has to be asked again."""
        assert see(Answered, [heard(ASK), seen.HostBegan(0, 2, WALL_MS, {}), said(DEMAND)]) == "answered"


class TestMailed:
    """Mail follows the newest packet."""

    def test_mail_goes_to_the_address_on_file(self):
        """A replayed heartbeat from elsewhere brings no mail there; a newer one does."""
        newer = packet(ALICE, 0x100, time_ms=WALL_MS + 5)

        assert see(Mailed, [*LEASE, said(MAIL)]) is None
        assert see(Mailed, [*LEASE, heard(BEAT, NOWHERE), said(MAIL, NOWHERE)]) == "mail-address"
        assert see(Mailed, [*LEASE, heard(newer, THERE), said(MAIL, THERE)]) is None

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
        assert see(Worked, [heard(ASK), said(DEMAND), said(GRANT)]) == "worked"
        assert see(Worked, [heard(ASK), said(DEMAND), heard(solve(DEMAND, ALICE, BITS - 1)), said(GRANT)]) == "worked"
        assert see(Worked, [heard(ASK), said(DEMAND), heard(others), said(GRANT)]) == "worked"

    def test_work_for_one_host_is_none_at_another(self):
        """A demand that somebody else signed is no demand of this host."""
        forged = packet(MALLORY, 0x604, ASK.signature, recipient=ALICE.public)
        work = solve(forged, ALICE)

        assert see(Worked, [heard(ASK), said(forged, is_signed=True), heard(work), said(GRANT)]) == "worked"

    def test_strangers_pay_and_friends_do_not(self):
        """A 202 without work is for friends, and a 602 is not."""
        add = packet(ALICE, 0x108, set_hash(frozenset({BOB.public})) + BOB.public, WALL_MS + 2)
        befriended = [*LEASE, heard(add), said(answer(0x208, add))]
        after = Instant(NOW + 10_001)
        shown = watch(Worked, Whitelists)
        for observation in befriended:
            shown.observe(observation, NOW)
        shown.observe(heard(MAIL, THERE), after)

        with pytest.raises(ViolationError, match="demands work of a friend"):
            shown.observe(said(answer(0x602, MAIL), THERE), after)
        assert see(Worked, [*LEASE, heard(MAIL, THERE), said(answer(0x202, MAIL), THERE)]) == "worked"
        assert see(Worked, [*befriended, heard(MAIL, THERE), said(answer(0x202, MAIL), THERE)]) is None

    def test_mail_to_oneself_is_free(self):
        """A tenant is its own friend."""
        own = packet(ALICE, 0x102, bytes(64), recipient=ALICE.public)

        assert see(Worked, [*LEASE, heard(own), said(answer(0x202, own))]) is None

    def test_hasty_update_costs_work(self):
        """The first update is free, the next one within 2**19 ms is not, and a comparison always is."""
        bob, none = frozenset({BOB.public}), frozenset()
        first = packet(ALICE, 0x108, set_hash(bob) + BOB.public, WALL_MS + 2)
        second = packet(ALICE, 0x108, set_hash(none) + BOB.public, WALL_MS + 3)
        ask = packet(ALICE, 0x108, set_hash(bob) + bytes(32), WALL_MS + 4)
        begun = [*LEASE, heard(first), said(answer(0x208, first))]
        late_ms = WALL_MS + 524_289

        assert see(Worked, begun) is None
        assert see(Worked, [*begun, heard(second), said(answer(0x208, second))]) == "worked"
        assert see(Worked, [*begun, heard(second), said(answer(0x208, second), wall_ms=late_ms)]) is None
        assert see(Worked, [*begun, heard(ask), said(answer(0x208, ask))]) is None

    def test_good_work_is_not_refused(self):
        """A 401 is for too few bits, or for a challenge that has expired."""
        refused = said(answer(0x401, WORK))
        poor = solve(DEMAND, ALICE, BITS - 1)
        late = heard(WORK, wall_ms=WALL_MS + 524_289)

        assert see(Worked, [*LEASE[:3], refused]) == "worked"
        assert see(Worked, [*LEASE[:2], heard(poor), said(answer(0x401, poor))]) is None
        assert see(Worked, [*LEASE[:2], late, refused]) is None
