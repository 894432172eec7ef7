"""Before the signature check: who is worth one, who is not, and how many there are to give."""

import pytest

from tests.protocols.lprp.build import (
    HOST,
    NEUTRAL_KEY,
    NOW_MS,
    OTHER_HOST,
    SENDER,
    TENANT,
    UNIVERSAL_SIGNATURE,
    VISITOR,
    sealed,
    signed_by_hand,
)
from tests.protocols.lprp.build_parts import LEASE_MS, Parts
from tests.protocols.lprp.build_relay import AFAR, AT_HOME, ELSEWHERE, START, address_of
from waystation.core.instant import after_ms
from waystation.crypto.signing import verify_any
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.intake import Arrival
from waystation.protocols.lprp.relay.replies import Demand
from waystation.protocols.lprp.whitelist import ZERO_KEY
from waystation.protocols.lprp.wire import REQUESTS, packet_sizes


def least(command):
    """Return the shortest payload of a command."""
    return bytes(min(packet_sizes(command)) - 144)


def consider(parts, packet, address=AT_HOME, wall_ms=NOW_MS):
    """Return what is made of a packet from there."""
    return parts.intake.consider((packet.data, address), parts.hear(address, len(packet.data)), wall_ms)


def with_tenant(last_ts=NOW_MS, state_ts=NOW_MS, at=AT_HOME):
    """Return parts with a tenant that spoke at these times."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.last_ts, tenant.state_ts = last_ts, state_ts
    tenant.source = parts.hear(at)
    return parts, tenant


# Whom it may be from and for


@pytest.mark.parametrize("command", sorted(REQUESTS - {Command.WORK}))
def test_what_a_tenant_sends_is_worth_a_check(command):
    """Every request of a tenant to this host goes on with the tenant as the one who must have signed it."""
    parts, _ = with_tenant(0, 0)
    packet = sealed(TENANT, HOST, command, least(command))
    arrival = consider(parts, packet)

    assert (arrival.packet, arrival.actor) == (packet, TENANT.public)
    assert verify_any(*arrival.check()) == 0


@pytest.mark.parametrize("command", sorted(REQUESTS - {Command.RELAY}))
def test_other_hosts(command):
    """A packet for another host goes nowhere, a relayed one excepted: its recipient is no host (LPRP-D5)."""
    parts, _ = with_tenant(0, 0)

    assert consider(parts, sealed(TENANT, OTHER_HOST, command, least(command))) is Refusal.WRONG_HOST


def test_relays_are_for_anybody():
    """A 102 is worth a check whomever it is for: its sender is owed a 402."""
    assert isinstance(consider(Parts(), sealed(SENDER, VISITOR, Command.RELAY)), Arrival)


@pytest.mark.parametrize("command", sorted(Command(each) for each in (0x100, 0x802, 0x108, 0x808)))
def test_visitors(command):
    """What only tenants may send is dropped unchecked when it comes from anyone else, an expired lease included."""
    parts = Parts()
    parts.tenant(SENDER)
    packet = sealed(VISITOR, HOST, command, least(command))
    expired = sealed(SENDER, HOST, command, least(command))

    assert consider(parts, packet) is Refusal.NOT_A_TENANT
    assert consider(parts, expired, wall_ms=NOW_MS + LEASE_MS + 1) is Refusal.NOT_A_TENANT
    assert isinstance(consider(parts, expired, wall_ms=NOW_MS + LEASE_MS), Arrival)


@pytest.mark.parametrize("command", sorted(REQUESTS))
def test_small_order_keys(command):
    """Keys under which anything verifies are dropped whatever they say (LPRP-D15)."""
    parts = Parts()
    body = signed_by_hand(TENANT, NEUTRAL_KEY, HOST.public, command, least(command), NOW_MS)[64:]

    assert parts.intake.consider((UNIVERSAL_SIGNATURE + body, AT_HOME), parts.hear(), NOW_MS) is Refusal.SMALL_ORDER_KEY


@pytest.mark.parametrize("command", sorted(REQUESTS - {Command.WORK}))
def test_banned_identities(command):
    """A banned identity is not heard, except for a 104: it is owed its 404 (LPRP-D8)."""
    parts, _ = with_tenant(0, 0)
    parts.banned.add(TENANT.public)
    found = consider(parts, sealed(TENANT, HOST, command, least(command)))

    assert isinstance(found, Arrival) if command is Command.ASK_LEASE else found is Refusal.IDENTITY_BANNED


# 802 in both orders: LPRP-D16


def test_literal_order_names_the_tenant():
    """With the host's key in front the key behind it must have signed."""
    parts, _ = with_tenant(0, 0)
    data = signed_by_hand(TENANT, HOST.public, TENANT.public, Command.DELIVERED, bytes(64), NOW_MS)
    arrival = parts.intake.consider((data, AT_HOME), parts.hear(), NOW_MS)

    assert arrival.actor == TENANT.public and verify_any(*arrival.check()) == 0


