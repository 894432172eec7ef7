"""Laws of sdk.merk_client on real sockets, against the relay's own machine and an original one."""

import asyncio
import os

import pytest

from tests.sdk.merk.build import ALICE, BOB, CAROL, Events, OriginalServer, RelayServer, client, first
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.protocols.merk.client.events import MessageDropped
from waystation.protocols.merk.messages import MessageType
from waystation.protocols.merk.payload.contents import Json, Raw, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.payload.transfers import PART_BYTES
from waystation.sdk.errors import FileTooLargeError, KeyChangedError, KeyUnknownError
from waystation.sdk.merk import files as merk_files
from waystation.sdk.merk.download_buffer import FileProgress
from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.merk.recipients import Recipients
from waystation.sdk.relay_list import Connected

A, B, C = (keys.signing.public for keys in (ALICE, BOB, CAROL))


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(20):
            return await scenario()

    return asyncio.run(bounded())


@pytest.mark.parametrize("mode", [Mode.ENCRYPTED, Mode.SIGNED])
def test_every_content_arrives_as_it_was_sent(mode):
    """Text, JSON and bytes come out as what they are, bound to sender and recipient, with time and id."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            outcomes = [
                (await alice.send(B, "gr\u00fc\u00df", mode=mode)).outcome,
                (await alice.send(B.hex(), Json.of({"n": [1, None]}), mode=mode)).outcome,
                (await alice.send(B, b"\x01\x02", mode=mode)).outcome,
            ]
            return outcomes, await first(bob, 3)

    outcomes, messages = run(scenario)

    assert outcomes == [Outcome.DELIVERED] * 3
    assert [each.content for each in messages] == [Text("gr\u00fc\u00df"), Json('{"n":[1,null]}'), Raw(b"\x01\x02")]
    assert {(each.sender, each.mode, each.auth, each.late) for each in messages} == {(A, mode, Auth.BOUND, False)}
    assert len({each.message_id for each in messages}) == 3


def test_encrypted_content_is_not_on_the_wire():
    """Encrypted is what is sent unless somebody asks for less, and the relay sees none of it."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB):
            await alice.send(B, "a secret of some length")
            return relay.frames

    frames = run(scenario)

    assert any(frame[2] == MessageType.ENCRYPTED_DATA for frame in frames)
    assert not any(b"secret" in frame for frame in frames)


def test_plain_message_has_no_type():
    """A plain text arrives as bytes that can be read; who sent it is proved by the header."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            await alice.send(B, "hi", mode=Mode.PLAIN)
            return await first(bob)

    (message,) = run(scenario)

    assert (message.content, message.text) == (Raw(b"hi"), "hi")
    assert (message.mode, message.auth, message.time_ms) == (Mode.PLAIN, Auth.BOUND, None)


def test_equal_messages_both_arrive():
    """What is said twice is meant twice: time and id make the two signed messages differ."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            for _ in range(2):
                await alice.send(B, "hi", mode=Mode.SIGNED)
            return await first(bob, 2)

    assert [each.text for each in run(scenario)] == ["hi", "hi"]


def test_many_messages_at_once_have_an_outcome_each():
    """A hundred sends side by side are a hundred deliveries."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            await alice.agreement_key_of(B)
            outcomes = await asyncio.gather(*(alice.send(B, str(number)) for number in range(100)))
            return [sent.outcome for sent in outcomes], await first(bob, 100)

    outcomes, messages = run(scenario)

    assert set(outcomes) == {Outcome.DELIVERED}
    assert sorted(int(each.text) for each in messages) == list(range(100))


def test_message_to_nobody():
    """A recipient that is nowhere is told as such."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            return (await alice.send(C, "hi", mode=Mode.SIGNED)).outcome

    assert run(scenario) is Outcome.UNKNOWN_TARGET


