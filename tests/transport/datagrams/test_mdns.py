import asyncio
import ipaddress
import itertools

import pytest
from zeroconf import DNSService

from tests.transport.datagrams.build_mdns import (
    HAS_MULTICAST,
    LOOPBACK,
    SERVICE,
    Watch,
    announcing_process,
    records,
    say,
    say_records,
)
from waystation.core.errors import HostError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.transport.datagrams.mdns import SERVICES_MAX, Mdns, lan_interfaces, own_host

RELAYS = [KeyPair.from_seed(bytes([0x40 + number]) * 32).public for number in range(4)]
GOOD = {"name": "good", "relay_id": RELAYS[0]}
HERE = "tls://127.0.0.1:4444"


def run(scenario):
    """Run a scenario where multicast works, else prove that the network is silent and that this is no crash."""
    return asyncio.run(scenario() if HAS_MULTICAST else silent())


async def silent():
    """Open and announce where there is no multicast: it says why, or nothing is ever found."""
    try:
        async with Watch() as watch:
            await watch.mdns.announce(RELAYS[0], "tls", "127.0.0.1", 4444)
            assert watch.told == []
    except HostError as error:
        assert str(error).startswith("mDNS ")  # noqa: PT017 - it may be raised, and then says what is missing


def test_three_relays_find_each_other_and_part():
    """Each hears of the two others, not of itself; a goodbye is heard at once."""

    async def scenario():
        async with Watch() as one, Watch() as two, Watch() as three:
            watches = [one, two, three]
            for watch, key, scheme in zip(watches, RELAYS, ("tls", "tcp", "tls"), strict=False):
                await watch.mdns.announce(key, scheme, "127.0.0.1", 4440 + watches.index(watch))
            for watch in watches:
                await watch.until(lambda watch=watch: len(watch.live()) == 2)
            found = [watch.live() for watch in watches]
            await one.mdns.close()
            await two.until(lambda: RELAYS[0] not in two.live())
            return found, two.live()

    outcome = run(scenario)

    places = dict(zip(RELAYS, ("tls://127.0.0.1:4440", "tcp://127.0.0.1:4441", "tls://127.0.0.1:4442"), strict=False))
    others = [{key: place for key, place in places.items() if key != own} for own in RELAYS[:3]]
    assert outcome == (None if not HAS_MULTICAST else (others, {RELAYS[2]: places[RELAYS[2]]}))


def test_relay_that_dies_is_gone_by_its_ttl_and_found_again():
    """Without a goodbye it is gone when nobody answers for it any more, though its pointer lives; then it is back."""

    async def scenario():
        async with Watch() as watch:
            process = await announcing_process(RELAYS[1], 4445, 2)
            await watch.until(lambda: [what for what, _ in watch.told].count("found") >= 3)  # twice prolonged
            prolonged = list(watch.told)
            process.kill()
            await process.wait()
            await watch.until(lambda: not watch.live())
            again = await announcing_process(RELAYS[1], 4445, 2)
            await watch.until(watch.live)
            again.kill()
            await again.wait()
            return prolonged, watch.live()

    outcome = run(scenario)

    if outcome is not None:
        prolonged, live = outcome
        assert {what for what, _ in prolonged} == {"found"}
        assert all(0 < relay.ttl_s <= 2 for _, relay in prolonged)
        assert live == {RELAYS[1]: "tls://127.0.0.1:4445"}


ID = encode_id52(RELAYS[1]).encode()
BAD = {
    "no text": {"text": []},
    "no id": {"text": [b"v=1"]},
    "empty id": {"text": [b"id=", b"v=1"]},
    "id without a value": {"text": [b"id", b"v=1"]},
    "no version": {"text": [b"id=" + ID]},
    "another version": {"text": [b"id=" + ID, b"v=2"]},
    "short id": {"text": [b"id=" + ID[:-1], b"v=1"]},
    "long id": {"text": [b"id=" + ID + b"0", b"v=1"]},
    "id of bytes": {"text": [b"id=" + b"\xff" * 52, b"v=1"]},
    "id of other letters": {"text": [b"id=" + b"z" * 52, b"v=1"]},
    "no port": {"relay_id": RELAYS[1], "port": 0},
    "public address": {"relay_id": RELAYS[1], "host": "8.8.8.8"},
    "another network": {"relay_id": RELAYS[1], "host": "192.168.1.1"},
    "no address": {"relay_id": RELAYS[1], "host": "0.0.0.0"},
    "group": {"relay_id": RELAYS[1], "host": "224.0.0.251"},
    "broadcast address": {"relay_id": RELAYS[1], "host": "127.255.255.255"},
    "name of the network": {"relay_id": RELAYS[1], "host": "127.0.0.0"},
}


@pytest.mark.parametrize("bad", list(BAD.values()), ids=list(BAD))
def test_service_that_is_no_relay_of_this_network_is_not_reported(bad):
    """A text without an id, or with none that is one, another version, no port, a foreign address: nothing."""

    async def scenario():
        async with Watch() as watch:
            say({"name": "bad"} | bad, GOOD)
            await watch.until(watch.told.__len__)
            return watch.live()

    assert run(scenario) == ({RELAYS[0]: HERE} if HAS_MULTICAST else None)


def test_text_of_a_plain_listener_and_unknown_items():
    """``s=tcp`` says that there is no TLS; what is not known is passed over."""

    async def scenario():
        async with Watch() as watch:
            items = [b"more=\xff\x00", b"s=tcp", b"id=" + encode_id52(RELAYS[2]).upper().encode(), b"v=1", b"flag"]
            say({"name": "plain", "text": items})
            await watch.until(watch.told.__len__)
            return watch.live()

    assert run(scenario) == ({RELAYS[2]: "tcp://127.0.0.1:4444"} if HAS_MULTICAST else None)


