"""Laws of leaving messages, against the real host machine on a UDP port."""

import asyncio

import pytest

from tests.sdk.lprp.build import NOBODY, QUICK, Events, HostServer, run, take
from waystation.core.errors import HostError, LocalError
from waystation.sdk.lprp import ClientSettings, HostUnreachable, HostUrl, LprpSender, LprpTenant, Outcome, Working

ENDLESS = {"pow_base_bits_relay": 26}


def sender(tmp_path, server, **options):
    """Return a sender that does not wait long."""
    host = server if isinstance(server, HostUrl) else server.host
    return LprpSender(tmp_path / "bob", host, **({"settings": QUICK} | options))


def tenant(tmp_path, server):
    """Return a tenant that does not wait long."""
    return LprpTenant(tmp_path / "alice", server.host, settings=QUICK)


def test_progress_tells_work_and_packets(tmp_path):
    """Somebody who watches sees the search and every packet that was accepted, up to all of them."""
    told = []

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            sent = await bob.send(alice.public_key, "x" * 1_000, on_progress=told.append)
            return sent, (await take(alice))[0].data

    sent, data = run(scenario)

    assert data == b"x" * 1_000
    assert (sent.parts_count, sent.accepted_count) == (4, 4)
    assert any(progress.work is not None and progress.work.bits >= 4 for progress in told)
    assert [progress.accepted_count for progress in told if progress.work is None][-1] == 4
    assert {progress.parts_count for progress in told} == {4}


def test_recipient_without_a_lease_is_refused(tmp_path):
    """A host says no for somebody it does not know."""

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            return await bob.send(b"\7" * 32, "x", seal=False)

    sent = run(scenario)

    assert (sent.outcome, sent.parts_count, sent.accepted_count) == (Outcome.REFUSED, 1, 0)


def test_nobody_answers(tmp_path):
    """Silence ends after the retransmissions, as what it is."""
    settings = ClientSettings(retry_ms=10, tries=3)

    async def scenario():
        async with sender(tmp_path, NOBODY, settings=settings) as bob:
            return (await bob.send(b"\7" * 32, "x", seal=False)).outcome, bob.connection.complaints

    outcome, complaints = run(scenario)

    assert outcome is Outcome.UNANSWERED
    assert complaints > 0


def test_work_that_is_not_wanted_is_not_done(tmp_path):
    """A sender that does no work is told so at once, and nothing was searched."""
    events = Events()

    async def scenario():
        server = HostServer()
        async with server, tenant(tmp_path, server) as alice:
            bob = await sender(tmp_path, server, works=False, on_event=events).__aenter__()
            sent = await bob.send(alice.public_key, "x")
            await bob.aclose()
            return sent

    sent = run(scenario)

    assert (sent.outcome, sent.hashes) == (Outcome.WORK_FAILED, 0)
    assert not events.of_type(Working)


def test_cancelled_send_stops_its_work(tmp_path):
    """Who cancels gets their processor back: no search goes on."""

    async def scenario():
        events = Events()
        server = HostServer(**ENDLESS)
        async with server, tenant(tmp_path, server) as alice:
            bob = sender(tmp_path, server, on_event=events, settings=ClientSettings(work_first_bits=26))
            await bob.__aenter__()
            sending = asyncio.ensure_future(bob.send(alice.public_key, "x"))
            await events.until(Working)
            sending.cancel()
            await asyncio.wait([sending])
            found = sending.cancelled(), bob._pool.searches_count, bob.connection.machine.sizes()["searching"]
            await bob.aclose()
            return found

    assert run(scenario) == (True, 0, 0)


def test_send_that_takes_too_long_says_whether_it_was_the_work(tmp_path):
    """A time limit during work is work not done; during silence it is no answer."""

    async def scenario():
        async with HostServer(**ENDLESS) as server, tenant(tmp_path, server) as alice:
            bob = await sender(tmp_path, server, settings=ClientSettings(work_first_bits=26)).__aenter__()
            worked = await bob.send(alice.public_key, "x", timeout_s=0.4)
            await bob.aclose()
        async with sender(tmp_path, NOBODY) as bob:
            return worked.hashes > 0, worked.outcome, (await bob.send(alice_key, "x", timeout_s=0.05)).outcome

    alice_key = HostServer().host.key

    assert run(scenario) == (True, Outcome.WORK_FAILED, Outcome.UNANSWERED)


def test_same_id_again_does_not_arrive_twice(tmp_path):
    """A message that is sent again with its id is one message for the recipient."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            await alice.allow(bob.public_key)
            first = await bob.send(alice.public_key, "once")
            again = await bob.send(alice.public_key, "once", message_id=first.message_id)
            other = await bob.send(alice.public_key, "end")
            messages = await take(alice, 2)
            return again.ok, first.message_id == again.message_id != other.message_id, messages

    accepted, same, messages = run(scenario)

    assert accepted and same
    assert [message.text for message in messages] == ["once", "end"]


def test_raw_packet_has_the_id_that_its_recipient_sees(tmp_path):
    """What ``send`` returns and what arrives name the packet alike, and differently each time."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            sent = [await bob.send(alice.public_key, "same", seal=False) for _ in range(2)]
            return [each.message_id for each in sent], [message.id for message in await take(alice, 2)]

    sent, arrived = run(scenario)

    assert sent == arrived
    assert len(set(sent)) == 2