def test_too_large_message():
    """A frame that the relay does not take is told as too large, whatever became of the connection."""

    async def scenario():
        async with RelayServer(max_frame_bytes=2_000) as relay, client(relay) as alice, client(relay, BOB):
            return (await alice.send(B, bytes(5_000))).outcome

    assert run(scenario) is Outcome.TOO_LARGE


def test_broken_connection_leaves_the_outcome_unknown():
    """When the relay goes between frame and notice nobody can say; the client does not guess."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB):
            await alice.agreement_key_of(B)
            relay.hold.clear()
            sending = asyncio.create_task(alice.send(B, "hi"))
            await eventually(lambda: alice._relays._outcomes, "the frame's departure")
            await relay.cut()
            outcome = (await sending).outcome
            relay.hold.set()
            return outcome

    assert run(scenario) is Outcome.UNKNOWN


def test_callers_who_gave_up_do_not_block_the_others(monkeypatch):
    """Frames whose callers were cancelled still count until their outcome; beyond the limit the next one is told."""
    monkeypatch.setattr("waystation.protocols.merk.client.machine.UNTOLD_MAX", 2)

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB):
            await alice.agreement_key_of(B)
            relay.hold.clear()
            sending = [asyncio.create_task(alice.send(B, str(number))) for number in range(2)]
            await eventually(lambda: len(alice._relays._outcomes) == 2, "the frames' departure")
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            full = (await alice.send(B, "one more")).outcome
            relay.hold.set()
            await eventually(lambda: not alice._relays._outcomes, "the outcomes")
            return full, (await alice.send(B, "again")).outcome

    assert run(scenario) == (Outcome.QUEUE_FULL, Outcome.DELIVERED)


# Keys


def test_nobody_knows_the_key():
    """Without an agreement key nothing is encrypted and nothing leaves; the outcome is that of a signed message."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            sent = await alice.send(C, "hi")
            signed = await alice.send(C, "hi", mode=Mode.SIGNED)
            return sent, signed.outcome, relay.of_kind(MessageType.ENCRYPTED_DATA)

    sent, signed, frames = run(scenario)

    assert (sent.outcome, signed, frames) == (Outcome.UNKNOWN_TARGET, Outcome.UNKNOWN_TARGET, [])
    assert (sent.retry_safe, "key" in sent.sentence) == (True, True)
    with pytest.raises(KeyUnknownError):
        sent.check()


