"""Laws of a client's mailbox: opened at its relay, fetched, taken with the program, over crashes of either side."""

import asyncio

import pytest

import waystation
from tests.sdk.merk.build import BOB, RelayServer
from tests.server.build import eventually
from tools.served import ServedNode
from waystation.protocols.merk.client.events import MailboxSaid
from waystation.protocols.merk.messages import MailboxState, MailClose, MailFetch, MailOpen, MailTaken
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.merk import MailboxChanged, Outcome
from waystation.sdk.merk.mailbox import RENEW_MS, WAITING_MAX, WORD_MS, Mailbox
from waystation.sdk.merk.sent import MessageRead

S, NOW_S = b"s" * 32, 1_700_000_000
OPEN = MailboxSaid(MailboxState.OPEN, 1, 200, NOW_S * 1_000 + WORD_MS)


def run(scenario, *given):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(60):
            return await scenario(*given)

    return asyncio.run(bounded())


def named(number):
    """Return one of many hashes or ids."""
    return number.to_bytes(16, "big")


class Talk:
    """A mailbox, and what it says to a relay that a test plays."""

    def __init__(self, *, wanted=False, can_say=True):
        self.said, self.reported, self.can_say = [], [], can_say
        self.box = Mailbox(
            BOB.signing, self._say, self._established, lambda: NOW_S, self.reported.append, wanted=wanted
        )

    def _say(self, info):
        if self.can_say:
            self.said.append(info)
        return self.can_say

    async def _established(self, timeout_s):
        assert timeout_s > 0

    def ready(self, said=OPEN):
        """Be taken by a relay that says how the mailbox stands."""
        self.box.ready("ws://relay", b"n" * 32, knows=True)
        self.box.changed(said)
        return self.box

    def kinds(self):
        """Return and forget what kinds of words were said."""
        said, self.said = self.said, []
        return [type(info) for info in said]

    def taken(self):
        """Return and forget the hashes that were taken."""
        said, self.said = self.said, []
        return [each for info in said if isinstance(info, MailTaken) for each in info.hashes]


# What is said


def test_a_mailbox_that_is_wanted_is_opened_at_every_relay():
    """With a word for this relay, for thirty days."""

    async def scenario():
        talk = Talk(wanted=True)
        talk.ready()
        (info,) = talk.said
        assert (info.presence.client, info.presence.node) == (BOB.signing.public, b"n" * 32)
        assert info.presence.until_ms - info.presence.issued_ms == WORD_MS
        assert talk.reported == [MailboxChanged("ws://relay", *OPEN)]
        talk.box.end()

    run(scenario)


def test_a_client_that_did_not_ask_opens_nothing():
    """Also when it reads."""

    async def scenario():
        talk = Talk()
        talk.ready(MailboxSaid(MailboxState.CLOSED, 0, 0, 0)).read()
        assert talk.kinds() == []

    run(scenario)


def test_mail_is_fetched_by_a_program_that_reads():
    """Before that it would only fill memory; and again after each new connection."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        assert talk.kinds() == []
        box.read()
        box.lost()
        talk.ready()
        assert talk.kinds() == [MailFetch, MailFetch]

    run(scenario)


def test_a_mailbox_that_ends_soon_is_renewed_by_who_reads():
    """Half of its time before."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        box.read()
        box.changed(OPEN._replace(until_ms=NOW_S * 1_000 + RENEW_MS - 1))
        assert talk.kinds() == [MailFetch, MailOpen, MailFetch]
        box.end()

    run(scenario)


def test_what_the_program_took_is_taken_soon():
    """Parts of a file all together; what it did not take is not."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        for number, message in enumerate((1, 2, 2, 3)):
            box.arrived(S, named(message), named(number))
        box.taken(S, named(2))
        box.taken(S, named(9))
        before = talk.taken()
        box.end()
        assert (before, talk.taken()) == ([], [named(1), named(2)])

    run(scenario)


def test_many_are_taken_at_once():
    """Sixty-four in one word, without waiting."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        for number in range(65):
            box.arrived(S, named(number), named(number))
            box.taken(S, named(number))
        assert talk.taken() == [named(number) for number in range(64)]
        box.end()

    run(scenario)


