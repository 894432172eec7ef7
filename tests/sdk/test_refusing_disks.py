"""Laws of clients whose own disk is full for a while: nothing ends, nothing acknowledged is lost, sentences are true.

``tests/sdk/bsp/test_refusing_disk.py`` has those of BSP.
"""

import asyncio
import json
import random

import pytest

from tests.disk import fill, small_disk
from tests.sdk.bsp.build import until
from tests.sdk.build import PREIMAGE, LoopbackRelay, RunningDevice, echo, issue, paired, sender
from tests.sdk.lprp import build as lprp
from tests.sdk.merk.build import ALICE, BOB
from tests.sdk.merk.build import RelayServer as MerkServer
from tests.sdk.merk.build import client as merk_client
from tests.sdk.strata.build import RelayServer as StrataServer
from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.protocols.bhumi.client.device import Delivered
from waystation.protocols.bhumi.payload.contents import ContentType, DeviceMessage
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.bhumi import BhumiState, Dialect
from waystation.sdk.bhumi import Outcome as BhumiOutcome
from waystation.sdk.bhumi.answers import Answers
from waystation.sdk.bhumi.dialect import read_answer, write_request
from waystation.sdk.lprp import LprpSender, LprpTenant
from waystation.sdk.lprp import sender as lprp_sender
from waystation.sdk.merk import Recipients, Servers
from waystation.sdk.relay_scores import RelayScores
from waystation.sdk.store_news import StoreFailed, StoreRecovered
from waystation.sdk.strata import many as strata_many
from waystation.sdk.strata.many import ManyRelays
from waystation.sdk.strata.places import Places


@pytest.fixture
def disk(tmp_path):
    """A disk of 2 MiB."""
    with small_disk(tmp_path / "disk", 2) as folder:
        yield folder


def kinds(events):
    """Return the kinds of news about a disk, in their order."""
    return [type(event) for event in events if isinstance(event, StoreFailed | StoreRecovered)]


def test_merk_delivers_while_its_lists_cannot_be_written(disk):
    """Keys are pinned in memory meanwhile, and with the next change the file has them too."""
    events, servers, pins = [], disk / "servers.json", disk / "pins.json"

    async def main():
        async with MerkServer() as relay:
            known = Servers(servers)
            known.add(relay.url)
            stuffing = fill(disk)
            options = {"servers": known, "recipients": Recipients(pins), "on_event": events.append}
            async with merk_client(relay, BOB) as bob, merk_client(relay, ALICE, **options) as alice:
                outcomes = [(await alice.send(bob.public_key, text)).outcome.name for text in ("one", "two")]
                found = bob.messages()
                texts = [(await anext(found)).text for _ in range(2)]
                written = pins.exists()
                stuffing.unlink()
                alice.reconnect()
                await alice.send(alice.public_key, "to myself")
            return outcomes, texts, written

    outcomes, texts, written = asyncio.run(main())

    assert (outcomes, texts, written) == (["ACCEPTED"] * 2, ["one", "two"], False)
    assert kinds(events) == [StoreFailed, StoreRecovered]
    assert set(json.loads(pins.read_text())) == {key.signing.public.hex() for key in (ALICE, BOB)}


def test_strata_goes_on_while_its_scores_cannot_be_written(disk, monkeypatch):
    """A look that finds the disk full is told once; publishing and reading go on, and so does a later look."""
    monkeypatch.setattr(strata_many, "EVALUATION_S", 0.02)
    events = []

    async def main():
        me = Identity.of(ALICE.signing)
        scores = RelayScores(disk / "scores.db")
        async with (
            StrataServer() as relay,
            ManyRelays(scores, [relay.url], identity=me, rng=random.Random(1), on_store=events.append) as many,
        ):
            await many.send({"type": "POST", "text": "before"})  # the table keeps relays that have answered
            stuffing = fill(disk)
            await until(lambda: kinds(events) == [StoreFailed])
            sent = await many.send({"type": "POST", "text": "x"})
            read = [each.packet.packet_id async for each in many.messages(follow=False)]
            stuffing.unlink()
            await until(lambda: kinds(events) == [StoreFailed, StoreRecovered])
        known = [entry.url for entry in scores.list()]
        scores.close()
        return sent.packet.packet_id, read, known == [relay.url]

    packet_id, read, is_kept = asyncio.run(main())

    assert packet_id in read
    assert is_kept