def test_first_contact_needs_no_second_try():
    """Who connects this moment publishes a key a message later; a sender that asks in between finds it."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            sending = asyncio.create_task(alice.send(B, "hi"))
            await eventually(lambda: any(frame[120:121] == b"\x85" for frame in relay.frames), "the first question")
            async with client(relay, BOB) as bob:
                return (await sending).outcome, (await first(bob))[0].text

    assert run(scenario) == (Outcome.ACCEPTED, "hi")


def test_key_given_by_hand_is_used_and_kept():
    """It is pinned, so that it need be given once."""
    recipients = Recipients()

    async def scenario():
        async with (
            RelayServer() as relay,
            client(relay, recipients=recipients) as alice,
            client(relay, BOB, extensions=False) as bob,
        ):
            await alice.send(B, "one", agreement_key=BOB.agreement_public.hex())
            await alice.send(B, "two")
            return await first(bob, 2)

    messages = run(scenario)

    assert [each.text for each in messages] == ["one", "two"]
    assert [each.time_ms for each in messages] == [None, None]
    assert recipients.get(B).by_hand


def test_changed_key_stops_the_message_until_it_is_accepted():
    """A pin is not replaced by itself; once accepted, the new key is the one."""
    recipients = Recipients()
    recipients.set_by_hand(B, CAROL.agreement_public)

    async def scenario():
        async with (
            RelayServer() as relay,
            client(relay, recipients=recipients) as alice,
            client(relay, BOB) as bob,
        ):
            with pytest.raises(KeyChangedError) as told:
                await alice.send(B, "hi")
            silent = relay.of_kind(MessageType.ENCRYPTED_DATA)
            accepted = alice.accept_key(B)
            await alice.send(B, "hi")
            return told.value, silent, accepted, await first(bob)

    error, silent, accepted, (message,) = run(scenario)

    assert (error.pinned, error.published) == (CAROL.agreement_public, BOB.agreement_public)
    assert (silent, accepted, message.text) == ([], True, "hi")
    assert recipients.get(B).agreement_key == BOB.agreement_public


# Files


@pytest.mark.parametrize("mode", [Mode.ENCRYPTED, Mode.SIGNED])
@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 10 * PART_BYTES + 7])
def test_file_arrives_whole(tmp_path, size, mode):
    """Of any size, under its own name, with progress on both sides when it has parts."""
    data = os.urandom(size)
    (tmp_path / "a.bin").write_bytes(data)
    progress, events = [], Events()

    async def scenario():
        async with (
            RelayServer() as relay,
            client(relay) as alice,
            client(relay, BOB, on_event=events, downloads=tmp_path / "spool") as bob,
        ):
            outcome = (
                await alice.send(
                    B, tmp_path / "a.bin", mode=mode, on_progress=lambda *numbers: progress.append(numbers)
                )
            ).outcome
            (message,) = await first(bob)
            return outcome, message, message.content.save(tmp_path / "inbox")

    outcome, message, path = run(scenario)

    assert outcome is Outcome.DELIVERED
    assert (path.name, path.read_bytes()) == ("a.bin", data)
    assert (message.sender, message.mode, message.auth) == (A, mode, Auth.BOUND)
    assert progress[-1] == (size, size)
    assert progress == sorted(progress)
    assert len(events.of_type(FileProgress)) == max(0, -(-size // PART_BYTES) - 1)
    assert not list((tmp_path / "spool").glob("*")) if (tmp_path / "spool").exists() else True


def test_file_survives_a_broken_connection(tmp_path):
    """Parts in flight are sent again over the next connection, and the file is whole, once."""
    data = os.urandom(20 * PART_BYTES)
    (tmp_path / "a.bin").write_bytes(data)

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            halfway = asyncio.Event()
            sending = asyncio.create_task(
                alice.send(B, tmp_path / "a.bin", on_progress=lambda done, _: done > 500_000 and halfway.set())
            )
            await halfway.wait()
            await relay.connections[1].close(1001)
            outcome = (await sending).outcome
            (message,) = await first(bob)
            return outcome, message.content.read_bytes() == data, bob.waiting_count

    assert run(scenario) == (Outcome.DELIVERED, True, 0)


def test_file_to_nobody_is_given_up(tmp_path, monkeypatch):
    """A recipient that has left is not sent parts for ever; the last outcome is the answer."""
    monkeypatch.setattr("waystation.protocols.merk.payload.transfers.SETBACKS_MAX", 1)
    (tmp_path / "a.bin").write_bytes(bytes(3 * PART_BYTES))

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB):
                await alice.agreement_key_of(B)
            return (await alice.send(B, tmp_path / "a.bin")).outcome

    assert run(scenario) is Outcome.UNKNOWN_TARGET


def test_file_for_an_original_client_goes_in_one_frame_or_not_at_all(tmp_path, monkeypatch):
    """Who has no advert takes no parts; what does not fit one frame is refused with a sentence."""
    monkeypatch.setattr(merk_files, "FRAME_FILE_BYTES_MAX", 300_000)
    (tmp_path / "a.bin").write_bytes(b"x" * 300_000)
    (tmp_path / "b.bin").write_bytes(b"x" * 300_001)
    by_hand = {"agreement_key": BOB.agreement_public}

    async def scenario():
        async with (
            RelayServer() as relay,
            client(relay) as alice,
            client(relay, BOB, extensions=False) as bob,
        ):
            outcome = (await alice.send(B, tmp_path / "a.bin", **by_hand)).outcome
            with pytest.raises(FileTooLargeError, match="one frame"):
                await alice.send(B, tmp_path / "b.bin", **by_hand)
            return outcome, await first(bob)

    outcome, (message,) = run(scenario)

    assert (outcome, message.content.name, message.content.size_bytes) == (Outcome.DELIVERED, "a.bin", 300_000)


def test_impossible_files_are_the_callers_mistake(tmp_path):
    """An absent file, a folder, a plain mode and a name that is too long send nothing."""
    (tmp_path / "a").write_text("x")

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB):
            for path, options in [
                (tmp_path / "absent", {}),
                (tmp_path, {}),
                (tmp_path / "a", {"mode": Mode.PLAIN}),
                (tmp_path / "a", {"name": "n" * 256}),
            ]:
                with pytest.raises(LocalError):
                    await alice.send(B, path, **options)
            return relay.of_kind(MessageType.ENCRYPTED_DATA)

    assert run(scenario) == []


# Original relays and clients


def test_original_relay_without_salvage():
    """What an original relay has cut is dropped and told; the sender hears that nobody can say."""
    events = Events()

    async def scenario():
        async with (
            OriginalServer() as relay,
            client(relay, extensions=False) as alice,
            client(relay, BOB, extensions=False, on_event=events),
        ):
            outcome = (await alice.send(B, "hi", mode=Mode.SIGNED)).outcome
            await events.until(MessageDropped)
            return outcome

    assert run(scenario) is Outcome.UNKNOWN


@pytest.mark.parametrize(("mode", "auth"), [(Mode.SIGNED, Auth.LEGACY), (Mode.ENCRYPTED, Auth.NONE)])
def test_salvage_behind_an_original_relay(mode, auth):
    """Who opted in gets signed and encrypted texts all the same, with what is left of their proof."""

    async def scenario():
        async with (
            OriginalServer() as relay,
            client(relay, extensions=False) as alice,
            client(relay, BOB, extensions=False, salvage=True) as bob,
        ):
            await alice.send(B, "hi", mode=mode, agreement_key=BOB.agreement_public)
            return await first(bob)

    (message,) = run(scenario)

    assert (message.text, message.mode, message.auth) == ("hi", mode, auth)


def test_original_relay_is_found_out_and_used(monkeypatch):
    """Without HELLO from the relay the client is connected all the same, and says that nothing is proved."""
    monkeypatch.setattr("waystation.protocols.merk.client.machine.HELLO_ANSWER_MS", 20)
    events = Events()

    async def scenario():
        async with (
            OriginalServer(verbatim=True) as relay,
            client(relay, on_event=events) as alice,
            client(relay, BOB, extensions=False) as bob,
        ):
            outcome = (await alice.send(B, "hi", mode=Mode.SIGNED)).outcome
            return outcome, await first(bob)

    outcome, (message,) = run(scenario)

    assert (outcome, message.text) == (Outcome.UNKNOWN, "hi")
    assert [event.authenticated for event in events.of_type(Connected)] == [False]


# Life


def test_iteration_ends_with_the_client():
    """Closing the client ends ``messages`` behind what has arrived."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB) as bob:
                await alice.send(B, "last")
                await eventually(lambda: bob.waiting_count, "the message's arrival")
                messages = bob.messages()
            return [message.text async for message in messages]

    assert run(scenario) == ["last"]


def test_bad_arguments_send_nothing():
    """A target that is no key, an address that is none, and JSON that is none are refused at once."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            for attempt in (
                lambda: alice.send("abc", "x"),
                lambda: alice.send(B, Json.of(float("nan")), mode=Mode.SIGNED),
                lambda: alice.send(B, "\ud800", mode=Mode.SIGNED),
            ):
                with pytest.raises(LocalError):
                    await attempt()
            with pytest.raises(LocalError):
                client(relay, urls="http://a")
            return relay.of_kind(MessageType.SIGNED_DATA)

    assert run(scenario) == []
