"""What outlives the process: nothing leaves before its commit, and every commit is a place to go on from."""

import pytest

from tests.protocols.lprp.build import FRIENDS, TENANT
from tests.protocols.lprp.build_relay import (
    AFAR,
    AT_HOME,
    ELSEWHERE,
    commands,
    friends,
    world,
)
from waystation.core.facts import DeliveryFinished
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.ledger import BUNDLE_PACKETS_MAX

AHEAD_MS = 1_000
"""How far ahead of itself a tenant's newest time may stand on disk (LPRP-AHEAD)."""
TABLES = ("lprp_tenants", "lprp_whitelists", "lprp_packets", "lprp_done")


def rows(store, table):
    """Return how many rows a table has."""
    return len(list(store.scan(table, count_max=100_000)))


def queue_of(relay, key, wall_ms):
    """Return the packets that wait for a tenant, oldest first."""
    return [letter.data for letter in relay._tenants.find(key, wall_ms).mailbox]


# The commit comes first


def promising(host, tenant, sender):
    """Return packets whose answers promise something, each with its answer."""
    (challenge,) = tenant.say(Command.ASK_LEASE, bytes(64))
    host.pass_ms(5)
    return {
        "heartbeat": (tenant.packet(Command.HEARTBEAT), AT_HOME, Command.HEARTBEAT_ANSWER),
        "lease": (tenant.solution(challenge), AT_HOME, Command.LEASE_GRANTED),
        "relay": (sender.letter(tenant), AFAR, Command.RELAY_ACCEPTED),
        "clearing": (tenant.packet(Command.CLEAR_WHITELIST, bytes(64)), AT_HOME, Command.WHITELIST_DONE),
    }


@pytest.mark.parametrize("name", ["heartbeat", "lease", "relay", "clearing"])
def test_no_promise_leaves_before_its_commit(name):
    """While the disk has not spoken nothing leaves, copies of the packet are silent; then one answer goes."""
    host, tenant, sender = friends()
    packet, address, answer = promising(host, tenant, sender)[name]
    host.holds_commits = True
    early = host.give((packet.data, address))
    copies = host.give((packet.data, address), (packet.data, ELSEWHERE))
    late = host.release()

    assert answer not in [sent.command for _, sent in early] and copies == []
    assert host.refused[Refusal.DUPLICATE.value] == 2
    assert [(to, sent.command) for to, sent in late if sent.command is answer] == [(address, answer)]
    assert answer in [sent.command for _, sent in host.give((packet.data, address))]


def test_a_demand_waits_for_the_contact_it_noted():
    """A 604 to a tenant follows the commit of the contact that its 104 noted (LPRP-C7)."""
    host, tenant, _ = world()
    host.holds_commits = True
    early = tenant.say(Command.ASK_LEASE, bytes(64))
    late = host.release()

    assert early == []
    assert [packet.command for _, packet in late] == [Command.LEASE_DEMANDS_WORK]


def test_a_refusal_waits_for_the_contact_it_noted():
    """Also a 408 follows the commit of the contact that its 108 noted."""
    host, tenant, sender = world()
    host.holds_commits = True
    early = tenant.toggle(sender.public, current=FRIENDS)
    late = host.release()

    assert early == []
    assert [packet.command for _, packet in late] == [Command.WHITELIST_DIFFERS]


def test_a_demand_behind_a_confirmation_waits_too():
    """The contact of an 802 may stand on disk ahead of its time, but only once it does (LPRP-AHEAD)."""
    host, tenant, sender = friends()
    host.pass_ms(5_000)
    host.holds_commits = True
    tenant.confirm(sender.letter(tenant))
    early = tenant.say(Command.ASK_LEASE, bytes(64))
    late = host.release()

    assert early == []
    assert [packet.command for _, packet in late] == [Command.LEASE_DEMANDS_WORK]


def test_confirmations_share_one_write_of_the_newest_time():
    """802s come by the hundred: their times are written a second ahead, so most of them change no row (LPRP-AHEAD)."""
    host, tenant, sender = friends()
    host.pass_ms(5_000)
    begun = len(host.commits)
    for _ in range(50):
        tenant.confirm(sender.letter(tenant))
    row = host.store.get("lprp_tenants", TENANT.public)

    assert len(host.commits) == begun + 1
    assert int.from_bytes(row[9:17], "big") == tenant.last_ms - 49 + AHEAD_MS