@pytest.mark.parametrize("command", sorted(REQUESTS - {Command.RELAY, Command.DELIVERED}))
def test_literal_order_is_for_802_alone(command):
    """No other command may have the host in front."""
    parts, _ = with_tenant(0, 0)
    data = signed_by_hand(TENANT, HOST.public, TENANT.public, command, least(command), NOW_MS)

    assert parts.intake.consider((data, AT_HOME), parts.hear(), NOW_MS) is Refusal.WRONG_HOST


def test_literal_order_of_another_host():
    """Neither may an 802 have another host in front."""
    parts, _ = with_tenant(0, 0)
    data = signed_by_hand(TENANT, OTHER_HOST.public, TENANT.public, Command.DELIVERED, bytes(64), NOW_MS)

    assert parts.intake.consider((data, AT_HOME), parts.hear(), NOW_MS) is Refusal.WRONG_HOST


# What came before


@pytest.mark.parametrize(
    ("time_ms", "address", "refusal"),
    [
        (NOW_MS + 1, ELSEWHERE, None),
        (NOW_MS, AT_HOME, Refusal.NOT_NEWER),
        (NOW_MS, ELSEWHERE, Refusal.REBIND_CONFLICT),
        (NOW_MS - 1, ELSEWHERE, Refusal.NOT_NEWER),
    ],
)
def test_heartbeats_have_to_be_newer(time_ms, address, refusal):
    """A heartbeat that is not newer than the last contact does nothing, so it is not checked."""
    parts, _ = with_tenant()
    found = consider(parts, sealed(TENANT, HOST, Command.HEARTBEAT, b"", time_ms), address)

    assert (found if isinstance(found, Refusal) else None) is refusal


def test_heartbeat_of_nobodys_address():
    """After a restart a heartbeat of the last time is no conflict: there is no address it could be in conflict with."""
    parts, tenant = with_tenant()
    tenant.lose_address()

    assert consider(parts, sealed(TENANT, HOST, Command.HEARTBEAT)) is Refusal.NOT_NEWER


@pytest.mark.parametrize("command", [Command.ASK_LEASE, Command.UPDATE_WHITELIST, Command.CLEAR_WHITELIST])
@pytest.mark.parametrize(("time_ms", "refusal"), [(NOW_MS, Refusal.NOT_NEWER), (NOW_MS + 1, None)])
def test_changes_have_to_be_newer(command, time_ms, refusal):
    """104, 108 and 808 share one time that each must exceed (LPRP-D14)."""
    parts, _ = with_tenant(last_ts=0)
    found = consider(parts, sealed(TENANT, HOST, command, b"x" * 64, time_ms))

    assert (found if isinstance(found, Refusal) else None) is refusal


def test_comparisons_may_be_older():
    """A 108 that only compares obeys no time (LPRP-C6)."""
    parts, _ = with_tenant()
    packet = sealed(TENANT, HOST, Command.UPDATE_WHITELIST, bytes(32) + ZERO_KEY, NOW_MS - 100)

    assert isinstance(consider(parts, packet), Arrival)


@pytest.mark.parametrize("command", [Command.RELAY, Command.WORK])
def test_other_packets_may_be_older(command):
    """Relays and work of a tenant are heard whatever its newest time."""
    parts, _ = with_tenant()

    assert isinstance(consider(parts, sealed(TENANT, HOST, command, least(command), NOW_MS - 100)), Arrival)


@pytest.mark.parametrize(("time_ms", "waits", "heard"), [(0, True, True), (0, False, False), (1, False, True)])
def test_confirmations_may_be_older(time_ms, waits, heard):
    """An 802 that is not newer is checked only for a letter that waits: that one it removes (LPRP-C3)."""
    parts, _ = with_tenant()
    letter = parts.letter()
    packet = sealed(TENANT, HOST, Command.DELIVERED, letter.signature if waits else bytes(64), NOW_MS + time_ms)
    found = consider(parts, packet)

    assert isinstance(found, Arrival) if heard else found is Refusal.UNKNOWN_RELAY


def test_visitors_may_ask_at_any_time():
    """A key without a lease has no last time."""
    assert isinstance(consider(Parts(), sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64), NOW_MS - 9)), Arrival)


