"""Laws of sdk.merk.relays: which relay, when again, and what a hostile one gets."""

import asyncio

import pytest

from tests.sdk.merk.build import ALICE, BOB, NODE, NOWHERE, OTHER_NODE, Events, RelayServer, ScriptedServer, client
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import CONFIRMATION, MessageType, ServerEntry
from waystation.protocols.merk.messages import Servers as Told
from waystation.sdk.errors import HostileRelayError, RelayUnreachableError
from waystation.sdk.merk import relays
from waystation.sdk.merk.relays import HOSTILE_RETRIES_MAX, ServersLearnt
from waystation.sdk.merk.servers import Servers
from waystation.sdk.relay_list import Connected, Disconnected


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(20):
            return await scenario()

    return asyncio.run(bounded())


def challenge(content=b"\x80" * 32, **header):
    """Return a challenge."""
    return wire.encode_frame(MessageType.HANDSHAKE, content, **header)


def test_proved_relay_is_told_and_pinned():
    """The relay's key is told with whether it is proved, and is pinned to its address."""
    events, servers = Events(), Servers()

    async def scenario():
        async with RelayServer() as relay:
            servers.add(relay.url)
            async with client(relay, servers=servers, on_event=events) as merk:
                return merk.relay == relay.url, servers.get(relay.url).key

    at_relay, pinned = run(scenario)

    assert at_relay
    assert pinned == NODE.public
    (connected,) = events.of_type(Connected)
    assert (connected.server, connected.authenticated) == (NODE.public, True)


def test_own_key_is_advertised_after_each_connection():
    """Others find our agreement key at whatever relay we are."""

    async def scenario():
        async with RelayServer() as relay, client(relay):
            await eventually(lambda: relay.of_kind(MessageType.NODE_INFO)[1:], "the advert")
            await relay.cut()
            await eventually(lambda: relay.connects_count == 2 and len(adverts(relay)) == 2, "the second advert")
            return adverts(relay)

    found = run(scenario)

    assert {(each.key, each.agreement_key) for each in found} == {(ALICE.signing.public, ALICE.agreement_public)}


def adverts(relay):
    """Return the adverts that a relay got."""
    infos = [wire.decode_info(frame[120:]) for frame in relay.of_kind(MessageType.NODE_INFO)]
    return [info for info in infos if type(info).__name__ == "KeyAdvert"]


def test_next_server_when_the_first_is_out_of_reach():
    """A round goes through the list without a pause; only when nobody is left is there one."""
    events = Events()

    async def scenario():
        async with RelayServer() as relay, client(relay, urls=[NOWHERE, relay.url], on_event=events) as merk:
            return merk.relay == relay.url

    assert run(scenario)
    (missed,) = events.of_type(Disconnected)
    assert (missed.relay, missed.up_s, missed.retry_s) == (NOWHERE, None, 0.0)


def test_first_server_is_preferred_again_after_a_break():
    """When a connection ends the round begins anew, so the favourite comes first."""
    events = Events()

    async def scenario():
        async with RelayServer(OTHER_NODE) as second:
            async with RelayServer() as favourite:
                port = favourite.port
            urls = [favourite.url, second.url]
            async with client(second, urls=urls, on_event=events), RelayServer(port=port):
                await second.cut()
                await events.until(Connected, count=2)
        return [event.server for event in events.of_type(Connected)]

    assert run(scenario) == [OTHER_NODE.public, NODE.public]


def test_servers_of_the_list_follow_those_given_unless_only_these_are_wanted():
    """Fallback is the list's; ``only`` keeps to what the user named."""
    events = Events()

    async def scenario():
        async with RelayServer() as relay:
            servers = Servers()
            servers.add(relay.url)
            async with client(relay, urls=NOWHERE, servers=servers) as merk:
                fell_back = merk.relay == relay.url
            with pytest.raises(RelayUnreachableError, match="nobody listens"):
                async with client(relay, urls=NOWHERE, servers=servers, only=True, on_event=events):
                    pass
            return fell_back

    assert run(scenario)
    assert {event.relay for event in events.of_type(Disconnected)} == {NOWHERE}


def test_no_server_at_all_is_told():
    """Without an address there is nothing to try, and nobody waits for it."""

    async def scenario():
        with pytest.raises(RelayUnreachableError, match="no relay is known"):
            async with client(None, urls=[]):
                pass

    run(scenario)


def test_told_servers_are_learnt_and_used():
    """What a relay tells is in the list behind its own address, and serves when the relay is gone."""
    events, servers = Events(), Servers()

    async def scenario():
        async with RelayServer(OTHER_NODE) as other:
            told = Told((ServerEntry(OTHER_NODE.public, other.url), ServerEntry(b"k" * 32, "nonsense")))

            def script(frame):
                if frame.kind == MessageType.HANDSHAKE:
                    return [wire.encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=NODE.public)]
                return [wire.encode_info_frame(told, NODE.public)] if frame.payload == b"\x02" else []

            async with ScriptedServer([challenge()], script) as relay:
                servers.add(relay.url)
                merk = client(relay, servers=servers, on_event=events, extensions=False)
                merk.start()
                await events.until(ServersLearnt)
            await events.until(Connected, count=2)
            await merk.aclose()
            return events.of_type(ServersLearnt)[0].addresses == (other.url,)

    assert run(scenario)
    assert [server.added for server in servers.in_order()] == [True, False]
    assert events.of_type(Connected)[-1].server == OTHER_NODE.public