def test_few_long_messages_to_one_recipient_are_under_way_at_once(tmp_path):
    """Of many, eight have begun; short ones, and those to others, do not wait for them."""

    async def scenario():
        async with sender(tmp_path, NOBODY) as bob:
            sending = [asyncio.ensure_future(bob.send(NOBODY.key, "x" * 1_000)) for _ in range(20)]
            await asyncio.sleep(0)
            long_ones = sum(bob.connection.machine.sizes()[name] for name in ("waiting", "in_flight"))
            sending.append(asyncio.ensure_future(bob.send(NOBODY.key, "short")))
            sending.append(asyncio.ensure_future(bob.send(HostServer().host.key, "x" * 1_000)))
            await asyncio.sleep(0)
            all_of_them = sum(bob.connection.machine.sizes()[name] for name in ("waiting", "in_flight"))
            for each in sending:
                each.cancel()
            await asyncio.wait(sending)
            return long_ones, all_of_them

    long_ones, all_of_them = run(scenario)

    assert long_ones == 8
    assert all_of_them > long_ones


def test_work_is_remembered_for_the_next_start(tmp_path):
    """A sender that has learnt how much a host wants begins with that."""

    async def scenario():
        async with HostServer(pow_base_bits_relay=16) as server, tenant(tmp_path, server) as alice:
            bits = []
            for _ in range(2):
                events = Events()
                async with sender(tmp_path, server, on_event=events) as bob:
                    await bob.send(alice.public_key, "x")
                    bits.append([event.progress.bits for event in events.of_type(Working)])
            return bits

    first, second = run(scenario)

    assert (first[0], first) == (4, sorted(first))
    assert second[0] == first[-1] > 4


def test_host_of_before_is_the_default(tmp_path):
    """A folder remembers the host that answered; a new one without any says how to name it."""

    async def scenario():
        async with HostServer() as server:
            async with sender(tmp_path, server) as bob:
                await bob.send(b"\7" * 32, "nobody leases this key", seal=False)
            async with LprpSender(tmp_path / "bob", settings=QUICK) as again:
                known = again.host
            with pytest.raises(LocalError, match="lprp://KEY@host:port"):
                await LprpSender(tmp_path / "new").__aenter__()
            return known == server.host

    assert run(scenario)


def test_host_that_never_answered_is_not_remembered(tmp_path):
    """A mistyped host costs one wait, not one at every later command."""

    async def scenario():
        async with sender(tmp_path, NOBODY) as bob:
            await bob.send(NOBODY.key, "x", seal=False, timeout_s=0.05)
            return bob.state.last_host()

    assert run(scenario) is None


def test_clock_goes_on_over_restarts(tmp_path):
    """Of two programs in turn the second repeats no time of the first, whatever the time of day does meanwhile."""

    async def scenario():
        async with HostServer() as server:
            for now_s in (1_700_000_000.0, 1_699_999_990.0):
                async with sender(tmp_path, server, clock=lambda now_s=now_s: now_s) as bob:
                    await bob.send(b"\7" * 32, "x" * 70, seal=False, timeout_s=0.05)
            return [int.from_bytes(data[64:72], "big") for data in dict.fromkeys(server.heard)]

    times = run(scenario)

    assert times == sorted(set(times))
    assert len(times) == 2


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("x" * 65_537, {}),
        (b"x" * 365, {"seal": False}),
        ("x", {"message_id": b"short"}),
        ("x", {"message_id": b"i" * 16, "seal": False}),
        ("\udcff", {}),
    ],
    ids=["message too long", "packet too long", "wrong id", "id of a raw packet", "no text"],
)
def test_what_cannot_be_sent_is_refused_at_once(tmp_path, content, options):
    """A caller's mistake reaches no host."""

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            with pytest.raises(LocalError):
                await bob.send(server.host.key, content, **options)
            return server.heard

    assert run(scenario) == []


@pytest.mark.parametrize("key", ["abc", b"\1" + bytes(31)], ids=["no key", "small order"])
def test_recipient_that_is_no_key(tmp_path, key):
    """Nothing can be sealed for what is no key, and the sentence says so."""

    async def scenario():
        async with sender(tmp_path, NOBODY) as bob:
            with pytest.raises(LocalError, match="key"):
                await bob.send(key, "x")

    run(scenario)


def test_name_without_an_address_is_an_error(tmp_path):
    """A host that cannot be found is told at the start."""

    async def scenario():
        with pytest.raises(HostError, match=r"host\.invalid"):
            await sender(tmp_path, HostUrl(NOBODY.key, "host.invalid", 1)).__aenter__()

    run(scenario)


def test_name_that_comes_later_is_waited_for(tmp_path):
    """A patient tenant tells that there is no way yet and goes on trying."""
    events = Events()

    async def scenario():
        place = HostUrl(NOBODY.key, "host.invalid", 1)
        async with LprpTenant(tmp_path / "alice", place, keep_trying=True, on_event=events):
            (told,) = await events.until(HostUnreachable)
            return told

    assert "host.invalid" in run(scenario).reason


def test_closing_tells_who_still_sends(tmp_path):
    """A send that was under way when the sender was closed fails; nobody waits for ever."""

    async def scenario():
        bob = await sender(tmp_path, NOBODY).__aenter__()
        sending = asyncio.ensure_future(bob.send(NOBODY.key, "x"))
        await asyncio.sleep(0)
        await bob.aclose()
        await bob.aclose()
        return (await asyncio.gather(sending, return_exceptions=True))[0]

    assert isinstance(run(scenario), HostError)
