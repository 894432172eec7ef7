"""Mail between acceptance and confirmation: when it leaves, how often, in what window; and how long leases last."""

import random

import pytest

from tests.protocols.lprp.build import HOST, SENDER, TENANT, VISITOR
from tests.protocols.lprp.build_relay import AFAR, AT_HOME, ELSEWHERE, HOUR_MS, Host, Person, commands, friends, world
from waystation.core.facts import DeliveryAccepted, DeliveryFinished, LeaseChanged, Outcome
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.refusals import Refusal

# Mail: timers, LPRP-D10, LPRP-D20, LPRP-D21, LPRP-C2, LPRP-C3


def copies(host, tenant, sender, duration_ms):
    """Let the sender mail once and return when copies of it left."""
    letter = sender.letter(tenant)
    begin = [0 for packet in sender.repeat(letter) if packet == letter]
    return letter, begin + [at for at, _, packet in host.pass_ms(duration_ms) if packet == letter]


def test_unresponsive_tenant_gets_exactly_c2_copies():
    """With c1 = 100 ms and c2 = 3: copies at 0, 100 and 300 ms, then none until a heartbeat."""
    host, tenant, sender = friends(retry_ms=100, retries=3)
    tenant.beat()
    letter, left = copies(host, tenant, sender, 100_000)
    asleep = host.view(tenant)["state"]
    woken = tenant.beat()

    assert left == [0, 100, 300]
    assert asleep == "dormant"
    assert letter in woken and host.view(tenant)["state"] == "active"


def test_default_copies_and_sleep():
    """With the defaults: copies at 0, 2, 6, 12 and 20 s, asleep at 30 s and not before."""
    host, tenant, sender = friends()
    _, left = copies(host, tenant, sender, 29_999)
    awake = host.view(tenant)["state"]
    late = host.pass_ms(1)

    assert left == [0, 2_000, 6_000, 12_000, 20_000]
    assert (awake, host.view(tenant)["state"], late) == ("active", "dormant", [])


def test_mail_for_a_sleeper_waits():
    """New mail wakes nobody who answered none of the tries; it is accepted, and leaves with the next sign of life."""
    host, tenant, sender = friends(retry_ms=100, retries=3)
    first, _ = copies(host, tenant, sender, 1_000)
    answers = sender.mail(tenant, b"second" * 20)
    woken = tenant.beat()

    assert commands(answers) == [Command.RELAY_ACCEPTED]
    assert first in woken
    assert commands(woken).count(Command.RELAY) == 2


def test_newer_packet_resends_only_what_is_c1_old():
    """A heartbeat resets the tries but sends again only what never left or left c1 ago (LPRP-C2)."""
    host, tenant, sender = friends()
    sender.mail(tenant)
    host.pass_ms(1_999)
    early = tenant.beat()
    host.now += 1_000
    due = tenant.beat()

    assert commands(early) == [Command.HEARTBEAT_ANSWER]
    assert commands(due).count(Command.RELAY) == 1


def test_tries_begin_anew_with_a_newer_packet():
    """After a sign of life the whole row of tries begins again, measured from the next copy."""
    host, tenant, sender = friends(retry_ms=100, retries=3)
    letter, _ = copies(host, tenant, sender, 150)
    tenant.beat()
    left = [at for at, _, packet in host.pass_ms(10_000) if packet == letter]

    assert left == [50, 150, 350]


def test_confirmed_mail_makes_room_at_once():
    """The window is 16; an 802 is applied before anything is sent, and the next letter leaves with it."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(20)]
    left = host.give(*[(letter.data, AFAR) for letter in letters])
    first = [packet for _, packet in left if packet.command is Command.RELAY]
    after = [packet for packet in tenant.confirm(letters[3]) if packet.command is Command.RELAY]

    assert first == letters[:16]
    assert after == [letters[16]]


def test_confirmation_counts_before_resending():
    """Letters that the packet of one turn confirms are not sent again by that turn, however due they are."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(3)]
    host.give(*[(letter.data, AFAR) for letter in letters])
    host.now += 2_500_000
    done = [tenant.packet(Command.DELIVERED, letter.signature) for letter in letters[:2]]
    left = host.give(*[(packet.data, AT_HOME) for packet in (tenant.packet(Command.HEARTBEAT), *done)])

    assert [packet for _, packet in left if packet.command is Command.RELAY] == letters[2:]