def test_a_message_that_waits_is_not_taken_when_it_comes_again():
    """Over a new connection; one that was taken before is."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        box.arrived(S, named(1), named(1))
        for number in (1, 2):
            box.dropped(named(number), Refusal.DUPLICATE)
        box.dropped(named(3), Refusal.CANNOT_DECRYPT)
        box.dropped(b"", Refusal.UNASKED_ANSWER)
        box.done(named(4))
        box.end()
        assert talk.taken() == [named(2), named(3), named(4)]

    run(scenario)


def test_what_had_no_room_is_fetched_again(monkeypatch):
    """Some time later, and not taken."""
    monkeypatch.setattr("waystation.sdk.merk.mailbox.FETCH_AGAIN_S", 0.01)

    async def scenario():
        talk = Talk()
        box = talk.ready()
        box.read()
        box.arrived(S, named(1), named(1))
        box.not_taken(S, named(1))
        assert talk.kinds() == [MailFetch]
        await eventually(lambda: talk.said)
        assert talk.kinds() == [MailFetch]
        box.end()
        assert talk.taken() == []

    run(scenario)


def test_frames_that_wait_are_bounded():
    """The oldest are forgotten; they come again and are dropped and taken then."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        for number in range(WAITING_MAX + 5):
            box.arrived(S, named(number), named(number))
        assert len(box._hashes) == len(box._waiting) == WAITING_MAX
        box.taken(S, named(0))
        box.taken(S, named(5))
        box.end()
        assert talk.taken() == [named(5)]

    run(scenario)


def test_without_a_mailbox_nothing_is_remembered():
    """Nor at a relay without the feature."""

    async def scenario():
        talk = Talk()
        box = talk.ready(MailboxSaid(MailboxState.CLOSED, 0, 0, 0))
        box.arrived(S, named(1), named(1))
        box.dropped(named(2), Refusal.DUPLICATE)
        box.done(named(3))
        box.end()
        assert (box._hashes, talk.said) == (set(), [])

    run(scenario)


def test_a_relay_without_mailboxes_refuses():
    """At once, without a word to it."""

    async def scenario():
        talk = Talk(can_say=False)
        talk.box.ready("ws://relay", b"n" * 32, knows=False)
        states = [(await talk.box.open()).state, (await talk.box.state()).state, (await talk.box.close()).state]
        assert states == [MailboxState.REFUSED] * 3

    run(scenario)


def test_who_asks_gets_the_relays_answer():
    """To opening, to closing, and to what it has said already."""

    async def scenario():
        talk = Talk()
        box = talk.ready()
        asked = asyncio.create_task(box.close())
        await eventually(lambda: talk.said)
        box.changed(MailboxSaid(MailboxState.CLOSED, 0, 0, 0))
        assert talk.kinds() == [MailClose]
        assert (await asked).state is (await box.state()).state is MailboxState.CLOSED

    run(scenario)


# Over a relay


@pytest.fixture
def homes(tmp_path):
    """Two homes of identities, and a third."""
    return {name: tmp_path / name for name in ("alice", "bob")}


def opened(homes, who, url, **options):
    """Open the client of one of them."""
    return waystation.merk.open(homes[who], url, only=True, **options)


async def take(client, count):
    """Return the next texts that a program takes."""
    texts = []
    async for message in client.messages():
        texts.append(message.text)
        if len(texts) == count:
            return texts
    raise AssertionError("the messages end")


async def introduced(homes, url):
    """Let Bob open a mailbox and Alice learn his key; return it."""
    async with opened(homes, "bob", url, mailbox=True) as bob, opened(homes, "alice", url) as alice:
        assert (await bob.mailbox.open()).state is MailboxState.OPEN
        assert (await alice.send(bob.public_key, "hello")).ok
        assert await take(bob, 1) == ["hello"]
        return bob.public_key


def test_a_message_is_stored_while_its_recipient_is_away_and_read_when_it_comes(homes):
    """Once; and nothing is left at the relay."""

    async def scenario():
        async with RelayServer() as relay:
            bob_key = await introduced(homes, relay.url)
            async with opened(homes, "alice", relay.url) as alice:
                sent = await alice.send(bob_key, "for later")
                assert sent.outcome is Outcome.STORED
                async with opened(homes, "bob", relay.url) as bob:
                    assert await take(bob, 1) == ["for later"]
                    assert await sent.read()
            assert relay.relay.sizes()["mail_messages"] == 0

    run(scenario)


def test_what_the_program_did_not_take_comes_again(homes):
    """After a client that ends in between; each message is taken once."""

    async def scenario():
        async with RelayServer() as relay:
            bob_key = await introduced(homes, relay.url)
            async with opened(homes, "alice", relay.url) as alice:
                for number in range(5):
                    assert (await alice.send(bob_key, str(number))).outcome is Outcome.STORED
            async with opened(homes, "bob", relay.url) as bob:
                first = await take(bob, 2)
            async with opened(homes, "bob", relay.url) as bob:
                assert first + await take(bob, 3) == list("01234")

    run(scenario)


