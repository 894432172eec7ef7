"""Laws of a tenant against the real host machine on a UDP port."""

import asyncio
import contextlib
import dataclasses

import pytest

from tests.sdk.lprp.build import EASY, NOBODY, QUICK, Events, HostServer, run, take, until
from waystation.core.errors import HostError
from waystation.sdk.errors import HomeBusyError, RelayUnreachableError
from waystation.sdk.lprp import (
    HostAnswered,
    HostUrl,
    LeaseDoubted,
    LeaseGranted,
    LeaseRefused,
    LeaseRefusedError,
    LprpSender,
    LprpTenant,
    StoreFailed,
    WorkEnded,
)
from waystation.sdk.lprp import tenant as lprp_tenant


def tenant(tmp_path, server, name="alice", **options):
    """Return a tenant of a server that does not wait long."""
    return LprpTenant(tmp_path / name, server.host, settings=QUICK, **options)


def sender(tmp_path, server, name="bob", **options):
    """Return a sender to the tenants of a server."""
    return LprpSender(tmp_path / name, server.host, settings=QUICK, **options)


def test_lease_is_worked_for_once_and_held_afterwards(tmp_path):
    """The first start does the work, the second one shows the lease by a heartbeat; the host has one tenant."""
    first, second = Events(), Events()

    async def scenario():
        async with HostServer() as server:
            async with tenant(tmp_path, server, on_event=first) as alice:
                before = alice.status()
            async with tenant(tmp_path, server, on_event=second) as alice:
                return before, alice.status(), server.tenant(alice.public_key)

    before, after, view = run(scenario)

    assert first.of_type(WorkEnded) and first.of_type(LeaseGranted)
    assert second.of_type(HostAnswered) and not second.of_type(WorkEnded, LeaseGranted)
    assert before.lease_until_ms == after.lease_until_ms
    assert (after.is_doubted, after.waiting_count, view["state"]) == (False, 0, "active")


def test_stranger_works_friend_does_not(tmp_path):
    """A stranger's message costs work; on the whitelist it costs none; off it again it does."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            stranger = await bob.send(alice.public_key, "one")
            await alice.allow(bob.public_key)
            friend = await bob.send(alice.public_key, "two")
            await alice.disallow(bob.public_key)
            former = await bob.send(alice.public_key, "three")
            return [each.hashes > 0 for each in (stranger, friend, former)], await take(alice, 3), alice.whitelist()

    worked, messages, whitelist = run(scenario)

    assert worked == [True, False, True]
    assert sorted(message.text for message in messages) == ["one", "three", "two"]
    assert whitelist == frozenset()


def test_message_says_who_wrote_it_and_that_it_was_sealed(tmp_path):
    """Sender, time and id come with the message; a raw packet is not called sealed."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            sent = await bob.send(alice.public_key, "sealed")
            await bob.send(alice.public_key, b"\xff raw", seal=False)
            messages = await take(alice, 2)
            heard = b"".join(server.heard)
            return sent, bob.public_key, sorted(messages, key=lambda message: message.sealed), heard

    sent, bob_key, (raw, sealed), heard = run(scenario)

    assert (raw.data, raw.text, raw.sealed) == (b"\xff raw", None, False)
    assert (sealed.text, sealed.sealed, sealed.id) == ("sealed", True, sent.message_id)
    assert raw.sender == sealed.sender == bob_key
    assert abs(sealed.received_ms - sealed.sent_ms) < 10_000
    assert b"\xff raw" in heard and b"sealed" not in heard


def test_sleeping_tenant_gets_its_queue_when_it_wakes(tmp_path):
    """What was accepted while nobody listened comes at the next start, each once, and the queue is empty."""
    texts = [f"letter {number}" for number in range(40)]

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
            sent = [await bob.send(key, text) for text in texts]
            waiting = server.queue(key)
            async with tenant(tmp_path, server) as alice:
                messages = await take(alice, len(texts))
                await until(lambda: not server.queue(key))
                return sent, waiting, messages

    sent, waiting, messages = run(scenario)

    assert all(each.ok for each in sent)
    assert waiting == len(texts)
    assert sorted(message.text for message in messages) == sorted(texts)


