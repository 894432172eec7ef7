import contextlib
import json

import pytest

from tests.protocols.strata.build import NOW
from tests.sdk.strata.build import ALICE, RELAY_2, RelayServer, ScriptedServer
from tests.sdk.strata.test_relay import scenario
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.errors import RelayUnreachableError, RequestRefusedError
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


@scenario
async def test_relay_that_dies_in_the_middle_ends_its_reading():
    """Its half is there, the other relay is read to its end, and alone it is an error."""
    packets = [ME.packet({"type": "POST", "text": f"{number}"}, timestamp=NOW) for number in range(3)]

    class Dying(ScriptedServer):
        async def _serve(self, connection):
            await connection.recv()
            for packet in packets:
                served = {"type": "EVENT", "subscription_id": "w1", "packet": packet.body, "received_at": NOW}
                await connection.send(json.dumps(served | {"cursor": "c"}))
            self._server.close(close_connections=False)
            await connection.close()

    for with_another in (True, False):
        async with (
            Dying(None) as dying,
            RelayServer() as other,
            RelayClient(dying.url, retry_first_s=0.01) as one,
            RelayClient(other.url, identity=ME) as two,
        ):
            await two.post({"type": "POST", "text": "other"})
            read, both = [], [one.subscribe(follow=False), two.subscribe(follow=False)]
            async with contextlib.aclosing(merge(both if with_another else both[:1])) as arrivals:
                with (
                    contextlib.nullcontext() if with_another else pytest.raises(RelayUnreachableError, match="was lost")
                ):
                    async for delivery in arrivals:
                        read.append(delivery.packet.body["content"]["text"])  # noqa: PERF401 - kept when it raises

        assert sorted(read) == ["0", "1", "2", *(["other"] if with_another else [])]


@scenario
async def test_fault_of_a_reader_reaches_the_caller():
    """Whatever it is; nobody waits for a reader that has ended."""

    class Broken:
        async def __aenter__(self):
            raise TypeError("broken")

        async def __aexit__(self, *_):
            """Never entered."""

    async with RelayServer() as one, RelayClient(one.url) as good:
        with pytest.raises(TypeError, match="broken"):
            _ = [each async for each in merge([good.subscribe(), Broken()])]