def test_a_sender_that_was_restarted_learns_that_its_message_was_read(homes):
    """The receipt waits in the sender's own mailbox."""

    async def scenario():
        reads = []
        async with RelayServer() as relay:
            bob_key = await introduced(homes, relay.url)
            async with opened(homes, "alice", relay.url, mailbox=True) as alice:
                assert (await alice.mailbox.open()).state is MailboxState.OPEN
                sent = await alice.send(bob_key, "are you there?")
            async with opened(homes, "bob", relay.url) as bob:
                await take(bob, 1)
            async with opened(homes, "alice", relay.url, on_event=reads.append) as alice:
                messages = alice.messages()
                await eventually(lambda: any(isinstance(event, MessageRead) for event in reads))
                await messages.aclose()
        assert MessageRead(bob_key, sent.id) in reads

    run(scenario)


def test_a_file_is_kept_in_parts_and_taken_whole(homes, tmp_path):
    """Also when the client ends in the middle of it."""
    path = tmp_path / "picture.bin"
    path.write_bytes(bytes(range(256)) * 2_000)

    async def scenario():
        async with RelayServer() as relay:
            bob_key = await introduced(homes, relay.url)
            async with opened(homes, "alice", relay.url) as alice:
                assert (await alice.send(bob_key, path)).outcome is Outcome.STORED
            async with opened(homes, "bob", relay.url) as bob:
                async for message in bob.messages():
                    assert message.content.read_bytes() == path.read_bytes()
                    break
            assert relay.relay.sizes()["mail_messages"] == 0

    run(scenario)


def test_closing_it_deletes_what_is_there(homes):
    """And the next message is not kept."""

    async def scenario():
        async with RelayServer() as relay:
            bob_key = await introduced(homes, relay.url)
            async with opened(homes, "alice", relay.url) as alice:
                await alice.send(bob_key, "one")
                async with opened(homes, "bob", relay.url) as bob:
                    assert (await bob.mailbox.state()).messages_count == 1
                    assert (await bob.mailbox.close()).state is MailboxState.CLOSED
                assert (await alice.send(bob_key, "two")).outcome is Outcome.UNKNOWN_TARGET

    run(scenario)


# A real node


def test_stored_survives_a_killed_node(tmp_path, homes):
    """Right after the sender's STORED: the recipient gets each message once, and the sender its receipt."""
    node = ServedNode(tmp_path / "node", "merk").start()

    async def before():
        bob_key = await introduced(homes, node.address_of("merk"))
        async with opened(homes, "alice", node.address_of("merk")) as alice:
            sent = [await alice.send(bob_key, f"{number}") for number in range(20)]
        return bob_key, sent

    async def after(bob_key):
        reads = []
        url = node.address_of("merk")
        async with opened(homes, "alice", url, on_event=reads.append), opened(homes, "bob", url) as bob:
            texts = await take(bob, 20)
            more = asyncio.create_task(take(bob, 1))
            await eventually(lambda: sum(isinstance(event, MessageRead) for event in reads) == 20)
            assert not more.done()
            more.cancel()
        return texts, {event.message_id for event in reads if isinstance(event, MessageRead)}

    bob_key, sent = run(before)
    node.kill()
    node.start()
    texts, read = run(after, bob_key)
    assert node.stop() == 0

    assert {each.outcome for each in sent} == {Outcome.STORED}
    assert texts == [f"{number}" for number in range(20)]
    assert read == {each.id for each in sent}


def test_a_new_sender_writes_to_who_is_away_after_a_killed_node(tmp_path, homes):
    """The recipient's agreement key is with its mailbox, so the message is encrypted and stored."""
    node = ServedNode(tmp_path / "node", "merk").start()

    async def before():
        async with opened(homes, "bob", node.address_of("merk"), mailbox=True) as bob:
            assert (await bob.mailbox.open()).state is MailboxState.OPEN
            return bob.public_key

    async def after(bob_key):
        url = node.address_of("merk")
        async with opened(homes, "alice", url) as alice:
            sent = await alice.send(bob_key, "we have not met")
        async with opened(homes, "bob", url) as bob:
            return sent.outcome, await take(bob, 1)

    bob_key = run(before)
    node.kill()
    node.start()
    outcome, texts = run(after, bob_key)
    assert node.stop() == 0

    assert (outcome, texts) == (Outcome.STORED, ["we have not met"])
