"""What becomes of a 102 and its 802, judged one at a time."""

import pytest

from tests.protocols.lprp.build import HOST, NOW_MS, SENDER, TENANT, VISITOR, sealed
from tests.protocols.lprp.build_parts import LEASE_MS, Parts
from waystation.core.facts import DeliveryAccepted, DeliveryFinished, Outcome
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.replies import Demand, Reply

MAIL = sealed(SENDER, TENANT, Command.RELAY, bytes(100))
ACCEPTED = Reply(Command.RELAY_ACCEPTED, MAIL)


def with_tenant(*friends, **options):
    """Return parts and a tenant that knows these senders."""
    parts = Parts(**options)
    tenant = parts.tenant()
    tenant.whitelist = frozenset(friend.public for friend in friends)
    parts.commit()
    return parts, tenant


def refused(refusal):
    """Return a 402 with its reason."""
    return Reply(Command.RELAY_REFUSED, MAIL, refusal)


def done(packet, key=TENANT):
    """Return the 802 of a packet."""
    return sealed(key, HOST, Command.DELIVERED, packet.signature)


def test_friend_is_taken_at_once():
    """Mail of a known sender is queued, counted, told and written."""
    parts, tenant = with_tenant(SENDER)

    assert parts.relaying.asked(MAIL, NOW_MS + 7) == ACCEPTED
    (letter,) = tenant.mailbox
    assert (letter.data, letter.from_unlisted, letter.accepted_ms) == (MAIL.data, False, NOW_MS + 7)
    assert (parts.relaying.mail_count, parts.relaying.mail_bytes) == (1, 244)
    assert parts.facts == [DeliveryAccepted("lprp", 1, TENANT.public, 100)] and parts.ledger.is_dirty


def test_stranger_has_to_work():
    """Mail of an unknown sender is not queued: the demand is about the recipient's room for strangers."""
    parts, tenant = with_tenant()
    for number in range(8):
        parts.letter(number, from_unlisted=True)

    assert parts.relaying.asked(MAIL, NOW_MS) == Demand(Kind.RELAY, MAIL, TENANT.public, 8 / LIMITS.unlisted_packets)
    assert MAIL.signature not in tenant.mailbox and parts.facts == []


def test_stranger_who_worked():
    """After the work the letter is queued as a stranger's."""
    parts, tenant = with_tenant()

    assert parts.relaying.worked(MAIL, NOW_MS) == ACCEPTED
    assert [letter.from_unlisted for letter in tenant.mailbox] == [True]


def test_stranger_who_became_a_friend():
    """Whoever is known by the time the work is done holds no stranger's place."""
    parts, tenant = with_tenant()
    tenant.whitelist = frozenset({SENDER.public})
    parts.relaying.worked(MAIL, NOW_MS)

    assert tenant.mailbox.unlisted_count == 0


@pytest.mark.parametrize("how", ["asked", "worked"])
def test_nobody_there(how):
    """No lease, one that is over, and one of a banned identity are refused and told as offline."""
    parts = Parts()
    without = getattr(parts.relaying, how)(MAIL, NOW_MS)
    parts.tenant()
    over = getattr(parts.relaying, how)(MAIL, NOW_MS + LEASE_MS + 1)
    parts.banned.add(TENANT.public)
    banned = getattr(parts.relaying, how)(MAIL, NOW_MS)

    assert without == over == banned == refused(Refusal.NO_LEASE)
    assert [fact.outcome for fact in parts.facts] == [Outcome.OFFLINE] * 3
    assert [fact.attempt for fact in parts.facts] == [1, 2, 3]


@pytest.mark.parametrize("how", ["asked", "worked"])
@pytest.mark.parametrize(
    ("letters", "strangers", "friend", "refusal"),
    [
        (LIMITS.queue_packets, False, True, Refusal.QUEUE_FULL),
        (LIMITS.unlisted_packets_per_sender, True, False, Refusal.STRANGERS_FULL),
    ],
)
def test_no_room(how, letters, strangers, friend, refusal):
    """A full queue and a stranger's full share are refused before any work, and after it."""
    parts, _ = with_tenant(*[SENDER] * friend)
    for number in range(1, letters + 1):
        parts.letter(number, from_unlisted=strangers)

    assert getattr(parts.relaying, how)(MAIL, NOW_MS) == refused(refusal)
    assert isinstance(parts.facts[-1], DeliveryFinished) and parts.facts[-1].outcome is Outcome.REFUSED