def test_old_confirmation_counts():
    """An 802 removes its letter even when it is not newer than the tenant's last packet, but refreshes nothing."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    done = tenant.packet(Command.DELIVERED, letter.signature)
    tenant.beat()
    sender.repeat(letter)
    host.give((done.data, ELSEWHERE))

    assert host.sizes["packets"] == 0
    assert host.view(tenant)["address"] == "{}:{}".format(*AT_HOME)


def test_old_confirmation_makes_room():
    """What an 802 that is not newer frees in the window is used at once."""
    host, tenant, sender = friends()
    letters = [sender.letter(tenant, bytes([number]) * 70) for number in range(17)]
    done = tenant.packet(Command.DELIVERED, letters[0].signature)
    tenant.beat()
    host.give(*[(letter.data, AFAR) for letter in letters])

    assert tenant.repeat(done) == [letters[16]]


def test_tenants_confirm_only_their_own_mail():
    """An 802 for a letter in somebody else's queue removes nothing."""
    host, tenant, sender = friends()
    other = Person(host, VISITOR, ELSEWHERE).lease()
    letter = sender.letter(tenant)
    sender.repeat(letter)
    answers = other.confirm(letter)

    assert answers == [] and host.sizes["packets"] == 1
    assert host.refused[Refusal.UNKNOWN_RELAY.value] == 1


def test_repeated_relay_is_queued_once():
    """A 102 that comes again gets the same 202, whether it waits or is long confirmed, and arrives once."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    (answer,) = [packet for packet in sender.repeat(letter) if packet.command is Command.RELAY_ACCEPTED]
    host.pass_ms(5)
    waiting = sender.repeat(letter)
    tenant.confirm(letter)
    done = sender.repeat(letter)

    assert waiting == done == [answer]
    assert host.sizes["packets"] == 0 and len(host.facts_of(DeliveryAccepted)) == 1


def test_repeated_relay_waiting_for_work_gets_the_same_demand():
    """While its challenge waits, a 102 gets the same 602 bytes; once the work is done, the 202."""
    host, tenant, sender = world()
    letter = sender.letter(tenant)
    (first,) = sender.repeat(letter)
    host.pass_ms(5)
    (second,) = sender.repeat(letter)
    work = sender.solution(first)
    accepted = [packet for packet in sender.repeat(work) if packet.command is Command.RELAY_ACCEPTED]
    host.pass_ms(5)

    assert first == second and host.sizes["challenges"] == 0
    assert sender.repeat(letter) == sender.repeat(work) == accepted


def test_refused_relay_is_judged_again():
    """A 402 is not stored: once the recipient has its lease the same bytes are taken (LPRP-C4)."""
    host = Host()
    tenant, sender = Person(host, TENANT), Person(host, SENDER, AFAR)
    letter = sender.letter(tenant)
    refused = sender.repeat(letter)
    host.pass_ms(3)
    again = sender.repeat(letter)
    tenant.lease()
    tenant.toggle(SENDER.public)

    assert commands(refused + again) == [Command.RELAY_REFUSED] * 2
    assert refused[0].time_ms + 3 == again[0].time_ms
    assert Command.RELAY_ACCEPTED in commands(sender.repeat(letter))


@pytest.mark.parametrize(("silent_ms", "state"), [((1 << 17) - 1, "active"), (1 << 17, "inactive")])
def test_silent_address_is_sent_nothing(silent_ms, state):
    """An address not heard from for 2**17 ms may be somebody else's: mail waits for the next packet (LPRP-D21)."""
    host, tenant, sender = friends()
    tenant.beat()
    host.pass_ms(silent_ms)
    answers = sender.mail(tenant)

    assert host.view(tenant)["state"] == state
    assert (Command.RELAY in commands(answers)) == (state == "active")
    assert Command.RELAY_ACCEPTED in commands(answers)
    assert (Command.RELAY in commands(tenant.beat())) == (state == "inactive")


def test_tenant_may_write_to_itself():
    """Self-relay needs neither whitelist nor work (LPRP-D23, LPRP-C8)."""
    host, tenant, _ = world()
    letter = tenant.letter(tenant)

    assert tenant.repeat(letter) == [letter, *[p for _, p in host.sent if p.command is Command.RELAY_ACCEPTED]]


def test_visitor_and_host_get_no_mail():
    """Mail for a key without a lease, the host's own among them, is refused (LPRP-D23)."""
    host, _, sender = world()
    answers = sender.mail(Person(host, VISITOR)) + sender.mail(Person(host, HOST)) + sender.mail(sender)

    assert commands(answers) == [Command.RELAY_REFUSED] * 3
    assert [fact.outcome for fact in host.facts_of(DeliveryFinished)] == [Outcome.OFFLINE] * 3