def test_strata_reader_goes_on_while_its_place_cannot_be_written(disk):
    """Where it was is written with the next packet that the disk takes, and nothing comes twice."""
    events = []

    async def main():
        me = Identity.of(ALICE.signing)
        scores = RelayScores(disk / "scores.db")
        async with (
            StrataServer() as relay,
            ManyRelays(scores, [relay.url], identity=me, rng=random.Random(1), on_store=events.append) as many,
        ):
            for text in ("one", "two", "three"):
                await many.send({"type": "POST", "text": text})
            texts, stuffing = [], None
            async for each in many.messages(follow=False, resume="bot"):
                texts.append(each.packet.body["content"]["text"])
                if len(texts) == 1:
                    stuffing = fill(disk)
                elif len(texts) == 3:
                    stuffing.unlink()
            again = [each async for each in many.messages(follow=False, resume="bot")]
        scores.close()
        return texts, again

    texts, again = asyncio.run(main())

    assert (sorted(texts), again) == (["one", "three", "two"], [])
    assert kinds(events) == [StoreFailed, StoreRecovered]


def test_place_that_waits_is_written_before_later_ones(disk):
    """What the disk refused is there, in its order, once a later change is."""
    scores = RelayScores(disk / "scores.db")
    places = Places(scores.path, "bot", strata_many.EVERYTHING)
    stuffing = fill(disk)
    with pytest.raises(HostError, match="kept in memory"):
        places.move("wss://a", None, b"\x01" * 32)
    stuffing.unlink()
    places.move("wss://a", None, b"\x02" * 32)

    assert places.given() == [b"\x01" * 32, b"\x02" * 32]
    places.close()
    scores.close()


def test_bhumi_says_that_nothing_was_sent_and_goes_on_later(tmp_path, disk):
    """A request that cannot be noted does not leave, and its permission is not lost."""

    async def main():
        async with (
            LoopbackRelay() as relay,
            RunningDevice(tmp_path / "alice", relay.url, echo) as alice,
            sender(disk, relay.url) as (bob, state),
        ):
            token = alice.token()
            await alice.listening()
            await bob.accept(token, alias="alice")
            rights, stuffing = state.find_peer("alice").rights, fill(disk)
            with pytest.raises(HostError, match=r"nothing was sent: .*bhumi\.db"):
                await bob.send("alice", "never")
            seen = state.find_peer("alice").rights, state.pending()
            stuffing.unlink()
            return rights, seen, (await bob.send("alice", "later")).text

    rights, seen, text = asyncio.run(main())

    assert seen == (rights, [])
    assert text == "later"


def test_bhumi_hands_over_an_answer_that_its_disk_cannot_note(tmp_path, disk):
    """The request is done and is reported so; the permission that came with the answer is kept, and used later."""
    stuffing = []

    async def filling(request):
        stuffing.append(fill(disk))
        return request.content

    async def main():
        async with (
            LoopbackRelay() as relay,
            RunningDevice(tmp_path / "alice", relay.url, filling) as alice,
            sender(disk, relay.url) as (bob, state),
        ):
            token = alice.token()
            await alice.listening()
            await bob.accept(token, alias="alice")
            await eventually(lambda: state.find_peer("alice").rights == 3, "the spares")
            reply = await bob.send("alice", "done")
            with pytest.raises(HostError, match="nothing was sent"):
                await bob.send("alice", "never")
            stuffing[0].unlink()
            again = await bob.send("alice", "more")
            stuffing[1].unlink()
            await bob.recover()
            await eventually(lambda: state.find_peer("alice").rights == 3, "all permissions again")
            return reply, again.text, len(state.pending())

    reply, text, pending_count = asyncio.run(main())

    assert (reply.outcome, reply.text) == (BhumiOutcome.ANSWERED, "done")
    assert (text, pending_count) == ("more", 0)


def test_bhumi_handler_is_asked_once_though_its_answer_could_not_be_noted(disk):
    """Without the promise on disk there is no answer; the same request, delivered again, gets the one of before."""
    stuffing, calls = [], []

    async def handler(request):
        calls.append(request.text)
        stuffing.append(fill(disk))
        return request.content

    async def main():
        state = BhumiState(disk / "alice")
        issue(state, BOB.signing.public, [PREIMAGE])
        answers = Answers(state, handler, Dialect.E2E, random.Random(2), None, lambda _event: None)
        secrets, asked = SharedSecrets(BOB.signing), DeviceMessage(ContentType.TEXT, b"once")
        payload = write_request(Dialect.E2E, secrets, state.identity, PREIMAGE, asked, random.Random(3))
        with pytest.raises(HostError, match=r"bhumi\.db"):
            await answers.answer_to(Delivered(1, payload, PREIMAGE))
        stuffing[0].unlink()
        done = await answers.answer_to(Delivered(2, payload, PREIMAGE))
        answer = read_answer(Dialect.E2E, secrets, state.identity, PREIMAGE, done.answer)
        state.close()
        return answer.content

    assert asyncio.run(main()) == b"once"
    assert calls == ["once"]


