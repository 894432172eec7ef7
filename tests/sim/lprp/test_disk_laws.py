"""Laws of LPRP about hosts whose disk has lost rows."""

import pytest

from tests.sim.lprp.build import BOB, GRANT, KEY, MAIL, MALLORY, answer, measured, received, sent, view
from tests.sim.lprp.test_invariants import LIST
from tests.sim.lprp.test_invariants import see as see_state
from tests.sim.lprp.test_mail_invariants import DONE, GOT, TAKEN
from tests.sim.lprp.test_mail_invariants import see as see_mail
from waystation.sim.disk import Row
from waystation.sim.lprp.invariants import LeaseKept, Whitelists
from waystation.sim.lprp.mail_invariants import DeliveredOnce, PromiseKept
from waystation.sim.lprp.observations import Confirmed, WhitelistReported
from waystation.sim.observations import DiskLost

TENANT = DiskLost(0, frozenset({Row("lprp_tenants", KEY)}))
LISTED = DiskLost(0, frozenset({Row("lprp_whitelists", KEY)}))
STRANGER = DiskLost(0, frozenset({Row("lprp_tenants", MALLORY.public)}))
BUNDLE = DiskLost(0, frozenset({Row("lprp_packets", bytes(8))}), (b"head" + MAIL.data,))
OTHER_BUNDLE = BUNDLE._replace(values=(b"head",))


@pytest.mark.parametrize(("loss", "verdict"), [(TENANT, None), (LISTED, None), (STRANGER, "lease-kept")])
def test_lease_of_a_lost_tenant_may_end(loss, verdict):
    """Nobody can say until when a lease lasts whose row is lost; those of others last on."""
    assert see_state(LeaseKept, [GRANT, loss, measured()]) == verdict


@pytest.mark.parametrize(("loss", "verdict"), [(TENANT, None), (LISTED, None), (STRANGER, "whitelist")])
def test_whitelist_of_a_lost_tenant_may_be_any(loss, verdict):
    """Views, answers and reports about it are not judged any more; those about others are."""
    begun = [received(LIST), sent(answer(0x208, LIST)), loss]
    later = [received(LIST), loss, sent(answer(0x408, LIST))]
    told = WhitelistReported(KEY, 0, (MALLORY.public, BOB.public))

    assert see_state(Whitelists, [*begun, measured({KEY: view(whitelist=7)})]) == verdict
    assert see_state(Whitelists, [*begun, told]) == verdict
    assert see_state(Whitelists, [GRANT, *later]) == verdict
    assert see_state(Whitelists, [loss, received(LIST), sent(answer(0x208, LIST))]) is None


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [(BUNDLE, None), (TENANT, None), (OTHER_BUNDLE, "promise-kept"), (BUNDLE._replace(node=1), "promise-kept")],
)
def test_mail_in_a_lost_bundle_is_not_owed(loss, verdict):
    """A promise ends with the row that it stood in, or with the tenant's; others stand."""
    assert see_mail(PromiseKept, [*TAKEN, loss, measured({KEY: view(queue=0)})]) == verdict


@pytest.mark.parametrize(("loss", "verdict"), [(BUNDLE, None), (OTHER_BUNDLE, "delivered-once")])
def test_mail_of_a_lost_bitmap_may_come_again(loss, verdict):
    """The host cannot know that it was confirmed."""
    again = [GOT, Confirmed(KEY, MAIL.signature), received(DONE), loss, GOT]

    assert see_mail(DeliveredOnce, again) == verdict
