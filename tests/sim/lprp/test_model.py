"""The model say what a host must know and what it may know, from its wires alone."""

from tests.sim.lprp.build import ALICE, BOB, HERE, HOST, NOWHERE, THERE, WALL_MS, packet
from waystation.core.instant import Instant
from waystation.sim.lprp.model import ZERO, Contact, Leases, Lists, Model, toggled
from waystation.sim.lprp.packets import set_hash

NOW = Instant(1_000_000)
GRACE_US = 10_000
LATER = Instant(NOW + GRACE_US + 1)
STALE_US = 131_072_000
KEY = ALICE.public
ONE, TWO = (frozenset({bytes([number]) * 32}) for number in (1, 2))


def update(before, after, time_ms=WALL_MS):
    """Return the 108 that leads from one list to another."""
    return packet(ALICE, 0x108, set_hash(after) + b"".join(sorted(before ^ after)), time_ms)


def compare(keys, time_ms=WALL_MS):
    """Return the 108 that only asks."""
    return packet(ALICE, 0x108, set_hash(keys) + ZERO, time_ms)


class TestLeases:
    """Who has a lease, and for how long."""

    def test_lease_lasts_from_its_work_on(self):
        """It begins when the work was received, not when the answer left, and is never longer than leases are."""
        leases = Leases(60_000)
        leases.worked(KEY, b"work", WALL_MS)
        leases.granted(KEY, b"asked", WALL_MS + 400)

        assert leases.bounds(KEY, WALL_MS + 10_000) == (50_000, 50_000)
        assert leases.bounds(KEY, WALL_MS + 70_000) == (0, 0)

    def test_renewal_under_way_may_have_happened(self):
        """Between work and answer both ends are possible; a repeat of either changes nothing."""
        leases = Leases(60_000)
        leases.worked(KEY, b"work", WALL_MS)
        leases.granted(KEY, b"asked", WALL_MS)
        leases.worked(KEY, b"more work", WALL_MS + 30_000)

        assert leases.bounds(KEY, WALL_MS + 40_000) == (20_000, 50_000)

        leases.worked(KEY, b"work", WALL_MS + 39_000)
        assert not leases.granted(KEY, b"asked", WALL_MS + 39_000)
        assert leases.bounds(KEY, WALL_MS + 40_000) == (20_000, 50_000)

    def test_sure_is_less_than_maybe(self):
        """Whoever worked may have a lease; whoever was granted one has it for sure until shortly before its end."""
        leases = Leases(60_000)
        leases.worked(KEY, b"work", WALL_MS)

        assert leases.may_be(KEY)
        assert not leases.may_be(BOB.public)
        assert not leases.is_sure(KEY, WALL_MS, 0)

        leases.granted(KEY, b"asked", WALL_MS)
        assert leases.is_sure(KEY, WALL_MS + 57_000, 3_000)
        assert not leases.is_sure(KEY, WALL_MS + 57_001, 3_000)

    def test_expired_lease_does_not_come_back_with_the_clock(self):
        """A clock that is set back after the end of a lease need not revive it."""
        leases = Leases(60_000)
        leases.granted(KEY, b"asked", WALL_MS)
        leases.passed(WALL_MS + 60_001)

        assert not leases.is_sure(KEY, WALL_MS + 1, 0)
        assert leases.bounds(KEY, WALL_MS + 1)[0] == 0

    def test_step_while_work_is_judged_moves_either_end(self):
        """What is granted while the clock is set may begin before or after the step."""
        leases = Leases(60_000)
        leases.worked(KEY, b"work", WALL_MS)
        leases.stepped(-5_000)
        leases.granted(KEY, b"asked", WALL_MS - 5_000)

        assert leases.bounds(KEY, WALL_MS) == (55_000, 65_000)


class TestContact:
    """Where a tenant is."""

    def received(self, *packets):
        """Return a contact that received these, each as (packet, address)."""
        contact = Contact()
        for what, address in packets:
            contact.received(what, address, NOW, is_tenant=True)
        return contact

    def test_newer_packet_moves_and_older_one_does_not(self):
        """Only a later time has another address count; the old one is excused for a moment."""
        newer, older = packet(ALICE, 0x100, time_ms=WALL_MS + 1), packet(ALICE, 0x802, bytes(64))
        contact = self.received((packet(ALICE, 0x100), HERE), (newer, THERE), (older, NOWHERE))

        assert contact.allows(THERE, LATER, GRACE_US, STALE_US)
        assert contact.allows(HERE, NOW, GRACE_US, STALE_US)
        assert not contact.allows(HERE, LATER, GRACE_US, STALE_US)
        assert not contact.allows(NOWHERE, NOW, GRACE_US, STALE_US)
        assert contact.places(LATER, GRACE_US) == {THERE}

    def test_relayed_packet_moves_nobody(self):
        """A 102 in the tenant's name keeps the address fresh that is on file, and never brings another."""
        mail = packet(ALICE, 0x102, bytes(64), WALL_MS + 1, BOB.public)
        contact = self.received((packet(ALICE, 0x100), HERE), (mail, NOWHERE))
        late = Instant(NOW + STALE_US)
        contact.received(mail, HERE, late, is_tenant=True)

        assert not contact.allows(NOWHERE, NOW, GRACE_US, STALE_US)
        assert contact.allows(HERE, Instant(late + STALE_US), GRACE_US, STALE_US)

    def test_silent_address_gets_nothing(self):
        """An address that was not received from for long is nobody's."""
        contact = self.received((packet(ALICE, 0x100), HERE))

        assert not contact.allows(HERE, Instant(NOW + STALE_US + GRACE_US + 1), GRACE_US, STALE_US)

    def test_restart_keeps_what_was_answered_and_no_address(self):
        """After a restart a replay of an answered heartbeat moves nothing; an unanswered one might."""
        first, second = packet(ALICE, 0x100), packet(ALICE, 0x100, time_ms=WALL_MS + 1)
        contact = self.received((first, HERE), (second, HERE))
        contact.answered(HERE)
        contact.restarted()

        contact.received(first, NOWHERE, NOW, is_tenant=True)
        assert contact.places(NOW, GRACE_US) == set()

        contact.received(second, NOWHERE, NOW, is_tenant=True)
        assert contact.places(NOW, GRACE_US) == {NOWHERE}

    def test_newcomer_is_where_its_work_came_from(self):
        """Before the 204 nothing is sure; with it the work's address is."""
        contact = Contact()
        contact.received(packet(ALICE, 0x104, bytes(64)), NOWHERE, NOW, is_tenant=False)
        contact.received(packet(ALICE, 0x101, bytes(64), WALL_MS + 1), HERE, NOW, is_tenant=False)
        assert contact.places(LATER, GRACE_US) == {HERE, NOWHERE}

        contact.granted(HERE, NOW)
        assert contact.places(LATER, GRACE_US) == {HERE}


