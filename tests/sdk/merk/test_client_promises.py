"""What the Python client promises, each with the relay, stranger or fault against which it holds."""

import asyncio

import pytest

from tests.protocols.merk.build import as_original_sends
from tests.sdk.merk.build import (
    ALICE,
    BOB,
    CAROL,
    NODE,
    NOWHERE,
    OTHER_NODE,
    Events,
    OriginalServer,
    RelayServer,
    client,
    first,
)
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.crypto.signing import sign
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import MessageDropped
from waystation.protocols.merk.messages import MessageType, ServerEntry
from waystation.protocols.merk.payload.contents import Extended, Receipt, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, encrypted_frame, open_frame
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.merk import SEEN_FILE, MessageRead, SeenDatabase
from waystation.sdk.merk import relays as merk_relays
from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.merk.recipients import Recipients
from waystation.sdk.merk.servers import Servers
from waystation.sdk.relay_list import Connected

A, B, C = (keys.signing.public for keys in (ALICE, BOB, CAROL))
NOT_SIGNABLE = [b"\x01abc", b"\x02", b"\x03x", b"\x10x", b"merk-keys/1", bytes(32)]


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(30):
            return await scenario()

    return asyncio.run(bounded())


async def say(relay, frame):
    """Let the relay deliver a frame of its own making to the newest connection; it needs nobody's key for that."""
    await list(relay.connections.values())[-1].send(frame)


def legacy_for(recipient, text, sender=ALICE):
    """Return an encrypted frame in the original's form."""
    return encrypted_frame(
        sender.signing,
        recipient.signing.public,
        recipient.agreement_public,
        Text(text),
        ephemeral_secret=b"\x0e" * 32,
        nonce=bytes(12),
    )


# Ids and outcomes


@pytest.mark.parametrize("mode", Mode)
def test_message_has_one_id_on_both_sides(mode):
    """What ``send`` returns is what the recipient's message is called, in every mode."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            sent = await alice.send(B, "hi", mode=mode)
            return sent.id, (await first(bob))[0].id

    ours, theirs = run(scenario)

    assert ours == theirs
    assert len(ours) == 16


def test_legacy_message_has_one_id_on_both_sides():
    """To a client of the original the id is made of the payload."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB, extensions=False) as bob:
            sent = await alice.send(B, "hi", agreement_key=BOB.agreement_public)
            (message,) = await first(bob)
            return sent.id == message.id, message.auth, await sent.read(0.0)

    assert run(scenario) == (True, Auth.LEGACY, False)


def test_file_in_parts_has_one_id_on_both_sides():
    """The id of a file is that of its transfer, and its receipt names it."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            sending = asyncio.create_task(alice.send(B, bytes(300_000), name="a.bin"))
            (message,) = await first(bob)
            sent = await sending
            return sent.id == message.id, sent.outcome, await sent.read(10)

    assert run(scenario) == (True, Outcome.ACCEPTED, True)


def test_read_is_said_when_the_program_takes_a_message_and_not_before():
    """A message that only waits in the recipient's client is accepted and not read."""
    news = Events()

    async def scenario():
        async with RelayServer() as relay, client(relay, on_event=news) as alice, client(relay, BOB) as bob:
            sent = await alice.send(B, "hi")
            await eventually(lambda: bob.waiting_count == 1, "the message")
            before = await sent.read(0.3)
            await first(bob)
            return sent, before, await sent.read(10), await news.until(MessageRead)

    sent, before, after, (read,) = run(scenario)

    assert (sent.outcome, before, after) == (Outcome.ACCEPTED, False, True)
    assert read == MessageRead(B, sent.id)


def test_read_is_never_said_without_the_recipients_signature():
    """A relay, or another client, that sends a receipt of its own for a message changes nothing."""

    async def scenario():
        async with RelayServer() as relay, client(relay, BOB), client(relay, CAROL) as carol, client(relay) as alice:
            sent = await alice.send(B, "hi")
            await carol._send_receipt(A, Receipt((sent.id,)))
            await eventually(lambda: len(relay.of_kind(MessageType.ENCRYPTED_DATA)) == 2, "Carol's receipt")
            return await sent.read(0.3)

    assert run(scenario) is False


