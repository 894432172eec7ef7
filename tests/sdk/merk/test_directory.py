"""Laws of sdk.merk_directory, over the relay's own machine."""

import asyncio

import pytest

from tests.sdk.merk.build import ALICE, BOB, CAROL, RelayServer, client, first
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import KeyQuery, MessageType
from waystation.protocols.merk.payload.sealing import Mode
from waystation.sdk.errors import KeyChangedError, KeyDiffersError
from waystation.sdk.merk import directory as merk_directory
from waystation.sdk.merk.recipients import Recipients

B = BOB.signing.public


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(10):
            return await scenario()

    return asyncio.run(bounded())


def questions(relay):
    """Return the keys that a relay was asked for."""
    infos = [wire.decode_info(frame[120:]) for frame in relay.of_kind(MessageType.NODE_INFO)]
    return [info.key for info in infos if isinstance(info, KeyQuery)]


def test_known_recipient_is_asked_for_once_in_a_while():
    """Ten messages are one question."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB):
            for _ in range(10):
                await alice.send(B, "x")
            return questions(relay)

    assert run(scenario) == [B]


def test_unknown_recipient_is_asked_for_each_time_it_is_needed():
    """Who comes a moment later is found at the next try."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            assert not (await alice.send(B, "x")).ok
            async with client(relay, BOB):
                return (await alice.send(B, "x")).ok

    assert run(scenario)


def test_change_is_noticed_within_a_while(monkeypatch):
    """After the pause the directory is asked again, and a new key stops the next message."""
    monkeypatch.setattr(merk_directory, "ASK_AGAIN_S", 0.0)
    renewed = type(BOB).from_seeds(BOB.signing.seed, CAROL.agreement_secret)

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            async with client(relay, BOB):
                await alice.send(B, "x")
            async with client(relay, renewed) as bob:
                with pytest.raises(KeyChangedError):
                    await alice.send(B, "x")
                signed = (await alice.send(B, "signed", mode=Mode.SIGNED)).outcome
                return signed.ok, (await first(bob))[0].text

    assert run(scenario) == (True, "signed")


def test_replayed_old_advert_is_no_change(monkeypatch):
    """A directory that hands out an older advert is not believed and causes no alarm."""
    monkeypatch.setattr(merk_directory, "ASK_AGAIN_S", 0.0)
    recipients = Recipients()
    recipients.trust(wire.make_advert(BOB.signing, BOB.agreement_public, 2**62))
    old = type(BOB).from_seeds(BOB.signing.seed, CAROL.agreement_secret)

    async def scenario():
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice, client(relay, old):
            return await alice.agreement_key_of(B)

    assert run(scenario) == BOB.agreement_public


def test_given_key_that_is_not_the_published_one_is_not_pinned():
    """It is refused before anything is sent, whatever was pinned; what is published can then be accepted."""
    recipients = Recipients()

    async def scenario():
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice, client(relay, BOB):
            with pytest.raises(KeyDiffersError) as told:
                await alice.send(B, "x", agreement_key=CAROL.agreement_public)
            pinned, sent = recipients.get(B), relay.of_kind(MessageType.ENCRYPTED_DATA)
            accepted = alice.accept_key(B)
            await alice.send(B, "x")
            with pytest.raises(KeyDiffersError):
                await alice.send(B, "x", agreement_key=CAROL.agreement_public)
            await alice.send(B, "x")
            return told.value, pinned, sent, accepted

    error, pinned, sent, accepted = run(scenario)

    assert (error.pinned, error.published) == (CAROL.agreement_public, BOB.agreement_public)
    assert (pinned, sent, accepted) == (None, [], True)
    assert recipients.get(B).agreement_key == BOB.agreement_public


def test_given_key_that_is_the_published_one_makes_the_recipient_one_of_ours():
    """What a person and the recipient say alike is the recipient's word; later sends do not ask again."""
    recipients = Recipients()
    recipients.set_by_hand(B, CAROL.agreement_public)

    async def scenario():
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice, client(relay, BOB):
            for _ in range(3):
                await alice.send(B, "x", agreement_key=BOB.agreement_public)
            return questions(relay)

    asked = run(scenario)

    assert asked == [B]
    assert recipients.get(B).agreement_key == BOB.agreement_public
    assert not recipients.get(B).by_hand


def test_given_key_that_is_newer_than_the_directorys_holds(monkeypatch):
    """An advert from before the pinned one says nothing against the key that was given."""
    monkeypatch.setattr(merk_directory, "ASK_AGAIN_S", 0.0)
    recipients = Recipients()
    recipients.trust(wire.make_advert(BOB.signing, BOB.agreement_public, 2**62))
    old = type(BOB).from_seeds(BOB.signing.seed, CAROL.agreement_secret)

    async def scenario():
        async with RelayServer() as relay, client(relay, recipients=recipients) as alice, client(relay, old):
            return (await alice.send(B, "x", agreement_key=BOB.agreement_public)).ok

    assert run(scenario)


def test_sender_of_extended_content_is_one_of_ours():
    """Who has sent us time and id gets them back, although no advert is known."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice, client(relay, BOB) as bob:
            await bob.send(ALICE.signing.public, "hi", mode=Mode.SIGNED)
            await first(alice)
            relay.relay._keys._adverts.clear()
            await alice.send(B, "hi", mode=Mode.SIGNED)
            return (await first(bob))[0].message_id

    assert run(scenario) is not None


def test_nothing_to_accept_is_told():
    """Accepting without a change does nothing."""

    async def scenario():
        async with RelayServer() as relay, client(relay) as alice:
            return alice.accept_key(B), await alice.agreement_key_of(B)

    assert run(scenario) == (False, None)