def test_message_that_is_not_done_comes_again_and_a_done_one_never(tmp_path):
    """A client that goes down between a message and its done gets it again, with the same id, and no other twice."""

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                await alice.allow(bob.public_key)
                for text in ("done", "crash"):
                    await bob.send(alice.public_key, text)
                    async with contextlib.aclosing(alice.messages()) as messages:
                        first = await anext(messages)
                        if text == "done":
                            await first.done()
            async with tenant(tmp_path, server) as alice:
                again = await take(alice)
                await bob.send(alice.public_key, "last")
                return first, again + await take(alice)

    first, later = run(scenario)

    assert [message.text for message in later] == ["crash", "last"]
    assert later[0].id == first.id


def test_asking_for_the_next_message_finishes_the_one_before(tmp_path):
    """A loop that goes on is done with what it had; one that is left is not, and the next loop begins there."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            await alice.allow(bob.public_key)
            for text in ("a", "b", "c"):
                await bob.send(alice.public_key, text)
            came = []
            async with contextlib.aclosing(alice.messages()) as messages:
                async for message in messages:
                    came.append(message.text)
                    if message.text == "b":
                        break
            waiting = alice.status().waiting_count
            return came, waiting, [message.text for message in await take(alice, 2)]

    assert run(scenario) == (["a", "b"], 2, ["b", "c"])


def test_restart_between_receive_and_confirm(tmp_path):
    """A client that went down with a packet on its disk and no 802 sent tells it once and confirms it then."""

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
                # The process dies after the commit and before the confirmation: nothing of that turn leaves any more.
                alice._inbox._confirm = lambda _: None
                await bob.send(key, "once")
                (kept,) = await take(alice)
            waiting = server.queue(key)
            events = Events()
            async with tenant(tmp_path, server, on_event=events) as alice:
                await until(lambda: not server.queue(key))
                await bob.send(key, "next")
                return kept.text, waiting, [message.text for message in await take(alice)]

    assert run(scenario) == ("once", 1, ["next"])


def test_restart_of_the_host_loses_nothing(tmp_path):
    """Lease, whitelist and queue of a host survive its restart; the tenant notices nothing but a delay."""

    async def scenario():
        server = HostServer()
        async with server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
            for number in range(20):
                await bob.send(key, str(number))
        async with server, tenant(tmp_path, server) as alice, sender(tmp_path, server) as bob:
            queue = server.queue(key)
            sent = await bob.send(key, "after")
            return queue, sent.hashes, sorted(message.text for message in await take(alice, 21))

    queue, hashes, texts = run(scenario)

    assert (queue > 0, hashes) == (True, 0)
    assert texts == sorted([*map(str, range(20)), "after"])


def test_parts_of_a_message_survive_a_restart_of_the_tenant(tmp_path):
    """A message of which the tenant has half before it goes down is whole after it has come back, and comes once."""

    async def scenario():
        async with HostServer() as server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
                payloads = bob._sealed(b"x" * 3_000, key, b"i" * 16)
                for payload in payloads[:5]:
                    await bob.send(key, payload, seal=False)
                await until(lambda: not server.queue(key))
            async with tenant(tmp_path, server) as alice:
                for payload in payloads[5:]:
                    await bob.send(key, payload, seal=False)
                (message,) = await take(alice)
                again = await bob.send(key, b"x" * 3_000, message_id=b"i" * 16)
                await bob.send(key, "end")
                return message, again, [each.text for each in await take(alice)]

    message, again, later = run(scenario)

    assert (message.data, message.id) == (b"x" * 3_000, b"i" * 16)
    assert again.ok
    assert later == ["end"]


def test_full_inbox_leaves_mail_at_the_host(tmp_path, monkeypatch):
    """A program that does not read keeps so much and no more; the rest waits at the host, and comes later."""
    monkeypatch.setattr("waystation.sdk.lprp.mail.INBOX_COUNT_MAX", 3)

    async def scenario():
        server = HostServer(retries=50)
        async with server, sender(tmp_path, server) as bob, tenant(tmp_path, server) as alice:
            await alice.allow(bob.public_key)
            for number in range(6):
                await bob.send(alice.public_key, str(number))
            await until(lambda: alice.status().waiting_count == 3)
            queue = server.queue(alice.public_key)
            return queue, sorted(message.text for message in await take(alice, 6))

    queue, texts = run(scenario)

    assert queue == 3
    assert texts == list("012345")


def test_second_tenant_of_a_folder_is_refused_and_a_sender_is_not(tmp_path):
    """One program listens with an identity; sending works beside it, and the sentence says so."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice:
            with pytest.raises(HomeBusyError, match="sending, and changing the whitelist, work beside it"):
                await tenant(tmp_path, server).__aenter__()
            async with sender(tmp_path, server, "alice") as beside:
                sent = await beside.send(alice.public_key, "to myself")
                (message,) = await take(alice)
                return sent.ok, message.sender == alice.public_key

    assert run(scenario) == (True, True)


