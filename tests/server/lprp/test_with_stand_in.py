"""Laws of the host as other people's programs meet it: a tenant and a sender that share no code with it, over UDP."""

from urllib.parse import urlsplit

import pytest

from tests.server.build import NodeProcess
from tests.server.lprp import stand_in as other
from tests.server.lprp.stand_in import PATIENCE_S, Party

LEASE_BITS = 8
SETTINGS = {
    "lprp__udp": "127.0.0.1:0",
    "lprp__pow_base_bits_relay": "6",
    "lprp__pow_base_bits_lease": str(LEASE_BITS),
    "lprp__pow_base_bits_whitelist": "7",
    "lprp__pow_adaptive": "false",
    "lprp__retry_ms": "200",
}
QUIET_S = 0.3


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Give a host that runs for all of this module's tests."""
    process = NodeProcess(tmp_path_factory.mktemp("host"), **SETTINGS).start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def person(node):
    """Give a function that makes a party of the host out of a number."""
    parties = []

    def make(number, at=node):
        place = urlsplit(at.url("lprp"))
        key = bytes.fromhex(at.ready["node"]["public_key"])
        parties.append(Party(number.to_bytes(32, "big"), key, (place.hostname, place.port)))
        return parties[-1]

    yield make
    for party in parties:
        party.socket.close()


def received(tenant, count=0):
    """Confirm what comes, at least ``count`` packets and then until it is quiet; return payloads by signature."""
    came = {}
    while (mail := tenant.receive(PATIENCE_S if len(came) < count else QUIET_S)) is not None:
        tenant.confirm(mail)
        came[mail.signature] = mail.payload
    return came


def test_lease_is_given_for_work(person):
    """Who raises its work after each 401 gets a lease, and is a tenant from then on."""
    tenant = person(1)
    short_by = LEASE_BITS - tenant.bits
    tenant.say(tenant.packet(other.HEARTBEAT))
    before = tenant.hear(QUIET_S)
    answers = [tenant.lease(), tenant.beat()]

    assert before is None
    assert answers == [other.GRANTED, other.ALIVE]
    assert tenant.failures == short_by > 0


def test_stranger_works_for_each_packet(person):
    """Mail of a stranger arrives as it was signed, once its work is done; the next packet costs again."""
    tenant, sender = person(2), person(3)
    tenant.lease()
    first, answer = sender.relay(tenant.key, b"one" + bytes(64))
    again = sender.ask(sender.packet(other.RELAY, b"two" + bytes(64), tenant.key)).command

    assert (answer, again) == (other.ACCEPTED, other.RELAY_WORK)
    assert tenant.receive().data == first


def test_friend_is_let_through(person):
    """A key on the whitelist needs no work, until it is off again."""
    tenant, friend = person(4), person(5)
    tenant.lease()
    listed = tenant.toggle(set(), friend.key)
    answers = [friend.ask(friend.packet(other.RELAY, b"hello" + bytes(64), tenant.key)).command]
    unlisted = tenant.toggle({friend.key}, friend.key)
    answers.append(friend.ask(friend.packet(other.RELAY, b"again" + bytes(64), tenant.key)).command)

    assert (listed, unlisted) == (other.DONE, other.DONE)
    assert answers == [other.ACCEPTED, other.RELAY_WORK]


def test_whitelist_is_compared_and_cleared(person):
    """A comparison tells whether both sides have the same keys, a wrong hash changes nothing, a clear leaves none."""
    tenant, keys = person(6), [bytes([number]) * 32 for number in range(1, 4)]
    tenant.lease()
    answers = [tenant.toggle(set(), *keys), tenant.compare(keys), tenant.compare(keys[:2])]
    answers += [tenant.toggle(set(), keys[0]), tenant.compare(keys), tenant.clear(), tenant.compare([])]

    yes, no = other.DONE, other.DIFFERS
    assert answers == [yes, yes, no, no, yes, yes, yes]