def test_demands_to_strangers_wait_for_nobody():
    """A 602 promises nothing, so it leaves at once."""
    host, tenant, sender = world()
    host.holds_commits = True

    assert commands(sender.mail(tenant)) == [Command.RELAY_DEMANDS_WORK]


def test_promises_that_gather_leave_with_the_next_commit():
    """One commit is under way at a time; what comes meanwhile goes into the next, and its answers leave with that."""
    host, tenant, sender = friends()
    host.holds_commits = True
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(5)]
    for letter in letters:
        sender.repeat(letter)
    under_way = len(host.held)
    first = host.confirm_one()
    second = host.confirm_one()

    accepted = [
        [sent.reference for _, sent in left if sent.command is Command.RELAY_ACCEPTED] for left in (first, second)
    ]
    assert under_way == 1
    assert accepted == [[letters[0].signature], [letter.signature for letter in letters[1:]]]


def test_repeat_of_what_is_being_committed_waits_too():
    """A letter judged a second time while its commit is under way is not answered earlier than the first."""
    host, tenant, sender = world()
    letter = sender.letter(tenant)
    (challenge,) = sender.repeat(letter)
    host.holds_commits = True
    sender.solve(challenge)
    again = sender.repeat(letter)
    held = len(host.held)
    late = host.release()

    assert Command.RELAY_ACCEPTED not in commands(again) and held == 1
    assert Command.RELAY_ACCEPTED in [packet.command for _, packet in late]


def test_crash_before_the_commit_forgets_what_was_not_promised():
    """What was never answered may be lost, and is taken when it comes again."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    host.holds_commits = True
    sender.repeat(letter)
    host.holds_commits = False
    host.restart()

    assert host.sizes["packets"] == 0
    assert commands(sender.repeat(letter)) == [Command.RELAY_ACCEPTED]
    assert host.sizes["packets"] == 1


# After a restart


def test_addresses_are_not_kept():
    """After a restart a tenant is inactive until it speaks; then its mail leaves (LPRP-C7)."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    left = host.restart()
    state = host.view(tenant)["state"]

    assert left == host.pass_ms(10_000) == []
    assert state == "inactive"
    assert letter in tenant.beat()


def test_proof_is_not_kept():
    """After a restart an address is sent four times what came from it, like any other."""
    host, tenant, sender = friends()
    host.give(*[(sender.letter(tenant, bytes([number]) * 364).data, AFAR) for number in range(16)])
    host.restart()

    assert commands(tenant.beat()).count(Command.RELAY) == 0
    assert commands(tenant.beat()).count(Command.RELAY) == 1


def test_old_packets_stay_old():
    """Heartbeats and clearings from before the restart neither move the mail nor clear the list."""
    host, tenant, _ = world()
    clearing = tenant.packet(Command.CLEAR_WHITELIST, bytes(64))
    tenant.toggle(*FRIENDS)
    beat = tenant.packet(Command.HEARTBEAT)
    tenant.repeat(beat)
    host.restart()
    answers = tenant.repeat(beat, at=ELSEWHERE) + tenant.repeat(clearing, at=ELSEWHERE)

    assert answers == [] and host.view(tenant)["state"] == "inactive"
    assert host.view(tenant)["whitelist"] == 3


def test_waiting_letter_is_not_queued_twice():
    """A 102 whose 202 was lost with the process gets another, and waits once."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    host.restart()

    assert commands(sender.repeat(letter)) == [Command.RELAY_ACCEPTED]
    assert host.sizes["packets"] == 1


def test_strangers_are_counted_after_a_restart():
    """The rooms of strangers are as full as before."""
    host, tenant, sender = world()
    for number in range(16):
        (challenge,) = [p for p in sender.mail(tenant, bytes([number]) * 70) if p.command is Command.RELAY_DEMANDS_WORK]
        sender.solve(challenge)
    host.restart()

    assert commands(sender.mail(tenant)) == [Command.RELAY_REFUSED]


def test_challenges_need_not_be_kept():
    """Work for a challenge of before the restart is not known, and the same request gets a new demand."""
    host, tenant, sender = world()
    letter = sender.letter(tenant)
    (challenge,) = sender.repeat(letter)
    host.restart()
    lost = sender.solve(challenge)
    (new,) = sender.repeat(letter)

    assert lost == [] and Command.RELAY_ACCEPTED in commands(sender.solve(new))


def test_expired_while_away():
    """A lease that ended while nobody ran is over, its mail kept; one that should be forgotten is."""
    host, tenant, sender = friends(lease_ms=60_000)
    sender.mail(tenant)
    host.offset_ms += 60_001
    host.restart()
    kept = host.view(tenant)["state"], host.view(tenant)["queue"], tenant.beat()
    host.offset_ms += 1 << 25
    host.restart()
    host.pass_ms((1 << 22) + 1)

    assert kept == ("expired", 1, [])
    assert host.view(tenant) is None and [rows(host.store, table) for table in TABLES] == [0, 0, 0, 0]


def test_latency_over_a_restart():
    """A letter remembers when it was accepted."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    host.pass_ms(700)
    host.restart()
    tenant.confirm(letter)

    assert host.facts_of(DeliveryFinished)[0].latency_us == 700_000