@pytest.mark.parametrize("worker", [VISITOR, SENDER])
def test_work_of_visitors(worker):
    """A visitor's 101 is checked only if that visitor was asked for work."""
    parts = Parts()
    asked = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64))
    challenge = parts.working.demand(Demand(Kind.LEASE, asked, VISITOR.public, 0.0), parts.hear(), START, NOW_MS)
    found = consider(parts, sealed(worker, HOST, Command.WORK, challenge[:64]))
    unknown = consider(parts, sealed(worker, HOST, Command.WORK, bytes(64)))

    assert isinstance(found, Arrival) if worker is VISITOR else found is Refusal.UNKNOWN_CHALLENGE
    assert unknown is Refusal.UNKNOWN_CHALLENGE


# What speaks for a packet


def doubts(parts, packet, times=1):
    """Return whether a packet of an unknown source is doubted, each time it comes."""
    return [consider(parts, packet, AFAR).doubted for _ in range(times)]


def test_nothing_speaks_for_a_stranger():
    """A packet of a source without standing is doubted, one of a source with standing is not."""
    parts, _ = with_tenant(0, 0)
    beat = sealed(TENANT, HOST, Command.HEARTBEAT)
    first = doubts(parts, beat)
    parts.hear(AFAR).note_accepted()

    assert first == [True] and doubts(parts, beat) == [False]


def test_letters_speak_for_their_confirmation():
    """An 802 that names a waiting letter is not doubted, for eight copies: forged ones must not come for nothing."""
    parts, _ = with_tenant(0, 0)
    done = sealed(TENANT, HOST, Command.DELIVERED, parts.letter().signature)

    assert doubts(parts, done, LIMITS.vouches_per_packet + 2) == [False] * LIMITS.vouches_per_packet + [True] * 2
    assert doubts(parts, sealed(TENANT, HOST, Command.DELIVERED, bytes(64))) == [True]


def test_challenges_speak_for_their_answer():
    """So is a 101 that names a challenge, by its own worker."""
    parts = Parts()
    asked = sealed(VISITOR, HOST, Command.ASK_LEASE, bytes(64))
    challenge = parts.working.demand(Demand(Kind.LEASE, asked, VISITOR.public, 0.0), parts.hear(), START, NOW_MS)
    work = sealed(VISITOR, HOST, Command.WORK, challenge[:64])

    assert doubts(parts, work, LIMITS.vouches_per_packet + 2) == [False] * LIMITS.vouches_per_packet + [True] * 2


# Rations

BEAT = sealed(TENANT, HOST, Command.HEARTBEAT)


def arrival_of(source):
    """Return a packet that came from there."""
    return Arrival(BEAT, TENANT.public, source.address, source, not source.trusted)


def flood(parts, count, *, at=AT_HOME, now=START, settle=True):
    """Offer so many packets from one place, let their signatures fail, and return why the rest was turned away."""
    source, turned_away, taken = parts.hear(at, 144, now), [], []
    for _ in range(count):
        arrival = Arrival(BEAT, TENANT.public, source.address, source, not source.trusted)
        refusal = parts.intake.ration(arrival, 0, now)
        if refusal is None:
            taken.append(arrival)
        else:
            turned_away.append(refusal)
    for arrival in taken if settle else ():
        parts.intake.settle(arrival, now, holds=False)
    return turned_away


def test_untrusted_checks_under_way_count_against_the_failures():
    """A whole batch does not pass on one token: each check of an unknown source may fail, so each needs its own."""
    parts = Parts()

    assert flood(parts, LIMITS.bad_signatures_burst, settle=False) == []
    assert flood(parts, 1) == [Refusal.VERIFY_FAILURES]


def test_failures_come_back():
    """A hundred failures a second are forgiven."""
    parts = Parts()
    flood(parts, LIMITS.bad_signatures_burst)
    later = after_ms(START, 100)

    assert flood(parts, 11, now=later) == [Refusal.VERIFY_FAILURES]


def test_good_signatures_cost_no_failure():
    """Checks that hold leave the ration as it was, and give a source no standing: anybody can sign."""
    parts = Parts()
    source = parts.hear()
    arrival = arrival_of(source)
    for _ in range(3 * LIMITS.bad_signatures_burst):
        assert parts.intake.ration(arrival, 0, START) is None
        parts.intake.settle(arrival, START, holds=True)

    assert not source.trusted and source.prefix.failures.left == LIMITS.bad_signatures_burst


def test_trusted_sources_do_not_ask_the_failures():
    """When its prefix has used up its failures a source that has signed well is still checked."""
    parts = Parts()
    parts.hear(ELSEWHERE).note_accepted()
    flood(parts, LIMITS.bad_signatures_burst + 1)

    assert flood(parts, 8, at=ELSEWHERE) == []
    assert flood(parts, 1, at=ELSEWHERE) == [Refusal.VERIFY_FAILURES]  # eight forgeries in its name took its trust