def test_thousand_services_are_bounded_and_counted():
    """No more than the limit is remembered, whatever is announced; what was there before stays."""

    async def scenario():
        async with Watch() as watch:
            say(GOOD)
            await watch.until(watch.told.__len__)
            seen = watch.mdns
            numbers = itertools.count()
            while seen.ignored < 1_000 - SERVICES_MAX:  # datagrams of a flood get lost: others follow
                batch = list(itertools.islice(numbers, 25))
                before = len(seen) + seen.ignored
                say(*({"name": f"s{number}", "relay_id": RELAYS[3], "port": 1 + number % 60_000} for number in batch))
                await watch.until(lambda before=before: len(seen) + seen.ignored > before)
            return len(seen), len({relay.address for _, relay in watch.told}), RELAYS[0] in watch.live()

    outcome = run(scenario)

    if outcome is not None:
        remembered, addresses, is_first_live = outcome
        assert remembered == SERVICES_MAX
        assert addresses <= SERVICES_MAX
        assert is_first_live


def test_service_that_moves_is_reported_gone_and_found():
    """A new port is a new address; the old one is taken back first."""

    async def scenario():
        async with Watch() as watch:
            say(GOOD)
            await watch.until(watch.told.__len__)
            say(GOOD | {"port": 5555})
            await watch.until(lambda: len(watch.told) > 2)
            return [(what, relay.address) for what, relay in watch.told]

    moved = [("found", HERE), ("gone", HERE), ("found", "tls://127.0.0.1:5555")]
    assert run(scenario) == (moved if HAS_MULTICAST else None)


def test_nameless_service_is_asked_about_and_forgotten():
    """A pointer that nobody explains keeps its place for a few seconds only."""

    async def scenario():
        async with Watch() as watch:
            say_records(records(**GOOD)[:1])
            await watch.until(lambda: len(watch.mdns) == 1)
            await watch.until(lambda: len(watch.mdns) == 0)
            return watch.told

    assert run(scenario) == ([] if HAS_MULTICAST else None)


@pytest.mark.parametrize("place", ["its host", "its name", "the part before its name"])
def test_name_that_cannot_be_asked_for_harms_nobody(place):
    """A label of bytes that are no text grows when it is read; others are asked about all the same."""
    label = "x" * 63
    name = {"its host": "odd", "its name": label, "the part before its name": f"{label}.odd"}[place]

    def say_odd(ttl_s):
        pointer, service, *_ = records(name, relay_id=RELAYS[1], ttl_s=ttl_s)
        host = DNSService(service.name, 33, 0x8001, ttl_s, 0, 0, 1, f"{label}.local.")
        say_records([pointer, host], lambda packet: packet.replace(label.encode(), b"\xff" * 63))

    async def scenario():
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with Watch() as watch:
            say_odd(120)
            await watch.until(lambda: len(watch.mdns) + watch.mdns.ignored > 0)
            say_records(records(**GOOD)[:3])
            twice_asked = asyncio.get_running_loop().time() + 1.5
            await watch.until(lambda: asyncio.get_running_loop().time() > twice_asked)
            say_odd(0)
            say_records(records(**GOOD)[3:])
            await watch.until(watch.told.__len__)
            return errors, [relay.address for _, relay in watch.told]

    assert run(scenario) == (([], [HERE]) if HAS_MULTICAST else None)


def test_key_that_another_machine_announces_is_a_sentence():
    """Two nodes with one key: the second is told, and goes on looking."""

    async def scenario():
        async with Watch() as one, Watch() as two:
            await one.mdns.announce(RELAYS[0], "tls", "127.0.0.1", 4441)
            with pytest.raises(HostError, match=encode_id52(RELAYS[0])):
                await two.mdns.announce(RELAYS[0], "tls", "127.0.0.1", 4442)
            return True

    assert run(scenario) is (True if HAS_MULTICAST else None)


def test_machine_without_a_network_is_told_so():
    """No interface, and one that is not there: a sentence, and closing is harmless."""

    async def scenario():
        for interfaces, reason in (([], "no IPv4 network"), ([ipaddress.IPv4Interface("192.0.2.77/24")], "mDNS")):
            mdns = Mdns(lambda _: None, lambda _: None, interfaces, service=SERVICE)
            with pytest.raises(HostError, match=reason):
                await mdns.open()
            await mdns.close()

    asyncio.run(scenario())


def test_interfaces_follow_the_listener():
    """Loopback for what listens there; every other network for a wildcard; nothing for what is not ours."""
    everywhere = lan_interfaces()

    assert [str(each) for each in LOOPBACK] == ["127.0.0.1/8"]
    assert [str(each) for each in lan_interfaces("127.0.0.2")] == ["127.0.0.2/8"]
    assert lan_interfaces("::") == everywhere
    assert not any(each.is_loopback for each in everywhere) or everywhere == LOOPBACK
    assert lan_interfaces("203.0.113.9") == lan_interfaces("::1") == []


def test_own_address_in_the_network_of_an_asker():
    """The one whose network the asker is in, or none."""
    ours = [ipaddress.IPv4Interface("10.1.0.5/24"), ipaddress.IPv4Interface("10.2.0.5/24")]

    assert own_host(ours, "10.2.0.77") == "10.2.0.5"
    assert own_host(ours, "10.3.0.1") == ""
