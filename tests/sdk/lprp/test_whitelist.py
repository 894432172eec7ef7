"""Laws of the whitelist between a folder and its host."""

import asyncio

import pytest

from tests.sdk.lprp.build import QUICK, HostServer, run
from waystation.core.errors import LocalError
from waystation.protocols.lprp.client.events import RequestOutcome, WhitelistFailed
from waystation.sdk.lprp import LprpTenant, WhitelistFailedError

KEYS = [number.to_bytes(32, "big") for number in range(1, 31)]


def in_tenant(tmp_path, scenario):
    """Run a scenario with a server and a tenant of it."""

    async def with_tenant():
        async with HostServer() as server, LprpTenant(tmp_path, server.host, settings=QUICK) as alice:
            return await scenario(server, alice)

    return run(with_tenant)


def test_many_keys_take_several_steps_and_arrive(tmp_path):
    """Thirty keys, more than one update holds, are with the host when the call returns."""

    async def scenario(server, alice):
        await alice.allow(*KEYS)
        return server.tenant(alice.public_key)["whitelist"], await alice.check_whitelist(), alice.whitelist()

    assert in_tenant(tmp_path, scenario) == (30, True, frozenset(KEYS))


def test_wishes_at_the_same_time_are_all_met(tmp_path):
    """A wish that another overtakes is met with it; nobody waits for ever."""

    async def scenario(server, alice):
        await asyncio.gather(*(alice.allow(key) for key in KEYS[:8]), alice.disallow(KEYS[0]))
        return server.tenant(alice.public_key)["whitelist"], alice.whitelist()

    assert in_tenant(tmp_path, scenario) == (7, frozenset(KEYS[1:8]))


def test_set_and_clear(tmp_path):
    """A list can be set as a whole, to nothing too."""

    async def scenario(server, alice):
        await alice.set_whitelist(KEYS[:3])
        three = server.tenant(alice.public_key)["whitelist"]
        await alice.set_whitelist([])
        return three, server.tenant(alice.public_key)["whitelist"], alice.status().whitelist

    assert in_tenant(tmp_path, scenario) == (3, 0, frozenset())


def test_list_of_another_home_is_found_to_differ_and_put_right(tmp_path):
    """A host that knows another list than ours is found out by asking, and brought into step."""

    async def scenario():
        async with HostServer() as server:
            async with LprpTenant(tmp_path, server.host, settings=QUICK) as alice:
                await alice.allow(*KEYS[:3])
                alice.state.change_whitelist(server.host.key, remove=KEYS[:1])
                alice.state.agree_whitelist(server.host.key, frozenset(KEYS[1:3]))
            async with LprpTenant(tmp_path, server.host, settings=QUICK) as alice:
                before = await alice.check_whitelist()
                await alice.allow(KEYS[5])
                return before, await alice.check_whitelist(), server.tenant(alice.public_key)["whitelist"]

    assert run(scenario) == (False, True, 3)


def test_refusal_of_the_host_is_an_error_and_the_wish_is_kept(tmp_path):
    """Whoever waits is told, and the folder knows what was wished and why it failed."""

    async def scenario(server, alice):
        waiting = [asyncio.ensure_future(work) for work in (alice.allow(KEYS[0]), alice.check_whitelist())]
        await asyncio.sleep(0)
        alice._on_event(WhitelistFailed(RequestOutcome.REFUSED))
        told = await asyncio.gather(*waiting, return_exceptions=True)
        return told, alice.state.whitelist(server.host.key)

    told, wish = in_tenant(tmp_path, scenario)

    assert all(isinstance(each, WhitelistFailedError) for each in told)
    assert (wish.wanted, wish.failure) == (frozenset(KEYS[:1]), str(told[0]))


def test_impossible_wish_is_refused_at_once(tmp_path):
    """Too many keys, or what is none, never reach the host."""

    async def scenario(server, alice):
        for keys in ([number.to_bytes(32, "big") for number in range(1, 258)], ["abc"]):
            with pytest.raises(LocalError):
                await alice.allow(*keys)
        return alice.whitelist()

    assert in_tenant(tmp_path, scenario) == frozenset()