def test_bhumi_device_goes_on_while_its_disk_cannot_be_read(tmp_path, monkeypatch):
    """It is told once, the device stays registered, and answers as before."""
    refusals = iter([HostError("cannot use bhumi.db: disk I/O error")] * 3)
    changes = BhumiState.changes

    def refusing(state):
        if (error := next(refusals, None)) is not None:
            raise error
        return changes(state)

    async def main():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, _):
            monkeypatch.setattr(BhumiState, "changes", refusing)
            await until(lambda: any("can be used again" in str(event) for event in alice.events))
            told = [str(event) for event in alice.events if "bhumi.db" in str(event)]
            return len(told), (await bob.send("alice", "hi")).text

    assert asyncio.run(main()) == (1, "hi")


@pytest.fixture
def _quick_lprp(monkeypatch):
    """A disk that refuses is tried again soon."""
    monkeypatch.setattr(lprp_sender, "DISK_AGAIN_S", 0.02)


@pytest.mark.usefixtures("_quick_lprp")
def test_lprp_tenant_goes_on_when_its_disk_does(tmp_path, disk):
    """What came meanwhile waits, is confirmed once it is on the disk, and comes once, without a new start."""
    events = lprp.Events()

    async def scenario():
        async with (
            lprp.HostServer() as server,
            LprpTenant(disk / "alice", server.host, settings=lprp.QUICK, on_event=events) as alice,
            LprpSender(tmp_path / "bob", server.host, settings=lprp.QUICK) as bob,
        ):
            await alice.allow(bob.public_key)
            await bob.send(alice.public_key, "before")
            await lprp.take(alice)
            stuffing = fill(disk)
            sent = [await bob.send(alice.public_key, text + "x" * 2_000) for text in ("one", "two")]
            await events.until(StoreFailed)
            own = await alice.send(bob.public_key, "to nobody")
            with pytest.raises(HostError, match=r"lprp\.db"):
                await alice.disallow(bob.public_key)
            meanwhile = alice.status().waiting_count, server.queue(alice.public_key) > 0, own.outcome.name
            stuffing.unlink()
            texts = [each.text[:3] for each in await lprp.take(alice, 2)]
            await events.until(StoreRecovered)
            await lprp.until(lambda: server.queue(alice.public_key) == 0)
            await alice.disallow(bob.public_key)
            return [each.ok for each in sent], meanwhile, sorted(texts), alice.whitelist()

    sent, meanwhile, texts, allowed = lprp.run(scenario)

    assert (sent, meanwhile) == ([True, True], (0, True, "REFUSED"))
    assert (texts, allowed) == (["one", "two"], frozenset())
    assert kinds(events) == [StoreFailed, StoreRecovered]


@pytest.mark.usefixtures("_quick_lprp")
def test_lprp_message_that_cannot_be_noted_as_done_is_noted_later(tmp_path, disk):
    """Reading goes on; a message read while the disk was full does not come again after a restart."""
    events, stuffing = lprp.Events(), []

    async def scenario():
        async with lprp.HostServer() as server:
            async with (
                LprpTenant(disk / "alice", server.host, settings=lprp.QUICK, on_event=events) as alice,
                LprpSender(tmp_path / "bob", server.host, settings=lprp.QUICK) as bob,
            ):
                await alice.allow(bob.public_key)
                for text in ("one", "two"):
                    await bob.send(alice.public_key, text)
                    await lprp.until(lambda text=text: alice.status().waiting_count == 1 + (text == "two"))
                found = alice.messages()
                texts = [(await anext(found)).text]
                stuffing.append(fill(disk))
                following = asyncio.ensure_future(anext(found))  # the first one is done by that
                await events.until(StoreFailed)
                stuffing.pop().unlink()
                message = await following
                texts.append(message.text)
                await message.done()
                await found.aclose()
            async with LprpTenant(disk / "alice", server.host, settings=lprp.QUICK) as alice:
                return texts, alice.status().waiting_count

    assert lprp.run(scenario) == (["one", "two"], 0)