def test_client_may_send_no_receipts():
    """Who does not want senders to know says so."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB, receipts=False) as bob:
            sent = await alice.send(B, "hi")
            await first(bob)
            return await sent.read(0.5)

    assert run(scenario) is False


# Authors


def test_stranger_cannot_have_a_message_answered_as_his_own():
    """Carol's signature around Alice's ciphertext reaches no program of Bob's, so that no bot quotes it to her."""
    news = Events()

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB, on_event=news) as bob:
            await alice.send(B, "PIN of the safe: 4711")
            await first(bob)
            (stolen,) = (wire.decode_frame(each).payload for each in relay.of_kind(MessageType.ENCRYPTED_DATA)[:1])
            frame = wire.encode_frame(
                MessageType.ENCRYPTED_DATA, stolen, sender=C, signature=sign(CAROL.signing, stolen)
            )
            await list(relay.connections.values())[1].send(frame)
            (dropped,) = await news.until(MessageDropped)
            assert dropped == MessageDropped(Refusal.CANNOT_DECRYPT, C, wire.frame_hash(frame))
            return bob.waiting_count

    assert run(scenario) == 0


def test_legacy_form_of_an_able_sender_is_not_taken():
    """Once Alice's advert is known, her name under the original's form is refused, also after a restart."""
    recipients, news = Recipients(), Events()

    async def scenario():
        async with RelayServer() as relay, client(relay):
            async with client(relay, BOB, recipients=recipients) as bob:
                await bob.send(A, "hello")
            async with client(relay, BOB, recipients=recipients, on_event=news):
                frame = as_original_sends(legacy_for(BOB, "not hers"), ALICE.signing)
                await say(relay, frame)
                return frame, await news.until(MessageDropped)

    frame, dropped = run(scenario)

    assert dropped == [MessageDropped(Refusal.DOWNGRADED, A, wire.frame_hash(frame))]


def test_relay_that_hides_an_advert_gets_no_legacy_form():
    """Who was once known as able is written to in the bound form, whatever the key directory says later."""
    recipients = Recipients()
    recipients.learn(wire.make_advert(BOB.signing, BOB.agreement_public, 1))

    async def scenario():
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice:
            await alice.send(B, "hi", agreement_key=BOB.agreement_public)
            (frame,) = relay.of_kind(MessageType.ENCRYPTED_DATA)
            return open_frame(frame, BOB)

    opened = run(scenario)

    assert opened.auth is Auth.BOUND
    assert isinstance(opened.content, Extended)


def test_replay_after_a_restart_is_dropped(tmp_path):
    """The same frame again, to a program that was started anew with its folder, is not handed out a second time."""
    news = Events()

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB, seen=SeenDatabase(tmp_path / SEEN_FILE)) as bob:
                await alice.send(B, "hi")
                taken = await first(bob)
            frame = relay.of_kind(MessageType.ENCRYPTED_DATA)[0]
            async with client(relay, BOB, seen=SeenDatabase(tmp_path / SEEN_FILE), on_event=news) as bob:
                await say(relay, frame)
                assert await news.until(MessageDropped) == [
                    MessageDropped(Refusal.DUPLICATE, A, wire.frame_hash(frame))
                ]
                return len(taken), bob.waiting_count

    assert run(scenario) == (1, 0)


def test_message_that_the_program_never_took_may_come_again(tmp_path):
    """What was lost with the program is new after a restart: it was never read."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB, seen=SeenDatabase(tmp_path / SEEN_FILE)) as bob:
                sent = await alice.send(B, "hi")
                await eventually(lambda: bob.waiting_count == 1, "the message")
            frame = relay.of_kind(MessageType.ENCRYPTED_DATA)[0]
            async with client(relay, BOB, seen=SeenDatabase(tmp_path / SEEN_FILE)) as bob:
                await say(relay, frame)
                (message,) = await first(bob)
                return message.text, await sent.read(10)

    assert run(scenario) == ("hi", True)


# What originals would misread


@pytest.mark.parametrize("data", NOT_SIGNABLE)
def test_signed_bytes_that_an_original_would_misread_are_refused(data):
    """Nothing leaves, altered or not; to a client of ours, and encrypted, the very same bytes arrive."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB, extensions=False) as bob:
            with pytest.raises(LocalError, match="signed bytes"):
                await alice.send(B, data, mode=Mode.SIGNED)
            left = relay.of_kind(MessageType.SIGNED_DATA)
            await alice.send(B, data, agreement_key=BOB.agreement_public)
            async with client(relay, CAROL) as carol:
                await alice.send(C, data, mode=Mode.SIGNED)
                return left, [(await first(each))[0].content.data for each in (bob, carol)]

    assert run(scenario) == ([], [data, data])


def test_original_relay_holds_back_who_sends_faster_than_it_reads(monkeypatch):
    """What is given to an original counts as under way until it has left, so that the queue has a bound."""
    monkeypatch.setattr("waystation.sdk.merk.outgoing.UNDER_WAY_BYTES_MAX", 4_000_000)

    async def scenario():
        async with Stuck() as relay, client(relay) as alice:
            sending = [asyncio.create_task(alice.send(B, bytes(2_000_000), mode=Mode.PLAIN)) for _ in range(20)]
            await relay.stuck.wait()
            await asyncio.wait(sending, timeout=0.3)
            under_way = len(alice._relays._machine._sent)
            unfinished = sum(not each.done() for each in sending)
            for each in sending:
                each.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            relay.over.set()
            return under_way, unfinished

    under_way, unfinished = run(scenario)

    assert under_way <= 2
    assert unfinished > 10


