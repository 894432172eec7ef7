"""Tenants and senders of the SDK with a host that shares no code with them, and with people of other programs there."""

import asyncio

import pytest

from tests.sdk.lprp.build import QUICK, run, take
from tests.server.build import eventually
from tests.server.lprp import stand_in as other
from tests.server.lprp.stand_in import Host, Party
from waystation.sdk.lprp import HostUrl, LeaseRefusedError, LprpSender, LprpTenant, Outcome

SEED = bytes(range(32))
STRANGER = bytes(31) + b"\1"


def url_of(host):
    """Return where the SDK finds a stand-in host."""
    return HostUrl(host.key, *host.address)


def party(host, seed=STRANGER):
    """Return somebody of another program."""
    return Party(seed, host.key, host.address)


async def until_empty(host):
    """Wait until a host has no mail left."""
    await eventually(lambda: not any(tenancy.queue for tenancy in host.tenants.values()), "the end of all mail")


def test_stranger_and_friend_by_way_of_a_foreign_host(tmp_path):
    """Lease, work, whitelist, mail and its confirmation are understood by a host written from the text alone."""

    async def scenario():
        async with Host(SEED) as host:
            alice = LprpTenant(tmp_path / "alice", url_of(host), settings=QUICK)
            async with alice, LprpSender(tmp_path / "bob", url_of(host), settings=QUICK) as bob:
                sent = [await bob.send(alice.public_key, "for work")]
                demands = len(host.demanded)
                await alice.allow(bob.public_key)
                listed = {bytes(key) for key in host.tenants[alice.public_key].whitelist}
                sent.append(await bob.send(alice.public_key, "as a friend"))
                messages = await take(alice, 2)
                await until_empty(host)
                return host, sent, messages, demands, listed == {bob.public_key}

    host, sent, messages, demands, listed = run(scenario)

    assert [each.outcome for each in sent] == [Outcome.ACCEPTED] * 2
    assert sorted(message.text for message in messages) == ["as a friend", "for work"]
    assert listed
    assert len(host.demanded) == demands  # the friend was not asked for work
    assert host.faults == []


def test_mail_of_another_program_arrives_as_it_is(tmp_path):
    """Payloads of any length that nobody sealed reach the program as they are, with their sender's key."""
    payloads = [b"", b"plain", bytes(range(256)) + bytes(108)]

    async def scenario():
        async with Host(SEED) as host, LprpTenant(tmp_path, url_of(host), settings=QUICK) as alice:
            with party(host) as stranger:
                answers = [(await asyncio.to_thread(stranger.relay, alice.public_key, each))[1] for each in payloads]
                return answers, await take(alice, 3), stranger.key

    answers, messages, key = run(scenario)

    assert answers == [other.ACCEPTED] * 3
    assert sorted(message.data for message in messages) == sorted(payloads)
    assert {message.sender for message in messages} == {key}
    assert not any(message.sealed for message in messages)


def test_tenant_of_another_program_gets_signed_packets(tmp_path):
    """What the SDK sends verifies under its key, is padded, and is confirmed by whoever reads only the seed text."""

    async def scenario():
        async with Host(SEED) as host:
            with party(host) as tenant:
                await asyncio.to_thread(tenant.lease)
                async with LprpSender(tmp_path, url_of(host), settings=QUICK) as bob:
                    sent = await bob.send(tenant.key, "hello")
                    mail = await asyncio.to_thread(tenant.receive)
                    tenant.confirm(mail)
                    await until_empty(host)
                    return sent, mail, bob.public_key, host

    sent, mail, key, host = run(scenario)

    assert sent.outcome is Outcome.ACCEPTED
    assert (mail.first, len(mail.payload) >= 64) == (key, True)
    assert host.confirmed == [mail.signature]
    assert host.faults == []


def test_host_that_hears_two_of_three_datagrams(tmp_path):
    """What a host does not hear is said again until it does."""

    async def scenario():
        async with Host(SEED, swallow=lambda number: number % 3 == 1) as host:
            alice = LprpTenant(tmp_path / "alice", url_of(host), settings=QUICK)
            async with alice, LprpSender(tmp_path / "bob", url_of(host), settings=QUICK) as bob:
                await alice.allow(bob.public_key)
                sent = await asyncio.gather(*(bob.send(alice.public_key, f"{number}") for number in range(20)))
                return sent, await take(alice, 20)

    sent, messages = run(scenario)

    assert {each.outcome for each in sent} == {Outcome.ACCEPTED}
    assert sorted(int(message.text) for message in messages) == list(range(20))


def test_closed_host_is_told_from_a_silent_one(tmp_path):
    """A host that answers 404 gives no lease, and the program hears why."""

    async def scenario():
        async with Host(SEED) as host:
            host.leases_open = False
            async with LprpTenant(tmp_path, url_of(host), settings=QUICK):
                pass

    with pytest.raises(LeaseRefusedError):
        run(scenario)