def test_servers_are_asked_for_again_and_again(monkeypatch):
    """The list is polled while the connection stands."""
    monkeypatch.setattr(relays, "SERVERS_POLL_S", 0.005)

    async def scenario():
        async with RelayServer() as relay, client(relay):
            await eventually(lambda: sum(frame[120:] == b"\x02" for frame in relay.frames) >= 3, "three questions")

    run(scenario)


@pytest.mark.parametrize("first", [1, 2, 3, 0x10])
def test_hostile_challenge_is_tried_three_times_again_and_never_signed(first):
    """A relay that asks for signed text gets four connections and no signature; then it is left alone for good."""
    events = Events()

    async def scenario():
        async with ScriptedServer([challenge(bytes([first]) * 32)]) as relay:
            merk = client(relay, on_event=events)
            with pytest.raises(HostileRelayError, match="could be misused"):
                async with merk:
                    pass
            return relay.connects_count, relay.got

    connects_count, got = run(scenario)

    assert connects_count == 1 + HOSTILE_RETRIES_MAX
    assert got == []
    assert events.of_type(HostileRelayError)


def test_hostile_relay_gives_way_to_the_next_and_ends_the_iteration_alone():
    """Others of the list are used; when there is none, ``messages`` and ``send`` say why."""

    async def scenario():
        async with ScriptedServer([challenge(b"\x01" * 32)]) as hostile, RelayServer() as relay:
            async with client(relay, urls=[hostile.url, relay.url]) as merk:
                found = merk.relay == relay.url
            alone = client(hostile)
            alone.start()
            with pytest.raises(HostileRelayError):
                async for _ in alone.messages():
                    pass
            with pytest.raises(HostileRelayError):
                await alone.send(BOB.signing.public, "x")
            await alone.aclose()
            return found

    assert run(scenario)


def test_honest_challenge_that_looked_hostile_once_is_answered_at_the_next_try():
    """One unlucky challenge costs one connection."""

    async def scenario():
        unlucky = [True]

        def script(_frame):
            return [wire.encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=NODE.public)]

        class Unlucky(ScriptedServer):
            async def talk(self, peer, connection):
                self.greeting = [challenge(b"\x02" * 32 if unlucky.pop() else b"\x80" * 32)]
                unlucky.append(False)
                await super().talk(peer, connection)

        async with Unlucky(script=script) as relay, client(relay, extensions=False):
            return relay.connects_count

    assert run(scenario) == 2


def test_wrong_relay_is_not_used():
    """Another key at a pinned address: no connection, and a sentence that says how to take it."""
    events, servers = Events(), Servers()

    async def scenario():
        async with RelayServer() as relay:
            servers.add(relay.url)
            servers.pin(relay.url, OTHER_NODE.public)
            with pytest.raises(RelayUnreachableError, match="remove the server from the list"):
                async with client(relay, servers=servers, on_event=events):
                    pass
            return adverts(relay)

    assert run(scenario) == []
    assert events.of_type(Connected) == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (4401, "did not accept our key"),
        (4409, "another program connected"),
        (1013, "has no room"),
        (1003, "this is no MERK relay; is the path right?"),
        (3999, "status 3999"),
    ],
)
def test_end_of_a_connection_is_told_in_words(status, sentence):
    """Who reads the event knows what to do."""
    events = Events()

    async def scenario():
        async with ScriptedServer(close=status) as relay:
            merk = client(relay, on_event=events)
            merk.start()
            (ended, *_) = await events.until(Disconnected)
            await merk.aclose()
            return ended.reason

    assert sentence in run(scenario)


def test_relay_that_breaks_the_protocol_is_left():
    """A malformed frame is told with its refusal, and the client tries again."""
    events = Events()

    async def scenario():
        async with ScriptedServer([b"nonsense"]) as relay:
            merk = client(relay, on_event=events)
            merk.start()
            found = await events.until(Disconnected, count=2)
            await merk.aclose()
            return found[0].reason

    assert "broke the protocol (short)" in run(scenario)


def test_pauses_grow_up_to_the_cap():
    """A relay that is not there is tried again for ever, after pauses that chance spreads."""
    events = Events()

    async def scenario():
        merk = client(None, urls=NOWHERE, on_event=events)
        merk.start()
        found = await events.until(Disconnected, count=6)
        await merk.aclose()
        return [event.retry_s for event in found]

    pauses = run(scenario)

    assert 0.005 <= pauses[0] <= 0.01
    assert all(0.005 <= pause <= 0.05 for pause in pauses[3:])


def test_send_waits_for_a_connection_and_no_longer():
    """Without a relay the caller hears so after its time, and at once when the client is closed."""

    async def scenario():
        merk = client(None, urls=NOWHERE)
        merk.start()
        with pytest.raises(RelayUnreachableError, match=r"no relay within 0\.01 s"):
            await merk.send(BOB.signing.public, "x", timeout_s=0.01)
        sending = asyncio.create_task(merk.send(BOB.signing.public, "x"))
        await asyncio.sleep(0)
        await merk.aclose()
        with pytest.raises(RelayUnreachableError, match="closed"):
            await sending

    run(scenario)


def test_address_that_is_none_is_refused():
    """At once, not at the first try."""
    with pytest.raises(LocalError):
        client(None, urls=["ws://ok", "nonsense"])


def test_second_connection_of_a_key_takes_over():
    """The older client hears why; it does not fight at full speed."""
    events = Events()

    async def scenario():
        async with RelayServer() as relay, client(relay, on_event=events), client(relay) as second:
            (ended, *_) = await events.until(Disconnected)
            return ended.reason, second.relay is not None

    reason, _ = run(scenario)

    assert "another program connected with the same key" in reason
