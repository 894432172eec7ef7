"""STRATA-KEYS with a relay full of authors who have rotated: nothing is missing, and no relay is blamed."""

import asyncio
import contextlib
import hashlib
import json
import time

import pytest

from tests.cli.build import caller, in_a_thread
from tests.sdk.strata.build import RELAY_1, RELAY_2, RelayServer
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.identity import Identity, rotate_key
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.relay.offline import Importer
from waystation.protocols.strata.settings import StrataSettings
from waystation.rules.relay_state import State
from waystation.sdk.relay_scores import RelayScores
from waystation.sdk.strata.many import ManyRelays
from waystation.store.memory import MemoryStore

NAMELESS = "did:strata:somebody"
"""An author whom this relay's operator knows, and no reader."""

FIRST_S = 2.0
"""Within which the first packet is there, however many authors have rotated."""


def key(name):
    return KeyPair.from_seed(hashlib.sha256(name.encode()).digest())


def store_of(count, *, nameless=0, later=0):
    """Return a store with ``count`` authors who rotated and wrote, among others, and how many posts can be verified."""
    store, now_s = MemoryStore(), int(time.time())
    settings = StrataSettings(static_dids={NAMELESS: key("nameless").public.hex()}, max_backfill_s=1e9)
    statics = {NAMELESS: key("nameless").public}
    importer = Importer(settings, RELAY_1, store, statics, (), now_s)

    def add(packet):
        importer.add(json.dumps({"packet": packet.body, "received_at": now_s}).encode())

    authors = []
    for number in range(count):
        packet, renewed = rotate_key(Identity.of(key(f"{number}")), key(f"{number} next"), "k2", now_s - 1_000)
        authors.append(renewed)
        add(packet)
    for number, author in enumerate(authors):
        add(author.packet({"type": "POST", "text": f"{number}"}, timestamp=now_s))
    for number in range(nameless):
        nobody = Identity(NAMELESS, key("nameless"), f"{NAMELESS}#static")
        add(nobody.packet({"type": "POST", "text": f"nameless {number}"}, timestamp=now_s))
    for number in range(later):
        add(authors[number].packet({"type": "POST", "text": f"later {number}"}, timestamp=now_s))
    importer.finish()
    assert importer.verdicts == {"accepted": 2 * count + nameless + later}
    return store


async def read(tmp_path, servers, book):
    """Read all posts; return their texts, when the first came, the states of the relays, and what was left out."""
    found, began, first_s = [], time.monotonic(), None
    with contextlib.closing(RelayScores(tmp_path / "scores.db")) as scores:
        async with ManyRelays(scores, [each.url for each in servers], book=book) as client:
            async for delivery in client.messages(Filters(types=("POST",)), follow=False):
                first_s = first_s or time.monotonic() - began
                found.append(delivery.packet.body["content"]["text"])
            return found, first_s, {each.standing.state for each in client.entries}, client.left_out


def reads_all(tmp_path, count, book, relays=(RELAY_1,)):
    store = store_of(count, later=3)

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(RelayServer(each, store=store)) for each in relays]
            return await read(tmp_path, servers, book)

    found, first_s, states, left_out = asyncio.run(main())
    assert sorted(found) == sorted([*map(str, range(count)), *(f"later {number}" for number in range(3))])
    assert first_s < FIRST_S
    assert State.BLACKLISTED not in states
    assert left_out == 0


def test_no_packet_is_missing_with_more_authors_than_the_book_holds(tmp_path):
    """The keys of 300 authors go through a book of 40, at two relays that share it."""
    reads_all(tmp_path, 300, KeyBook(authors_max=40), (RELAY_1, RELAY_2))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_no_packet_is_missing_with_100_000_rotated_authors(tmp_path):
    """Ten times as many as the book holds."""
    reads_all(tmp_path, 100_000, KeyBook())


def test_packets_that_nobody_can_verify_are_counted_and_no_violation(tmp_path, monkeypatch, capfd):
    """`subscribe --no-follow` shows the others, names how many are left out, and fails."""
    monkeypatch.chdir(tmp_path)
    run = caller("strata", capfd)
    with in_a_thread(RelayServer(store=store_of(3, nameless=2))) as url:
        code, out, err = run("subscribe", "--type", "POST", "--no-follow", "--relay", url, "--json")
        listed = json.loads(run("relays", "--json")[1])

    assert code == 1
    assert [json.loads(line)["packet"]["content"]["text"] for line in out.splitlines()] == ["0", "1", "2"]
    assert "2 packets could not be verified and are left out" in err
    assert "violations" not in listed["why"] or "0 violations" in listed["why"]


def test_key_events_of_others_are_not_downloaded(tmp_path):
    """A reader of authors who never rotated asks for no key events, however many the relay has."""
    store, asked = store_of(50), []

    class Relay(RelayServer):
        async def _serve(self, connection):
            receive = self.relay.receive
            self.relay.receive = lambda peer, data, now: (asked.append(data), receive(peer, data, now))
            await super()._serve(connection)

    async def main():
        async with Relay(store=store) as relay:
            with contextlib.closing(RelayScores(tmp_path / "scores.db")) as scores:
                async with ManyRelays(scores, [relay.url], identity=Identity.of(key("me"))) as client:
                    await client.send({"type": "NOTE", "text": "mine"})
                    notes = client.messages(Filters(types=("NOTE",)), follow=False)
                    return [each.packet.body["content"]["text"] async for each in notes]

    assert asyncio.run(main()) == ["mine"]
    assert not [each for each in asked if b"KEY_EVENT" in each]