@pytest.mark.parametrize(("room", "fits"), [(244, True), (243, False)])
def test_all_queues_together(room, fits):
    """512 MiB of mail wait at most."""
    parts, _ = with_tenant(SENDER)
    parts.relaying.mail_bytes = LIMITS.mail_bytes - room

    assert parts.relaying.asked(MAIL, NOW_MS) == (ACCEPTED if fits else refused(Refusal.STORE_FULL))


@pytest.mark.parametrize("how", ["asked", "worked"])
def test_same_mail_again(how):
    """What waits, and what was lately done, is accepted again and queued once, whatever the room is by now."""
    parts, tenant = with_tenant(SENDER)
    parts.relaying.asked(MAIL, NOW_MS)
    waits = getattr(parts.relaying, how)(MAIL, NOW_MS)
    parts.relaying.delivered(tenant, done(MAIL), NOW_MS)
    parts.relaying.mail_bytes = LIMITS.mail_bytes
    lately = getattr(parts.relaying, how)(MAIL, MAIL.time_ms + CLOCK_WINDOW_MS)

    assert waits == lately == ACCEPTED and len(tenant.mailbox) == 0
    assert len([fact for fact in parts.facts if isinstance(fact, DeliveryAccepted)]) == 1


def test_writing_to_oneself():
    """A tenant is its own friend, with an empty list too."""
    parts, tenant = with_tenant()
    own = sealed(TENANT, TENANT, Command.RELAY, bytes(3))

    assert parts.relaying.asked(own, NOW_MS).command is Command.RELAY_ACCEPTED
    assert tenant.mailbox.unlisted_count == 0


def test_confirmation():
    """An 802 takes the letter out of counts, queue and disk, and tells how long it took."""
    parts, tenant = with_tenant(SENDER)
    parts.relaying.asked(MAIL, NOW_MS)
    parts.commit()
    result = parts.relaying.delivered(tenant, done(MAIL), NOW_MS + 30)
    parts.commit()

    assert result is None and parts.rows("packets") == []
    assert (len(tenant.mailbox), parts.relaying.mail_count, parts.relaying.mail_bytes) == (0, 0, 0)
    assert parts.facts[-1] == DeliveryFinished("lprp", 1, TENANT.public, Outcome.OK, 30_000, 0, 1)


def test_confirmation_with_a_clock_set_back():
    """A latency is never negative."""
    parts, tenant = with_tenant(SENDER)
    parts.relaying.asked(MAIL, NOW_MS)
    parts.relaying.delivered(tenant, done(MAIL), NOW_MS - 5_000)

    assert parts.facts[-1].latency_us == 0


def test_confirmation_of_nothing():
    """An 802 for what is not in one's own queue does nothing."""
    parts, tenant = with_tenant(SENDER)
    other = parts.tenant(VISITOR)
    parts.relaying.asked(MAIL, NOW_MS)
    parts.commit()

    assert parts.relaying.delivered(other, done(MAIL, VISITOR), NOW_MS) is Refusal.UNKNOWN_RELAY
    assert len(tenant.mailbox) == parts.relaying.mail_count == 1 and not parts.ledger.is_dirty


def test_mail_of_a_forgotten_tenant():
    """When a tenant is forgotten its mail is given up and told."""
    parts, tenant = with_tenant(SENDER)
    parts.relaying.asked(MAIL, NOW_MS)
    parts.relaying.drop(tenant)

    assert (parts.relaying.mail_count, parts.relaying.mail_bytes) == (0, 0)
    assert parts.facts[-1] == DeliveryFinished("lprp", 1, TENANT.public, Outcome.GONE, None, 0, 1)


def test_loaded_mail_is_counted():
    """Mail of an earlier life counts, and each letter has an attempt of its own that no newer one gets."""
    parts, _ = with_tenant(SENDER)
    parts.relaying.asked(MAIL, NOW_MS)
    parts.letter(5)
    parts.commit()
    again = parts.reborn()
    tenant = again.tenants.find(TENANT.public, NOW_MS)
    again.relaying.asked(sealed(TENANT, TENANT, Command.RELAY), NOW_MS)

    assert (again.relaying.mail_count, again.relaying.mail_bytes) == (3, 244 + 208 + 144)
    assert [letter.attempt for letter in tenant.mailbox] == [1, 2, 3]