# Bundles


def test_bundle_whose_packets_are_done_goes():
    """When every packet of a bundle is confirmed its rows go, bitmap and all."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(12)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    bundled = rows(host.store, "lprp_packets")
    tenant.confirm(*letters[:5])
    marked = rows(host.store, "lprp_done")
    tenant.confirm(*letters[5:])

    assert (bundled, marked) == (1, 1)
    assert [rows(host.store, table) for table in TABLES[2:]] == [0, 0]


def test_few_packets_move_on():
    """When no more than one packet in four of a bundle is left, these move into a new one, in the same commit."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(12)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    (before,) = host.store.scan("lprp_packets")
    tenant.confirm(*letters[:8])
    (same,) = host.store.scan("lprp_packets")
    tenant.confirm(letters[8])
    (after,) = host.store.scan("lprp_packets")
    host.restart()

    assert before == same and after[0] > before[0] and len(after[1]) < len(before[1]) // 3
    assert queue_of(host.relay, TENANT.public, host.wall_ms) == [letter.data for letter in letters[9:]]
    assert rows(host.store, "lprp_done") == 0


def test_confirmed_before_its_commit_is_never_written():
    """A letter that is confirmed while its commit waits for its turn leaves no row."""
    host, tenant, sender = friends()
    host.holds_commits = True
    tenant.beat()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    tenant.confirm(letter)
    host.release()

    assert rows(host.store, "lprp_packets") == 0 and host.sizes["packets"] == 0


def test_confirmed_during_its_commit():
    """A letter that is confirmed while its commit is under way is gone with the next one."""
    host, tenant, sender = friends()
    host.holds_commits = True
    letter = sender.letter(tenant)
    sender.repeat(letter)
    tenant.confirm(letter)
    host.confirm_one()
    written = rows(host.store, "lprp_packets")
    host.release()

    assert (written, rows(host.store, "lprp_packets")) == (1, 0)


def test_order_is_kept():
    """Letters wait in the order in which they were accepted, over restarts and moves."""
    host, tenant, sender = friends()
    letters = []
    for number in range(30):
        letters.append(sender.letter(tenant, bytes([number]) * 70))
        sender.repeat(letters[-1])
        host.pass_ms(2)
    tenant.confirm(*letters[3:9])
    host.restart()

    left = letters[:3] + letters[9:]
    assert queue_of(host.relay, TENANT.public, host.wall_ms) == [letter.data for letter in left]


def test_full_queue_survives():
    """A queue of 256 letters is 256 letters after a restart, and as full."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, number.to_bytes(70, "big")) for number in range(LIMITS.queue_packets)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    host.restart()

    assert host.sizes["packets"] == LIMITS.queue_packets < BUNDLE_PACKETS_MAX
    assert commands(sender.mail(tenant)) == [Command.RELAY_REFUSED]
    assert host.sizes["packet_bytes"] == LIMITS.queue_packets * (144 + 70)


def test_update_time_is_kept():
    """An update soon after one of the life before costs work."""
    host, tenant, sender = friends()
    host.restart()
    soon = tenant.toggle(*FRIENDS, current=[sender.public])
    host.pass_ms(CLOCK_WINDOW_MS + 1)

    assert commands(soon) == [Command.WHITELIST_DEMANDS_WORK]
    assert commands(tenant.toggle(*FRIENDS, current=[sender.public])) == [Command.WHITELIST_DONE]