def test_facts_of_one_delivery():
    """A letter is told when it is accepted and when it is confirmed, with its latency."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant, bytes(100))
    sender.repeat(letter)
    host.pass_ms(250)
    tenant.confirm(letter)
    (accepted,) = host.facts_of(DeliveryAccepted)
    (finished,) = host.facts_of(DeliveryFinished)

    assert (accepted.recipient, accepted.payload_bytes) == (TENANT.public, 100)
    assert (finished.attempt, finished.outcome, finished.latency_us) == (accepted.attempt, Outcome.OK, 250_000)


# Lease life: LPRP-D19


def test_lease_life():
    """A lease ends after its time; mail is kept, new mail refused, and a renewal brings all of it back."""
    host, tenant, sender = friends(lease_ms=HOUR_MS)
    letter = sender.letter(tenant)
    sender.repeat(letter)
    host.pass_ms(HOUR_MS - 5)
    before = host.view(tenant)["state"]
    host.pass_ms(10)
    expired = host.view(tenant)
    refused = sender.mail(tenant)
    beat = tenant.beat()
    host.pass_ms((1 << 25) - 20_000)
    (challenge,) = tenant.say(Command.ASK_LEASE, bytes(64))
    revived = tenant.solve(challenge)

    assert (before, expired["state"], expired["queue"], expired["whitelist"]) == ("inactive", "expired", 1, 1)
    assert commands(refused) == [Command.RELAY_REFUSED] and beat == []
    assert letter in revived and Command.LEASE_GRANTED in commands(revived)
    assert Command.RELAY_ACCEPTED in commands(sender.mail(tenant))
    assert [fact.change for fact in host.facts_of(LeaseChanged)] == ["granted", "expired", "revived"]


def test_forgotten_lease():
    """More than 2**25 ms after its end a lease is forgotten with its mail and whitelist, on disk too."""
    host, tenant, sender = friends(lease_ms=HOUR_MS)
    sender.mail(tenant)
    host.pass_ms(HOUR_MS + (1 << 25))
    kept = host.sizes["leases_kept"], host.sizes["packets"]
    host.pass_ms(1_000)
    rows = [list(host.store.scan(table)) for table in ("lprp_tenants", "lprp_whitelists", "lprp_packets", "lprp_done")]

    assert kept == (1, 1)
    assert (host.sizes["leases_kept"], host.sizes["packets"], host.sizes["packet_bytes"]) == (0, 0, 0)
    assert rows == [[], [], [], []]
    assert host.facts_of(DeliveryFinished)[-1].outcome is Outcome.GONE
    assert host.facts_of(LeaseChanged)[-1].change == "forgotten"


def test_renewal_begins_the_lease_anew():
    """A tenant that renews in time never stops being one."""
    host, tenant, _ = world(lease_ms=HOUR_MS)
    host.pass_ms(HOUR_MS * 3 // 4)
    tenant.lease()
    host.pass_ms(HOUR_MS - 1_000)

    assert commands(tenant.beat()) == [Command.HEARTBEAT_ANSWER]
    assert [fact.change for fact in host.facts_of(LeaseChanged)] == ["granted", "renewed"]


# A bad network


class Wire:
    """Loses a fifth, doubles a tenth, and shuffles what is under way, in both directions."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.under_way = []

    def carry(self, items):
        """Take in what is sent now and return what arrives now."""
        for item in items:
            if self.rng.random() < 0.8:
                self.under_way += [item] * (1 + (self.rng.random() < 0.1))
        self.rng.shuffle(self.under_way)
        count = self.rng.randint(len(self.under_way) // 2, len(self.under_way))
        arrived, self.under_way = self.under_way[:count], self.under_way[count:]
        return arrived


@pytest.mark.parametrize(("seed", "count"), [(0, 150), (1, 150), pytest.param(2, 500, marks=pytest.mark.slow)])
def test_every_letter_arrives_once_over_a_bad_network(seed, count):
    """Of 500 letters over a bad network each reaches the application exactly once, and the queue ends empty."""
    host, tenant, sender = friends(retry_ms=400, retries=100)
    there, back = Wire(seed), Wire(seed + 100)
    todo = [sender.letter(tenant, number.to_bytes(64, "big")) for number in range(count)]
    unsent, accepted, inbox, to_confirm = list(todo), set(), [], {}
    for turn in range(400):
        unsent = [letter for letter in unsent if letter.signature not in accepted]
        says = [(letter.data, AFAR) for letter in unsent[:24]]
        says += [(tenant.packet(Command.DELIVERED, signature).data, AT_HOME) for signature in to_confirm]
        says += [(tenant.packet(Command.HEARTBEAT).data, AT_HOME)] * (turn % 5 == 0)
        to_confirm = {}
        left = host.give(*there.carry(says))
        left += [(address, packet) for _, address, packet in host.pass_ms(200)]
        for _, packet in back.carry(left):
            if packet.command is Command.RELAY_ACCEPTED:
                accepted.add(packet.reference)
            elif packet.command is Command.RELAY:
                if packet.signature not in inbox:
                    inbox.append(packet.signature)
                to_confirm[packet.signature] = None
        if not unsent and not host.sizes["packets"]:
            break

    assert sorted(inbox) == sorted(letter.signature for letter in todo)
    assert host.sizes["packets"] == 0 and len(host.facts_of(DeliveryAccepted)) == count