@pytest.mark.parametrize("literally", [False, True], ids=["tenant in front", "host in front, as the text has it"])
def test_confirmed_mail_does_not_come_again(person, literally):
    """Mail is repeated until its tenant says that it has it, with its two keys in either order."""
    tenant, sender = person(7 + literally), person(9)
    tenant.lease()
    data, _ = sender.relay(tenant.key, b"once" + bytes(64))
    first, repeat = tenant.receive(), tenant.receive()
    tenant.confirm(repeat, literally=literally)
    tenant.beat()
    while tenant.receive(QUIET_S) is not None:
        pass  # what was on its way
    tenant.beat()

    assert first.data == repeat.data == data
    assert tenant.receive(QUIET_S) is None


def test_absent_recipient_is_refused(person):
    """Mail for a key without a lease is turned down, and so is mail for the host."""
    sender = person(10)

    assert sender.relay(bytes([7]) * 32, bytes(64))[1] == other.RELAY_REFUSED
    assert sender.relay(sender.host_key, bytes(64))[1] == other.RELAY_REFUSED


def test_short_mail_is_answered_when_it_is_repeated(person):
    """A packet of 144 bytes has not paid for an answer of 208; two of them have."""
    tenant, sender = person(11), person(12)
    sender.socket.close()
    sender.socket = other.socket.socket(other.socket.AF_INET, other.socket.SOCK_DGRAM)
    sender.socket.bind(("127.0.77.1", 0))  # a prefix that nobody has earned anything for
    sender.socket.connect(tenant.socket.getpeername())
    tenant.lease()
    data = sender.packet(other.RELAY, b"", tenant.key)
    sender.say(data)
    first = sender.hear(QUIET_S)
    sender.say(data)
    second = sender.hear()

    assert first is None
    assert second.command == other.RELAY_WORK


def test_mail_waits_for_a_tenant_that_sleeps(person):
    """What was accepted while a tenant was away is there when it speaks again, from wherever it speaks."""
    asleep, sender = person(13), person(14)
    asleep.lease()
    asleep.socket.close()
    sent = [sender.relay(asleep.key, b"%d" % number + bytes(64)) for number in range(3)]
    awake = person(13)
    awake.beat()
    mail = received(awake, 3)

    assert [answer for _, answer in sent] == [other.ACCEPTED] * 3
    assert set(mail) == {data[:64] for data, _ in sent}


def test_journal_tells_what_happened_and_not_to_whom(person, tmp_path):
    """Lease, work, acceptance and delivery are rows without a key, and work for a relay names nobody at all."""
    host = NodeProcess(tmp_path, **SETTINGS).start()
    tenant, sender = person(17, host), person(18, host)
    tenant.lease()
    sender.relay(tenant.key, b"told" + bytes(64))
    tenant.confirm(tenant.receive())
    tenant.beat()
    refused = sender.relay(sender.key, bytes(64))[1]
    code = host.stop()
    rows = [row for row in host.journal() if row["protocol"] == "lprp"]
    once = [row for row in rows if row["kind"] != "refused" and row.get("outcome") != "too_few_bits"]
    told = [(row["kind"], row.get("outcome"), "peer_ref" in row) for row in once]
    text = str(rows)

    assert (refused, code) == (other.RELAY_REFUSED, 0)
    assert told == [
        ("work_judged", "accepted", True),
        ("lease_changed", "granted", True),
        ("work_judged", "accepted", False),
        ("delivery_accepted", None, True),
        ("delivery_finished", "ok", True),
        ("delivery_finished", "offline", True),
    ]
    assert not [key for key in (tenant.key, sender.key) if key[:8].hex() in text]


def test_killed_host_keeps_what_it_promised(person, tmp_path):
    """After SIGKILL lease, whitelist and mail are there, and nothing is asked for twice."""
    host = NodeProcess(tmp_path, **SETTINGS).start()
    tenant, friend = person(15, host), person(16, host)
    tenant.lease()
    tenant.toggle(set(), friend.key)
    data = friend.packet(other.RELAY, b"kept" + bytes(64), tenant.key)
    answer = friend.ask(data).command
    host.kill()
    host.start()
    tenant, friend = person(15, host), person(16, host)
    again = friend.ask(data).command
    alive, same = tenant.beat(), tenant.compare({friend.key})
    mail = received(tenant, 1)
    code = host.stop()

    assert (answer, again, alive, same, code) == (other.ACCEPTED, other.ACCEPTED, other.ALIVE, other.DONE, 0)
    assert mail == {data[:64]: data[144:]}
