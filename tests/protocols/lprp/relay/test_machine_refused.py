"""Laws of an LPRP host whose store refuses (LPRP-REFUSED): silence, and every answer once it is true."""

import random

from tests.protocols.lprp.build_relay import AFAR, AT_HOME, Host, Person, commands, friends, key_of
from tests.protocols.refusing import RefusingStore
from waystation.core.commits import COMMIT_AGAIN_MS
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import Command


def refusing(make=friends, **options):
    """Return a host over a store that can refuse, a tenant and a sender."""
    store = RefusingStore()
    host, tenant, sender = make(store=store, **options)
    return store, host, tenant, sender


def said_by(left):
    """Return the commands of what ``pass_ms`` returned."""
    return commands([packet for _, _, packet in left])


def test_letter_that_cannot_be_kept_is_answered_once_it_is():
    """Until then there is silence, also for its copies; then the sender hears once that the host keeps it."""
    store, host, tenant, sender = refusing()
    letter = sender.letter(tenant)
    store.refuses = True
    first = commands(sender.repeat(letter))
    silence = commands(sender.repeat(letter))
    kept_meanwhile = list(store.scan("lprp_packets"))
    settled = host.relay.settled()
    store.refuses = False
    answers = said_by(host.pass_ms(COMMIT_AGAIN_MS))
    again = commands(sender.repeat(letter))

    assert Command.RELAY_ACCEPTED not in first + silence
    assert (kept_meanwhile, settled) == ([], False)
    assert answers.count(Command.RELAY_ACCEPTED) == 1
    assert Command.RELAY_ACCEPTED in again
    assert host.relay.settled() and len(list(store.scan("lprp_packets"))) == 1


def test_crash_while_the_store_refuses_leaves_nothing_that_was_told():
    """The letter and the lease are gone, and nobody was told of them; the same packets are taken afterwards."""
    store = RefusingStore()
    host = Host(store=store)
    tenant, sender = Person(host, key_of(1), AT_HOME), Person(host, key_of(2), AFAR)
    tenant.lease()
    challenge = next(p for p in sender.say(Command.ASK_LEASE, bytes(64)) if p.command is Command.LEASE_DEMANDS_WORK)
    store.refuses = True
    told = commands(sender.solve(challenge, bits=host.settings.pow_base_bits_lease))
    host.restart()
    store.refuses = False
    views = host.view(tenant) is not None, host.view(sender) is not None

    assert Command.LEASE_GRANTED not in told
    assert views == (True, False)
    sender.lease()
    assert host.view(sender) is not None


def test_refused_store_is_asked_once_a_second():
    """However many packets come, one commit is tried, and the next one a second later has all of it."""
    store, host, tenant, sender = refusing()
    store.refuses = True
    before = len(host.commits)
    for _ in range(20):
        sender.mail(tenant)
        tenant.beat()
    tried = len(host.commits) - before
    host.pass_ms(3 * COMMIT_AGAIN_MS)

    assert tried == 1
    assert len(host.commits) - before == 4


def test_what_is_kept_while_the_store_refuses_is_bounded():
    """No more packets wait than checks may; those beyond are dropped, and senders repeat them."""
    store, host, tenant, sender = refusing(rate_limits=False, limits=LprpLimits(checks_waiting=8))
    store.refuses = True
    for _ in range(40):
        sender.mail(tenant)

    assert host.sizes["under_way"] == 8
    store.refuses = False
    assert said_by(host.pass_ms(COMMIT_AGAIN_MS)).count(Command.RELAY_ACCEPTED) == 8
    assert Command.RELAY_ACCEPTED in commands(sender.mail(tenant))


def test_what_was_accepted_is_on_disk_whatever_is_refused():
    """Over a store that refuses at random and a host that is killed at random no accepted letter is lost."""
    rng = random.Random(5)
    store = RefusingStore(rng, chance=0.0)
    host, tenant, sender = friends(store=store, rate_limits=False)
    store._chance = 0.5
    accepted = set()
    for number in range(120):
        letter = sender.letter(tenant, bytes([number]) * 64)
        heard = sender.repeat(letter)
        heard += [packet for _, _, packet in host.pass_ms(rng.choice((0, 400, COMMIT_AGAIN_MS)))]
        accepted |= {packet.reference for packet in heard if packet.command is Command.RELAY_ACCEPTED}
        if rng.random() < 0.05:
            host.restart()
    store._chance = 0.0
    host.restart()
    kept = {queued.signature for each in host.relay._tenants for queued in each.mailbox}

    assert len(accepted) > 60
    assert accepted <= kept
