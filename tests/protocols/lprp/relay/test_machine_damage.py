"""LPRP-DAMAGED: what becomes of tenants, lists and mail whose rows are damaged on the disk."""

from tests.protocols.lprp.build_relay import AT_HOME, ELSEWHERE, commands, friends
from tests.store.build_rot import lose
from waystation.core.records import DamagedRow
from waystation.protocols.lprp.messages import Command


def keys(host, table):
    """Return the keys of a table's rows."""
    return [key for key, _ in host.store.scan(table)]


def lose_all(host, table):
    """Damage every row of a table, and restart the host on what is left."""
    for key in keys(host, table):
        lose(host.store, table, key)
    host.restart()


def test_lease_whose_row_is_damaged_goes_on_and_keeps_its_mail():
    """It begins anew at the start; the mail of the tenant waits, and leaves when it speaks."""
    host, tenant, sender = friends()
    letter = sender.letter(tenant)
    host.give((letter.data, ELSEWHERE))
    lose_all(host, "lprp_tenants")
    host.pass_ms(10)
    sent = host.give((tenant.packet(Command.HEARTBEAT).data, AT_HOME))

    assert letter.data in [packet.data for _, packet in sent]
    assert host.store.damaged("lprp_tenants") == [DamagedRow("lprp_tenants", tenant.public, key_is_good=True)]
    assert keys(host, "lprp_tenants") == [tenant.public]  # written anew, so the next start knows it


def test_nothing_from_before_is_accepted_for_a_damaged_lease():
    """The newest time of the tenant is lost, so every packet of before the start counts as a replay."""
    host, tenant, _ = friends()
    old = tenant.packet(Command.HEARTBEAT)
    host.pass_ms(10)
    lose_all(host, "lprp_tenants")
    answers = host.give((old.data, ELSEWHERE))
    host.pass_ms(10)

    assert answers == []
    assert Command.HEARTBEAT_ANSWER in commands(tenant.say(Command.HEARTBEAT))


def test_damaged_whitelist_can_be_set_anew_without_work():
    """Nobody is on it until then: senders work, as for any tenant without a list."""
    host, tenant, sender = friends()
    lose_all(host, "lprp_whitelists")
    host.pass_ms(10)
    tenant.say(Command.HEARTBEAT)
    answers = host.give((sender.letter(tenant).data, ELSEWHERE))

    assert Command.RELAY_ACCEPTED not in [packet.command for _, packet in answers]
    assert commands(tenant.toggle(sender.public)) == [Command.WHITELIST_DONE]


def test_number_of_a_damaged_bundle_is_not_used_again():
    """Its bitmap may be left, and would mark the packets of another bundle as done."""
    host, tenant, sender = friends()
    host.give((sender.letter(tenant).data, ELSEWHERE))
    [lost] = keys(host, "lprp_packets")
    lose_all(host, "lprp_packets")
    host.pass_ms(10)
    host.give((sender.letter(tenant).data, ELSEWHERE))

    assert lost not in keys(host, "lprp_packets")
    assert len(keys(host, "lprp_packets")) == 1