class Stuck(OriginalServer):
    """An original that stops reading after the handshake."""

    def __init__(self):
        super().__init__()
        self.stuck, self.over = asyncio.Event(), asyncio.Event()

    async def talk(self, peer, connection):
        await connection.send(wire.encode_frame(MessageType.HANDSHAKE, b"\x80" + bytes(31)))
        await connection.recv()
        await connection.send(wire.encode_frame(MessageType.HANDSHAKE, messages.CONFIRMATION, sender=NODE.public))
        connection.transport.pause_reading()
        self.stuck.set()
        await self.over.wait()
        connection.transport.abort()


# Sizes and rates


async def limit(relay, alice, frame_bytes_max):
    """Let the relay say what it takes to the one client that is connected."""
    await say(relay, wire.encode_info_frame(messages.Limits(frame_bytes_max), NODE.public))
    await eventually(lambda: alice._relays.frame_bytes_max == frame_bytes_max, "the limit")


def test_message_too_large_loses_no_other():
    """The relay's limit is known before anything leaves: one bad message beside fifty others costs only itself."""

    async def scenario():
        async with RelayServer(max_frame_bytes=65_536) as relay, client(relay, BOB) as bob, client(relay) as alice:
            await limit(relay, alice, 65_536)
            await alice.agreement_key_of(B)
            sending = [alice.send(B, str(number)) for number in range(50)]
            sending.insert(25, alice.send(B, bytes(100_000)))
            outcomes = [sent.outcome for sent in await asyncio.gather(*sending)]
            return outcomes, len(await first(bob, 50)), relay.connects_count

    outcomes, arrived, connects = run(scenario)

    assert outcomes.pop(25) is Outcome.TOO_LARGE
    assert (set(outcomes), arrived, connects) == ({Outcome.ACCEPTED}, 50, 2)


def test_file_goes_through_a_relay_with_small_frames():
    """Parts are as large as the relay takes."""
    data = bytes(range(256)) * 800

    async def scenario():
        async with RelayServer(max_frame_bytes=65_536) as relay, client(relay, BOB) as bob, client(relay) as alice:
            await limit(relay, alice, 65_536)
            sending = asyncio.create_task(alice.send(B, data, name="a"))
            (message,) = await first(bob)
            return (await sending).outcome, message.content.read_bytes() == data

    assert run(scenario) == (Outcome.ACCEPTED, True)


def test_sends_at_once_stay_below_the_relays_rate():
    """However many are sent side by side, none is refused for the rate."""

    async def scenario():
        async with RelayServer(rate_limits=True) as relay, client(relay) as alice, client(relay, BOB):
            sends = [alice.send(B, str(number), mode=Mode.PLAIN) for number in range(1_300)]
            return {sent.outcome for sent in await asyncio.gather(*sends)}

    assert run(scenario) == {Outcome.ACCEPTED}


# Relays that others name


def test_named_relay_is_used_last_and_only_with_the_key_that_was_named():
    """An address without a key is none, and one whose relay proves another key gets nothing."""
    news = Events()

    async def scenario():
        servers = Servers()
        async with RelayServer(OTHER_NODE) as impostor, RelayServer() as honest:
            named = [ServerEntry(NODE.public, impostor.url), ServerEntry(NODE.public, honest.url)]
            servers.learn(named, learnt_from=honest.url)
            async with client(None, urls=[NOWHERE], servers=servers, on_event=news) as alice:
                return alice.relay == honest.url, [each.relay == honest.url for each in news.of_type(Connected)]

    assert run(scenario) == (True, [True])


def test_client_returns_to_the_users_own_relay(monkeypatch):
    """At a relay that another one named it stays no longer than until its own answers again."""
    monkeypatch.setattr(merk_relays, "RETURN_FIRST_S", 0.05)
    news = Events()

    async def scenario():
        servers = Servers()
        async with RelayServer(OTHER_NODE) as named:
            async with RelayServer() as own:
                url, port = own.url, own.port
            servers.learn([ServerEntry(OTHER_NODE.public, named.url)], learnt_from=named.url)
            async with client(None, urls=[url], servers=servers, on_event=news) as alice:
                away = alice.relay == named.url
                async with RelayServer(port=port):
                    await news.until(Connected, count=2)
                    return away, alice.relay == url

    assert run(scenario) == (True, True)
