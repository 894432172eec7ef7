"""Laws of a message of many packets on its way."""

import asyncio

import pytest

from tests.sdk.lprp.build import QUICK, HostServer, run, take
from waystation.core.errors import HostError
from waystation.sdk.lprp import LprpSender, LprpTenant, Outcome, delivery

LONG = "x" * 20_000


def in_pair(tmp_path, scenario, **settings):
    """Run a scenario with a server, a tenant and its friend."""

    async def with_pair():
        async with HostServer(**settings) as server:
            alice = LprpTenant(tmp_path / "alice", server.host, settings=QUICK)
            async with alice, LprpSender(tmp_path / "bob", server.host, settings=QUICK) as bob:
                await alice.allow(bob.public_key)
                return await scenario(server, alice, bob)

    return run(with_pair)


def test_first_packet_finds_out_whether_the_others_are_worth_sending(tmp_path):
    """A long message to nobody costs one packet."""

    async def scenario(server, alice, bob):
        heard = len(server.heard)
        sent = await bob.send(bob.public_key, LONG)
        return sent, len(server.heard) - heard

    sent, heard = in_pair(tmp_path, scenario)

    assert (sent.outcome, sent.accepted_count) == (Outcome.REFUSED, 0)
    assert sent.parts_count > 60 and heard < 4


def test_full_mailbox_is_tried_again_until_it_is_read(tmp_path, monkeypatch):
    """A stranger's message of more packets than it may have in a mailbox gets through while the tenant reads."""
    monkeypatch.setattr(delivery, "REFUSED_AGAIN_S", (0.05,) * 100)

    async def scenario(server, alice, bob):
        await alice.disallow(bob.public_key)
        sent = await bob.send(alice.public_key, "y" * 7_000)
        return sent, (await take(alice))[0].text

    sent, text = in_pair(tmp_path, scenario)

    assert (sent.outcome, text) == (Outcome.ACCEPTED, "y" * 7_000)
    assert sent.accepted_count == sent.parts_count > 16


def test_mailbox_that_stays_full_refuses_in_the_end(tmp_path, monkeypatch):
    """When nobody reads, the message is refused, and how much was taken is told."""
    monkeypatch.setattr(delivery, "REFUSED_AGAIN_S", (0.0,))

    async def scenario():
        async with HostServer() as server, LprpSender(tmp_path / "bob", server.host, settings=QUICK) as bob:
            async with LprpTenant(tmp_path / "alice", server.host, settings=QUICK) as alice:
                key = alice.public_key
            return await bob.send(key, "y" * 7_000)

    sent = run(scenario)

    assert sent.outcome is Outcome.REFUSED
    assert 1 <= sent.accepted_count <= 16 < sent.parts_count


@pytest.mark.slow
def test_time_that_ends_before_a_mailbox_has_room_ends_as_refused(tmp_path):
    """A host that has answered all along is not called silent."""

    async def scenario():
        async with HostServer() as server, LprpSender(tmp_path / "bob", server.host, settings=QUICK) as bob:
            async with LprpTenant(tmp_path / "alice", server.host, settings=QUICK) as alice:
                key = alice.public_key
            return await bob.send(key, "y" * 7_000, timeout_s=2.0)

    sent = run(scenario)

    assert sent.outcome is Outcome.REFUSED
    assert 1 <= sent.accepted_count <= 16


def test_closing_ends_all_packets_with_one_error(tmp_path):
    """Many packets that fail alike are one error for the program."""

    async def scenario(server, alice, bob):
        told = []
        sending = asyncio.ensure_future(bob.send(alice.public_key, LONG, on_progress=told.append))
        while not told:
            await asyncio.wait([sending], timeout=0.001)
        await bob.aclose()
        with pytest.raises(HostError, match="the sender was closed"):
            await sending

    in_pair(tmp_path, scenario)