def test_prefixes_have_their_own_failures():
    """What one network fails does not count for another."""
    parts = Parts()
    flood(parts, LIMITS.bad_signatures_burst)

    assert flood(parts, 1, at=AFAR) == []


@pytest.mark.parametrize(
    ("accepted", "vouched", "turned_away"), [(True, False, 0), (False, False, 7), (False, True, 7)]
)
def test_exempt_key_needs_no_rate_where_packets_were_accepted(accepted, vouched, turned_away):
    """NODE-ACCESS: anybody can write its key into a packet, so a source that is not trusted is counted.

    A packet that names one which only the signer has received changes nothing about that.
    """
    parts = Parts(unlimited=[TENANT.public], limits=LprpLimits(bad_signatures_burst=1_000, checks_per_second=20))
    source = parts.hear()
    if accepted:
        source.note_accepted()
    found = []
    for _ in range(27):
        arrival = arrival_of(source)._replace(doubted=not (accepted or vouched))
        found.append(parts.intake.ration(arrival, 0, START))
        if found[-1] is None:
            parts.intake.settle(arrival, START, holds=True)

    assert found.count(Refusal.VERIFY_RATE) == turned_away


@pytest.mark.parametrize(("rate_limits", "turned_away"), [(True, 7), (False, 0)])
def test_checks_per_second(rate_limits, turned_away):
    """A prefix gets 4,000 checks a second, good or bad; without rate limits no such number holds."""
    parts = Parts(rate_limits=rate_limits)
    source = parts.hear()
    source.note_accepted()
    found = []
    for _ in range(LIMITS.checks_per_second + 7):
        found.append(parts.intake.ration(arrival_of(source), 0, START))
        if found[-1] is None:
            parts.intake.settle(arrival_of(source), START, holds=True)

    assert found.count(Refusal.VERIFY_RATE) == turned_away


@pytest.mark.parametrize(
    ("waiting", "trusted", "refusal"),
    [
        (LIMITS.checks_waiting - 1, False, None),
        (LIMITS.checks_waiting - 1, True, None),
        (LIMITS.checks_waiting, False, Refusal.VERIFY_BACKLOG),
        (LIMITS.checks_waiting, True, Refusal.VERIFY_BACKLOG),
    ],
)
def test_room_for_those_who_wait(waiting, trusted, refusal):
    """What waits for its check or for the disk has one bound for all."""
    parts = Parts()
    source = parts.hear()
    if trusted:
        source.note_accepted()

    assert parts.intake.ration(arrival_of(source), waiting, START) is refusal


def test_strangers_have_a_room_of_their_own():
    """512 checks for sources without standing are under way at most, whatever their prefixes; others go on."""
    parts = Parts()
    strangers = [
        parts.hear((f"10.{number >> 8}.{number & 255}.1", 9)) for number in range(LIMITS.checks_waiting_untrusted + 1)
    ]
    known = parts.hear()
    known.note_accepted()
    found = [parts.intake.ration(arrival_of(stranger), 0, START) for stranger in strangers]
    also = parts.intake.ration(arrival_of(known), 0, START)
    parts.intake.settle(arrival_of(strangers[0]), START, holds=True)

    assert found == [None] * LIMITS.checks_waiting_untrusted + [Refusal.VERIFY_BACKLOG]
    assert also is None
    assert parts.intake.ration(arrival_of(strangers[-1]), 0, START) is None


def test_no_prefix_fills_the_room():
    """1,024 checks of one prefix are under way at most, and those of another go on."""
    parts = Parts()
    near, far = parts.hear(("10.0.0.1", 9)), parts.hear(("10.0.1.1", 9))
    near.note_accepted()
    far.note_accepted()
    found = [parts.intake.ration(arrival_of(near), 0, START) for _ in range(LIMITS.checks_waiting_per_network + 1)]
    elsewhere = parts.intake.ration(arrival_of(far), 0, START)
    parts.intake.settle(arrival_of(near), START, holds=True)

    assert found == [None] * LIMITS.checks_waiting_per_network + [Refusal.VERIFY_BACKLOG]
    assert elsewhere is None
    assert parts.intake.ration(arrival_of(near), 0, START) is None


def test_bad_signatures_lower_the_standing():
    """A failure takes one from a source's standing; a signature that holds leaves it."""
    parts = Parts()
    source = parts.hear(address_of(1))
    source.note_accepted()
    arrival = parts.arrival(sealed(TENANT, HOST, Command.HEARTBEAT), address_of(1))
    parts.intake.settle(arrival, START, holds=True)
    high = source.score
    parts.intake.settle(arrival, START, holds=False)

    assert (high, source.score) == (8, 7)