class TestLists:
    """What a whitelist may be."""

    def test_answered_update_is_the_list(self):
        """With its 208 an update has happened, and what it came from has not."""
        lists, change = Lists(), update(frozenset(), ONE)
        lists.received(change)
        assert lists.states() == {frozenset(), ONE}

        assert lists.done(change, NOW, WALL_MS)
        assert lists.states() == {ONE}
        assert lists.recent(NOW, GRACE_US) == {frozenset(), ONE}
        assert lists.recent(LATER, GRACE_US) == {ONE}

    def test_untrue_answers_are_told(self):
        """A 208 for a list that cannot be, and a 408 for one that must be, are lies."""
        lists, wrong = Lists(), update(ONE, TWO)
        for what in (wrong, compare(ONE), compare(frozenset())):
            lists.received(what)

        assert lists.differs(wrong)
        assert not lists.differs(compare(frozenset()))
        assert not lists.done(compare(ONE), NOW, WALL_MS)

    def test_right_update_is_not_refused(self):
        """A 408 to a change that leads from the only possible list to what it says is a lie."""
        lists, right = Lists(), update(frozenset(), ONE)
        lists.received(right)

        assert not lists.differs(right)

    def test_older_update_is_never_done(self):
        """After a newer change an older one is refused, whether it would fit or not."""
        lists, newer, older = Lists(), update(frozenset(), ONE, WALL_MS + 1), update(ONE, frozenset())
        lists.received(older)
        lists.received(newer)
        assert lists.done(newer, NOW, WALL_MS)

        assert lists.differs(older)
        assert not lists.done(older, NOW, WALL_MS)

    def test_clearing_leads_to_nothing_from_anywhere(self):
        """An 808 empties whatever list there was."""
        lists, change, clear = Lists(), update(frozenset(), ONE), packet(ALICE, 0x808, bytes(64), WALL_MS + 1)
        for what in (change, clear):
            lists.received(what)
            assert lists.done(what, NOW, WALL_MS)

        assert lists.states() == {frozenset()}

    def test_comparison_neither_moves_nor_obeys_the_time(self):
        """Asking is allowed at any time, changes nothing, and makes nothing newer."""
        lists, change = Lists(), update(frozenset(), ONE)
        lists.received(compare(frozenset(), WALL_MS + 5))
        assert lists.done(compare(frozenset(), WALL_MS + 5), NOW, WALL_MS)
        lists.received(change)
        assert lists.done(change, NOW, WALL_MS)

        lists.received(compare(ONE, WALL_MS - 5))
        assert lists.done(compare(ONE, WALL_MS - 5), NOW, WALL_MS)
        assert lists.states() == {ONE}

    def test_zero_key_and_overfull_list_are_refused(self):
        """A list never holds the zero key, nor more than 256 keys."""
        full = frozenset(number.to_bytes(32, "big") for number in range(1, 257))
        lists, change = Lists(), update(frozenset(), ONE | {ZERO})
        lists.received(change)

        assert lists.states() == {frozenset()}
        assert lists.differs(change)
        assert len(toggled(full, set_hash(ONE) + bytes([255]) * 32)) == 257


def test_books_are_kept_by_host_and_key():
    """What one host knows of a key says nothing about another host or another key."""
    model = Model([HOST.public, BOB.public], 60_000, GRACE_US)
    model.contact(0, KEY).received(packet(ALICE, 0x100), HERE, NOW, is_tenant=True)

    assert model.contact(0, KEY).places(NOW, GRACE_US) == {HERE}
    assert model.contact(1, KEY).places(NOW, GRACE_US) == set()
    assert model.contact(0, BOB.public).places(NOW, GRACE_US) == set()
    assert len(model.contacts(0)) == 2
    assert model.lists(0, KEY) is model.lists(0, KEY) is not model.lists(1, KEY)
