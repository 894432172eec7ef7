import contextlib

import pytest

from tests.sdk.strata.build import ALICE, RELAY_2, RelayServer, ScriptedServer
from tests.sdk.strata.test_relay import scenario
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.errors import RequestRefusedError
from waystation.sdk.strata.merge import merge
from waystation.sdk.strata.relay import RelayClient

ME = Identity.of(ALICE)


def refuse(message):
    """Answer as a relay that nobody may read."""
    if message["type"] != "SUBSCRIBE":
        return []
    name = message["subscription_id"]
    return [{"type": "ERROR", "ref": name, "subscription_id": name, "code": "unauthorized", "reason": "no"}]


@scenario
async def test_every_relay_is_heard_to_its_end():
    """Each packet comes from whoever has it, and the stream ends with the last of them."""
    async with (
        RelayServer() as one,
        RelayServer(RELAY_2) as two,
        RelayClient(one.url, identity=ME) as first,
        RelayClient(two.url, identity=ME) as second,
    ):
        await first.post({"type": "POST", "text": "1"})
        await second.post({"type": "POST", "text": "2"})
        both = [each.subscribe(follow=False) for each in (first, second)]
        async with contextlib.aclosing(merge(both)) as arrivals:
            read = [delivery.packet.body["content"]["text"] async for delivery in arrivals]

    assert sorted(read) == ["1", "2"]


@scenario
async def test_one_refusal_is_no_failure_and_all_are():
    """A relay that refuses is left out; when nobody is left, its reason is raised."""
    async with (
        RelayServer() as one,
        ScriptedServer(refuse) as two,
        RelayClient(one.url) as good,
        RelayClient(two.url) as bad,
    ):
        left = [each async for each in merge([good.subscribe(follow=False), bad.subscribe(follow=False)])]
        with pytest.raises(RequestRefusedError):
            _ = [each async for each in merge([bad.subscribe(follow=False)])]

    assert left == []