def test_whitelist_that_another_program_changes_goes_to_the_host(tmp_path, monkeypatch):
    """A wish written beside a running tenant is carried out by it, and noted as agreed."""
    monkeypatch.setattr(lprp_tenant, "LOOK_S", 0.02)

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server), sender(tmp_path, server, "alice") as beside:
            beside.state.change_whitelist(server.host.key, [b"f" * 32])
            await until(lambda: beside.state.whitelist(server.host.key).agreed is not None)
            return beside.state.whitelist(server.host.key).agreed, server.tenant(beside.public_key)["whitelist"]

    assert run(scenario) == (frozenset({b"f" * 32}), 1)


def test_sender_with_work_beside_a_tenant_makes_it_show_where_it_is(tmp_path, monkeypatch):
    """After work was done from another port, the tenant sends a heartbeat at once instead of after 25 seconds."""
    monkeypatch.setattr(lprp_tenant, "LOOK_S", 0.02)
    events = Events()

    async def scenario():
        server, others = HostServer(), contextlib.AsyncExitStack()
        async with server, others, tenant(tmp_path, server, on_event=events) as alice:
            bob = await others.enter_async_context(tenant(tmp_path, server, "bob"))
            seen = len(events.of_type(HostAnswered))
            async with sender(tmp_path, server, "alice") as beside:
                sent = await beside.send(bob.public_key, "hello")
            await events.until(HostAnswered, count=seen + 1)
            return sent.hashes > 0, alice.status().is_doubted

    assert run(scenario) == (True, False)


def test_renewal_gives_a_later_lease(tmp_path):
    """A lease that is asked for anew ends later, on the disk too."""

    async def scenario():
        async with HostServer() as server, tenant(tmp_path, server) as alice:
            before = alice.status().lease_until_ms
            renewed = await alice.renew()
            return before, renewed, alice.state.lease(server.host.key)

    before, renewed, kept = run(scenario)

    assert renewed.until_ms > before
    assert kept == renewed


def test_closed_host_refuses_a_lease(tmp_path):
    """A host that takes no newcomers is an error with its reason; a patient tenant goes on trying."""
    events = Events()

    async def scenario():
        async with HostServer(leases="closed") as server:
            with pytest.raises(LeaseRefusedError, match="closed to newcomers"):
                await tenant(tmp_path, server).__aenter__()
            async with tenant(tmp_path, server, keep_trying=True, on_event=events):
                await events.until(LeaseRefused)

    run(scenario)


@pytest.mark.parametrize("host", [NOBODY, HostUrl(b"w" * 32, "127.0.0.1", 0)], ids=["nobody", "wrong key"])
def test_silent_host_is_told_soon(tmp_path, monkeypatch, host):
    """Nobody there, or somebody with another key: both are silence, and an error within seconds."""
    monkeypatch.setattr(lprp_tenant, "ANSWER_S", 0.3)

    async def scenario():
        async with HostServer() as server:
            place = host if host.port else HostUrl(host.key, host.host, server.host.port)
            with pytest.raises(RelayUnreachableError, match=r"does not answer.*its key"):
                await LprpTenant(tmp_path / "alice", place, settings=QUICK).__aenter__()

    run(scenario)


def test_host_that_goes_silent_is_doubted_and_found_again(tmp_path):
    """Three heartbeats without an answer tell; the socket is made anew, and a host that is back is heard."""
    events = Events()
    settings = type(QUICK)(retry_ms=20, heartbeat_ms=100, work_first_bits=4)

    async def scenario():
        server = HostServer(**EASY)
        async with server:
            alice = LprpTenant(tmp_path / "alice", server.host, settings=settings, on_event=events)
            await alice.__aenter__()
        await events.until(LeaseDoubted)
        count = len(events.of_type(HostAnswered, LeaseGranted))
        async with server:
            await events.until(HostAnswered, LeaseGranted, count=count + 1)
            doubted = alice.status().is_doubted
            await alice.aclose()
            return doubted

    assert run(scenario) is False


