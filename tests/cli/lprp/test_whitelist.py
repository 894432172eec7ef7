"""Laws of ``waystation lprp whitelist``, without a terminal; tests/cli/lprp/test_commands.py calls it."""

import asyncio

import pytest

from tests.sdk.lprp.build import NOBODY, QUICK, HostServer, run
from waystation.cli.lprp import whitelist as lprp_whitelist
from waystation.cli.lprp.whitelist import WhitelistAction, change_whitelist, describe_whitelist, show_whitelist
from waystation.core.errors import HostError
from waystation.sdk.lprp import HostUrl, LprpState, LprpTenant, WhitelistWish

A, B = b"a" * 32, b"b" * 32
ELSEWHERE = HostUrl(b"e" * 32, "127.0.0.1", 9)


@pytest.fixture
def state(tmp_path):
    """An open folder."""
    state = LprpState(tmp_path)
    yield state
    state.close()


def test_each_action_changes_the_list_of_the_host(state):
    """Add, remove and clear do what they say, and the host has agreed when they return."""

    async def scenario():
        async with HostServer() as server:
            found = []
            for action, keys in (
                (WhitelistAction.ADD, [A, B]),
                (WhitelistAction.REMOVE, [A]),
                (WhitelistAction.CLEAR, []),
            ):
                tenant = LprpTenant(state.home, server.host, settings=QUICK)
                await change_whitelist(state, server.host, tenant, action, keys)
                wish = state.whitelist(server.host.key)
                found.append((sorted(wish.wanted), wish.agreed == wish.wanted))
            return found, server.tenant(state.identity)["whitelist"]

    assert run(scenario) == ([([A, B], True), ([B], True), ([], True)], 0)


@pytest.mark.parametrize("failure", ["", "the host refuses"])
def test_listener_that_does_not_get_it_done_is_told(state, monkeypatch, failure):
    """A program that listens elsewhere, or is refused, is no endless wait; the wish is kept."""
    monkeypatch.setattr(lprp_whitelist, "_LISTENER_S", 0.3)

    async def scenario():
        async with HostServer() as server, LprpTenant(state.home, server.host, settings=QUICK):
            second = LprpTenant(state.home, ELSEWHERE, settings=QUICK)
            changing = asyncio.ensure_future(change_whitelist(state, ELSEWHERE, second, WhitelistAction.ADD, [A]))
            await asyncio.sleep(0)
            if failure:
                state.fail_whitelist(ELSEWHERE.key, failure)
            with pytest.raises(HostError, match=failure or "has not updated"):
                await changing

    run(scenario)

    assert state.whitelist(ELSEWHERE.key).wanted == {A}


@pytest.mark.parametrize(
    ("wish", "agreed", "said"),
    [
        (WhitelistWish(frozenset(), None, ""), True, "nobody may write without work\n"),
        (WhitelistWish(frozenset({A}), frozenset({A}), ""), True, ""),
        (WhitelistWish(frozenset({A}), None, ""), False, "it is updated when a program listens"),
        (WhitelistWish(frozenset({A}), frozenset(), "too full"), False, "not known to have this list: too full"),
    ],
)
def test_list_is_shown_with_whether_the_host_has_it(capsys, wish, agreed, said):
    """Keys on stdout; what is not agreed, and why, on stderr."""
    document = describe_whitelist(wish, NOBODY)
    show_whitelist(document, as_json=False)
    out, err = capsys.readouterr()

    assert document["agreed"] == agreed
    assert out == "".join(f"{key.hex()}\n" for key in sorted(wish.wanted))
    assert said in err and bool(said) == bool(err)
