"""NODE-ACCESS as clients see it: who is not admitted reads a sentence, and is not left waiting."""

import asyncio

import pytest

from tests.server.build import key_pair
from tests.server.build_node import configured, serving
from waystation import bhumi, merk, strata, tls
from waystation.core.errors import WaystationError
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.bhumi import Disconnected
from waystation.sdk.errors import RelayUnreachableError, RequestRefusedError
from waystation.sdk.strata.relay import RelayClient

FRIEND, STRANGER = key_pair(7), key_pair(8)
SAYS = "does not admit you (not on its list, or banned)"
PATIENCE_S = 20


async def visit(tmp_path, look, **settings):
    """Return what ``look`` returns of the listeners of a node for one friend."""
    settings = {"access__allow": FRIEND.public.hex(), "merk__ws": "127.0.0.1:0", "strata__ws": "127.0.0.1:0"} | settings
    home = tmp_path / "node"
    async with asyncio.timeout(PATIENCE_S), serving(home, configured(home, **settings)) as (server, _):
        return await look(server.operations.status()["listeners"])


@pytest.mark.parametrize("listener", ["bhumi_plain", "bhumi"])
def test_bhumi_device_is_told(tmp_path, listener):
    """Its identity is refused after HELLO, by a close: the event has the sentence, and so has what listening raises."""

    async def look(urls):
        ends = []
        context = tls(tmp_path / "node" / "tls" / "ca.pem") if listener == "bhumi" else None
        async with bhumi.open(tmp_path / "stranger", urls[listener], tls=context, on_event=ends.append) as client:
            with pytest.raises(RelayUnreachableError) as refused:
                await client.serve(lambda _request: "ok")
        return [str(refused.value), *(event.reason for event in ends if isinstance(event, Disconnected))]

    said = asyncio.run(visit(tmp_path, look, bhumi__plain="127.0.0.1:0", bhumi__tls="127.0.0.1:0"))

    assert [SAYS in sentence for sentence in said] == [True], said


def test_bhumi_device_that_keeps_trying_says_why(tmp_path):
    """Each try has its event with the sentence: the operator may admit the device later."""

    async def look(urls):
        ends = asyncio.Queue()
        open_client = bhumi.open(tmp_path / "new", urls["bhumi_plain"], on_event=ends.put_nowait, keep_trying=True)
        async with open_client as client:
            listening = asyncio.create_task(client.serve(lambda _request: "ok"))
            said = [(await ends.get()).reason for _ in range(2)]
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return said

    said = asyncio.run(visit(tmp_path, look, bhumi__plain="127.0.0.1:0"))

    assert [SAYS in sentence for sentence in said] == [True, True], said


def test_strata_author_is_told(tmp_path):
    """A packet is refused with the sentence, not unknown, and who reads is not left waiting."""

    async def look(urls):
        said = []
        async with RelayClient(urls["strata"], identity=Identity.of(STRANGER)) as client:
            with pytest.raises(RequestRefusedError) as refused:
                await client.post({"type": "POST", "text": "hello"})
            said.append(str(refused.value))
            with pytest.raises(RequestRefusedError) as refused:
                async for _ in client.subscribe():
                    pass
            said.append(str(refused.value))
        return said

    said = asyncio.run(visit(tmp_path, look))

    assert [SAYS in sentence for sentence in said] == [True, True], said


def test_strata_over_several_relays_is_told(tmp_path):
    """The face that people use says the same, for what is sent and for what is read."""

    async def look(urls):
        async with strata.open(tmp_path / "stranger", urls["strata"]) as client:
            sent = await client.send({"type": "POST", "text": "hello"})
            with pytest.raises(WaystationError) as refused:
                async for _ in client.messages():
                    pass
        return [str(refused.value), *map(str, sent.failures.values())]

    said = asyncio.run(visit(tmp_path, look))

    assert [SAYS in sentence for sentence in said] == [True, True], said


def test_merk_client_is_told(tmp_path):
    """Opening fails with the sentence."""

    async def look(urls):
        merk.create_keys(tmp_path / "stranger")
        with pytest.raises(WaystationError) as refused:
            async with merk.open(tmp_path / "stranger", urls["merk"], only=True):
                pass
        return str(refused.value)

    assert SAYS in asyncio.run(visit(tmp_path, look))