def test_message_that_the_disk_refuses_is_not_confirmed(tmp_path):
    """It is reported once, the host keeps the message, and the tenant goes on."""
    events = Events()

    async def scenario():
        async with (
            HostServer() as server,
            tenant(tmp_path, server, on_event=events) as alice,
            sender(tmp_path, server) as bob,
        ):
            await alice.allow(bob.public_key)
            with alice.state.transaction():
                alice.state.run("DROP TABLE inbox")
            sent = await bob.send(alice.public_key, "hello")
            (failed,) = await events.until(StoreFailed)
            return sent.ok, server.queue(alice.public_key), failed.reason, alice.whitelist() == {bob.public_key}

    ok, queue, reason, lives = run(scenario)

    assert (ok, queue, lives) == (True, 1, True)
    assert "lprp.db" in reason


def test_closing_ends_the_iteration_and_who_waits(tmp_path):
    """A closed tenant gives no more messages, and whoever waits for the host is told."""

    async def scenario():
        async with HostServer() as server:
            alice = await tenant(tmp_path, server).__aenter__()
            listening = asyncio.ensure_future(take(alice))
        waiting = asyncio.ensure_future(alice.allow(b"f" * 32))
        renewing = asyncio.ensure_future(alice.renew())
        await asyncio.sleep(0)
        await alice.aclose()
        await alice.aclose()
        return await asyncio.gather(listening, waiting, renewing, return_exceptions=True)

    heard, allowed, renewed = run(scenario)

    assert heard == []
    assert isinstance(allowed, HostError) and isinstance(renewed, HostError)


@pytest.mark.slow
def test_many_long_messages_at_once_arrive_once_each_also_over_a_restart(tmp_path):
    """Thirty messages of 28 packets, all under way together; the tenant restarts in the middle, and nothing is lost."""

    async def scenario():
        got = []
        async with HostServer() as server, sender(tmp_path, server) as bob:
            async with tenant(tmp_path, server) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
                sending = asyncio.gather(*(insist(bob, key, f"{number:04}".ljust(8_000, "x")) for number in range(30)))
                await until(lambda: alice._mail.parts.parts_count >= 100)
            async with tenant(tmp_path, server) as alice:
                taking = asyncio.ensure_future(note_all(alice, got))
                await sending
                await until(lambda: len(got) >= 30)
                await until(lambda: server.queue(key) == 0)
                status = alice.status()
                taking.cancel()
                return got, status.waiting_count, alice._mail.parts.parts_count

    async def note_all(alice, got):
        async for message in alice.messages():
            await message.done()
            got.append(message.text[:4])

    async def insist(bob, key, text):
        sent = await bob.send(key, text)
        while not sent.ok:  # the mailbox may be full while nobody reads it
            sent = await bob.send(key, text, message_id=sent.message_id)

    got, waiting, parts = run(scenario)

    assert sorted(got) == [f"{number:04}" for number in range(30)]
    assert (waiting, parts) == (0, 0)


def test_lease_is_renewed_after_three_quarters_of_what_the_address_says(tmp_path):
    """At a host of short leases, named with them, the second lease comes before the first is over."""
    events = Events()

    async def scenario():
        async with HostServer(lease_ms=2_000) as server:
            host = dataclasses.replace(server.host, lease_ms=2_000)
            async with LprpTenant(tmp_path / "alice", host, settings=QUICK, on_event=events) as alice:
                (first,) = events.of_type(LeaseGranted)
                await until(lambda: len(events.of_type(LeaseGranted)) == 2)
                return first, events.of_type(LeaseGranted)[1], server.tenant(alice.public_key)["state"]

    first, second, state = run(scenario)

    assert first.until_ms - first.asked_ms == 2_000
    assert first.asked_ms + 1_400 <= second.asked_ms < first.until_ms
    assert state == "active"


def test_lease_of_before_lasts_as_long_as_the_address_says_now(tmp_path):
    """Who learns later how long leases last is not left with what was guessed when it was granted."""

    async def scenario():
        async with HostServer() as server:
            async with tenant(tmp_path, server) as alice:
                before = alice.status().lease_until_ms
            host = dataclasses.replace(server.host, lease_ms=3_600_000)
            async with LprpTenant(tmp_path / "alice", host, settings=QUICK) as alice:
                return before, alice.status().lease_until_ms, alice.state.lease(host.key)

    before, after, kept = run(scenario)

    assert after == kept.until_ms == kept.asked_ms + 3_600_000 < before
