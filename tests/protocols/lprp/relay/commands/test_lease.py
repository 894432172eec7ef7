"""Leases: who gets one for work, who is told no before it, and how they end."""

import pytest

from tests.protocols.lprp.build import HOST, NOW_MS, TENANT, VISITOR, sealed
from tests.protocols.lprp.build_parts import LEASE_MS, Parts
from tests.protocols.lprp.build_relay import AT_HOME, START
from waystation.core.facts import LeaseChanged
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.messages import KEEP_AFTER_LEASE_MS, Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.replies import Demand, Reply

ASKED = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS - 40)
END = NOW_MS + LEASE_MS


def refused(refusal):
    """Return a 404 with its reason."""
    return Reply(Command.LEASE_REFUSED, ASKED, refusal)


def test_newcomer_has_to_work():
    """A 104 is answered with a demand, which is about the visitor's own place and as hard as the table is full."""
    parts = Parts(tenants_max=4)
    parts.tenant()

    assert parts.leasing.asked(ASKED, NOW_MS) == Demand(Kind.LEASE, ASKED, VISITOR.public, 0.25)


def test_work_brings_a_lease():
    """The lease begins when the work is done, and the 104's time is the last of a change (LPRP-D14)."""
    parts = Parts()
    reply = parts.leasing.worked(ASKED, NOW_MS)
    tenant = parts.tenants.find(VISITOR.public, NOW_MS)

    assert reply == Reply(Command.LEASE_GRANTED, ASKED)
    assert (tenant.lease_at_ms, tenant.state_ts, tenant.last_ts) == (NOW_MS, ASKED.time_ms, 0)
    assert parts.facts == [LeaseChanged("lprp", VISITOR.public, "granted", 0)]
    assert parts.ledger.is_dirty


def test_old_request_does_not_set_the_time_back():
    """Work for a 104 that was overtaken renews the lease and leaves the newer time."""
    parts = Parts()
    tenant = parts.tenant(VISITOR)
    tenant.state_ts = NOW_MS + 5
    parts.leasing.worked(ASKED, NOW_MS + 10)

    assert (tenant.state_ts, tenant.lease_at_ms) == (NOW_MS + 5, NOW_MS + 10)


@pytest.mark.parametrize("ask", ["asked", "worked"])
@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"tenants_max": 0}, Refusal.TENANTS_FULL),
        ({"is_open": False}, Refusal.LEASES_CLOSED),
        ({"banned": [VISITOR.public]}, Refusal.LEASE_BANNED),
    ],
)
def test_told_no(ask, options, refusal):
    """No room, closed or banned: said before the work, and again after it if that changed meanwhile."""
    parts = Parts(**options)

    assert getattr(parts.leasing, ask)(ASKED, NOW_MS) == refused(refusal)
    assert len(parts.tenants) == 0 and not parts.ledger.is_dirty


@pytest.mark.parametrize("options", [{"tenants_max": 1}, {"is_open": False}])
def test_renewal_needs_no_room(options):
    """Who holds a lease may renew it in a full table and with leases closed."""
    parts = Parts(**options)
    parts.tenant(VISITOR)

    assert isinstance(parts.leasing.asked(ASKED, END), Demand)
    assert parts.leasing.worked(ASKED, END).command is Command.LEASE_GRANTED
    assert parts.facts == [LeaseChanged("lprp", VISITOR.public, "renewed", 0)]


def test_banned_tenants_do_not_renew():
    """A ban is stronger than a lease."""
    parts = Parts(banned=[VISITOR.public])
    parts.tenant(VISITOR)

    assert parts.leasing.asked(ASKED, NOW_MS) == refused(Refusal.LEASE_BANNED)


def test_closed_leases_do_not_come_back():
    """With leases closed an expired one is a newcomer's."""
    parts = Parts(is_open=False)
    parts.tenant(VISITOR)
    parts.leasing.end(END + 1, START)

    assert parts.leasing.worked(ASKED, END + 1) == refused(Refusal.LEASES_CLOSED)


def test_end_and_forgetting():
    """A lease ends once, which stops its mail; it is forgotten once, which is returned and written."""
    parts = Parts()
    tenant = parts.tenant()
    parts.letter()
    parts.commit()
    source = parts.hear()
    source.prove(TENANT.public)
    tenant.update_contact(sealed(TENANT, HOST, Command.HEARTBEAT), source, source.address, START)
    parts.delivery.pump(tenant, START)
    rung = parts.delivery.deadline()
    first = parts.leasing.end(END, START), parts.leasing.end(END + 1, START)
    stopped = parts.delivery.deadline()
    kept = parts.ledger.is_dirty
    forgotten = parts.leasing.end(END + KEEP_AFTER_LEASE_MS + 1, Instant(after_ms(START, KEEP_AFTER_LEASE_MS)))

    assert rung is not None and stopped is None and parts.sent[0][0] == AT_HOME
    assert first == ([], []) and not kept and forgotten == [tenant]
    assert [fact.change for fact in parts.facts] == ["expired", "forgotten"]
    assert [fact.waiting_count for fact in parts.facts] == [1, 1] and parts.ledger.is_dirty


def test_revival():
    """Work within the time in which a lease is kept brings it back, mail and list."""
    parts = Parts()
    tenant = parts.tenant(VISITOR)
    tenant.whitelist = frozenset({TENANT.public})
    parts.letter(recipient=VISITOR)
    parts.leasing.end(END + 1, START)
    parts.leasing.worked(ASKED, END + 5)

    again = parts.tenants.find(VISITOR.public, END + 5)
    assert again is tenant and len(again.mailbox) == len(again.whitelist) == 1
    assert parts.facts[-1] == LeaseChanged("lprp", VISITOR.public, "revived", 1)
