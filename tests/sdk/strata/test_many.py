import asyncio
import random
from dataclasses import replace

import pytest

from tests.protocols.strata.build import BOB, NOW, did, packet, post
from tests.sdk.strata.build import ALICE, RELAY_2, RelayServer, ScriptedServer
from tests.sdk.strata.test_relay import scenario
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.bootstrap import BootstrapDocument, Snapshot
from waystation.protocols.strata.client.bootstrap import RelayEntry as Listed
from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.messages import Filters
from waystation.rules.relay_choice import Notice, Profile, Verdict, publish_delay_ms
from waystation.rules.relay_state import State
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.relay_scores import RelayEntry, RelayScores
from waystation.sdk.strata.many import ManyRelays

ME = Identity.of(ALICE)
DEAD = "ws://127.0.0.1:1/strata"


@pytest.fixture
def scores(tmp_path):
    """An empty table."""
    table = RelayScores(tmp_path / "scores.db")
    yield table
    table.close()


def drive(test):
    """Run an async test that takes the table of scores."""

    def run(scores):
        scenario(lambda: test(scores))()

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@drive
async def test_packet_goes_to_two_relays_and_comes_back_once(scores):
    """Publishing fans out to two; reading both delivers once."""
    async with (
        RelayServer() as one,
        RelayServer(RELAY_2) as two,
        ManyRelays(scores, [one.url, two.url], identity=ME, rng=random.Random(1)) as many,
    ):
        report = await many.send({"type": "POST", "text": "x"})
        read = [delivery.packet.packet_id async for delivery in many.messages(follow=False)]

    assert sorted(receipt.relay for receipt in report.receipts) == sorted([one.url, two.url])
    assert read == [report.packet.packet_id]


@drive
async def test_row_37_earliest_received_at_is_reported(scores):
    """Two relays tell two times: the smaller one counts, whoever answers first."""
    packet = ME.packet({"type": "POST", "text": "x"}, timestamp=1_800_000_000)

    def relay(received_at):
        def script(message):
            if message["type"] != "SUBSCRIBE":
                return []
            name = message["subscription_id"]
            served = {"type": "EVENT", "subscription_id": name, "packet": packet.body, "received_at": received_at}
            ended = {"type": "EOSE", "subscription_id": name, "has_more": False}
            return [ended] if name.startswith("k") else [served, ended]

        return script

    async with (
        ScriptedServer(relay(1_800_000_020)) as late,
        ScriptedServer(relay(1_800_000_010)) as early,
        ManyRelays(scores, [late.url, early.url], rng=random.Random(1)) as many,
    ):
        read = [delivery async for delivery in many.messages(follow=False)]
        earliest = many.received_at(packet.packet_id)

    assert [delivery.packet for delivery in read] == [packet]
    assert earliest == 1_800_000_010


@drive
async def test_one_dead_relay_does_not_matter(scores):
    """The other one serves; the dead one's failure is reported and remembered."""
    scores.save(RelayEntry.new(DEAD, 0))
    async with RelayServer() as one, ManyRelays(scores, [one.url, DEAD], identity=ME, rng=random.Random(1)) as many:
        report = await many.send({"type": "POST", "text": "x"})
        read = [delivery async for delivery in many.messages(follow=False)]

    assert list(report.failures) == [DEAD]
    assert len(read) == 1
    assert scores.load(DEAD).standing.failures_running >= 1
    assert scores.load(one.url).relay_id is not None


@drive
async def test_no_relay_at_all_is_an_error(scores):
    """Neither publish nor read waits for ever."""
    async with ManyRelays(scores, [DEAD], identity=ME) as many:
        with pytest.raises(RelayUnreachableError):
            await many.send({"type": "POST"})
        with pytest.raises(RelayUnreachableError):
            _ = [delivery async for delivery in many.messages()]
    async with ManyRelays(scores, only=True, identity=ME) as many:
        with pytest.raises(RelayUnreachableError):
            await many.send({"type": "POST"})


@drive
async def test_relay_that_lies_three_times_is_banned(scores):
    """The table remembers the ban, and the relay is not read from any more."""
    packet = ME.packet({"type": "POST", "text": "x"}, timestamp=1_800_000_000)
    forged = packet.body | {"content": {"type": "POST", "text": "forged"}}
    path = f"/strata/packets/{packet.body['packet_id']}"
    changes = []
    async with ScriptedServer(lambda _message: []) as server:
        server.pages[path] = (200, {"packet": forged, "received_at": 1_800_000_000})
        async with ManyRelays(
            scores, [server.url], identity=ME, on_change=lambda url, change: changes.append((url, change.after))
        ) as many:
            for _ in range(3):
                with pytest.raises(Exception, match="bad packet"):
                    await many.get(packet.packet_id)
            many.evaluate()
            with pytest.raises(RelayUnreachableError, match=r"is banned .* `waystation strata relays pin URL`"):
                await anext(many.messages())
            with pytest.raises(RelayUnreachableError, match=r"no relay to publish to: .* is banned"):
                await many.send(packet)

    assert changes == [(server.url, State.BLACKLISTED)]
    assert scores.load(server.url).standing.state is State.BLACKLISTED


@drive
async def test_probation_of_relays_that_the_program_named_is_no_news(scores):
    """A fresh program has only such relays, and named them itself."""
    async with RelayServer() as one, RelayServer(RELAY_2) as two:
        async with ManyRelays(scores, [one.url, two.url], identity=ME) as many:
            assert (await many.send({"type": "POST", "text": "x"})).notices == ()
        async with ManyRelays(scores, identity=ME) as many:
            assert Notice.ONLY_PROBATION in (await many.send({"type": "POST", "text": "y"})).notices


@drive
async def test_probe_finds_what_a_relay_has(scores):
    """A packet seen at two others and ten minutes old is asked for by HTTP."""
    async with RelayServer() as one, RelayServer(RELAY_2) as two, RelayServer() as three:
        urls = [one.url, two.url, three.url]
        many = ManyRelays(scores, urls, identity=ME, rng=random.Random(1))
        async with many:
            packet = ME.packet({"type": "POST", "text": "x"}, timestamp=int(many._clock()) - 700)
            for url in urls:
                await many._publish(url, packet, 10)
                many._sightings.note(packet, url, None)
            asked, verdict = await many.probe()

    assert asked in urls
    assert verdict is Verdict.FOUND


@drive
async def test_churn_takes_a_relay_of_the_bootstrap_lists(scores):
    """One unknown relay is put on probation when it is time."""
    async with (
        RelayServer() as one,
        ManyRelays(scores, identity=ME, bootstrap_urls=[one.url], rng=random.Random(1)) as many,
    ):
        early = many.churn()
        many._pool._churned_at = None
        taken = many.churn()
        states = [entry.standing.state for entry in many.entries]

    assert (early, taken, states) == (None, one.url, [State.PROBATION])


@drive
async def test_row_47_profile_falls_back_with_a_notice(scores):
    """With one relay the shielded profile does not hold, and the preference stays."""
    async with ManyRelays(scores, [DEAD], profile=Profile.SHIELDED) as one:
        single = one.privacy
    async with ManyRelays(scores, [DEAD, DEAD + "2"], profile=Profile.HARDENED) as two:
        double = two.privacy

    assert single == (Profile.STANDARD, (Notice.TOO_FEW_RELAYS,))
    assert double.profile is Profile.SHIELDED
    assert Notice.NO_PRIVATE_PATH in double.notices


def test_row_47_jitter_stays_in_its_range():
    """A thousand delays of each profile lie within its bounds."""
    rng = random.Random(47)
    shielded = [publish_delay_ms(Profile.SHIELDED, rng) for _ in range(1_000)]
    hardened = [publish_delay_ms(Profile.HARDENED, rng) for _ in range(1_000)]

    assert (200 <= min(shielded) < 300, 1_100 < max(shielded) <= 1_200) == (True, True)
    assert (800 <= min(hardened) < 900, 2_400 < max(hardened) <= 2_500) == (True, True)


@drive
async def test_filters_reach_the_relays(scores):
    """Only what matches is delivered."""
    async with RelayServer() as one, ManyRelays(scores, [one.url], identity=ME) as many:
        await many.send({"type": "POST", "text": "x"})
        await many.send({"type": "PROFILE", "name": "x"})
        kinds = [each.packet.content_type async for each in many.messages(Filters(types=("PROFILE",)), follow=False)]

    assert kinds == ["PROFILE"]


def snapshot(source, url, score):
    """Return advice about one relay."""
    return Snapshot(source, 0, 1, (Listed("", url, score),), (), {})


@drive
async def test_bootstrap_data_introduce_relays(scores):
    """A document's relay must bear the DID named there, mean scores of snapshots count, and both are open to churn."""
    document = BootstrapDocument("0x", 0, 1, 60, (Listed("did:strata:x", DEAD),), (), {}, {}, {})
    advice = [snapshot("a", DEAD, 0.2), snapshot("b", DEAD, 0.8), snapshot("b", f"{DEAD}2", 1.0)]
    async with ManyRelays(scores, bootstrap=document, snapshots=advice, rng=random.Random(1)) as many:
        taken = set()
        for _ in range(2):
            many._pool._churned_at = None
            taken.add(many.churn())
        known = [(entry.url, entry.relay_id, entry.window.boot) for entry in many.entries]

    assert known == [(DEAD, "did:strata:x", 0.5), (f"{DEAD}2", None, 1.0)]
    assert taken == {DEAD, f"{DEAD}2"}


@drive
async def test_skew_of_bootstrap_data_judges_keys(scores):
    """A key that has ended counts as long as the document says, not the 300 s that count without one."""
    document = BootstrapDocument("0x", 0, 1, 60, (), (), {}, {}, {})
    revoke = {"type": "KEY_EVENT", "event": "REVOKE", "key_id": f"{did(BOB)}#keys-1", "revoked_at": NOW}
    late = []
    for given in (document, None):
        async with ManyRelays(scores, bootstrap=given) as many:
            assert many.book.learn(packet(revoke, BOB), NOW - 10)
            late.append([many.book.check(post("late", BOB), NOW + seconds) is None for seconds in (60, 61, 300, 301)])

    assert late == [[True, False, False, False], [True, True, True, False]]


@drive
async def test_known_did_outlives_bootstrap_data(scores):
    """Whoever was met under a name keeps it, whatever a document says later."""
    scores.save(replace(RelayEntry.new(DEAD, 0), relay_id="did:strata:met"))
    document = BootstrapDocument("0x", 0, 1, 60, (Listed("did:strata:x", DEAD),), (), {}, {}, {})
    async with ManyRelays(scores, bootstrap=document) as many:
        [entry] = many.entries

    assert entry.relay_id == "did:strata:met"


@drive
async def test_relay_that_never_answered_is_not_remembered(scores):
    """A slip of the pen leaves nothing; a relay that was there once stays, and so does one of a bootstrap list."""
    async with (
        RelayServer() as one,
        ManyRelays(scores, [one.url, DEAD], identity=ME, bootstrap_urls=[f"{DEAD}2"]) as many,
    ):
        await many.send({"type": "POST", "text": "x"})
        many._pool._churned_at = None
        many.churn()
        many.evaluate()

    assert [entry.url for entry in scores.list()] == sorted([one.url, f"{DEAD}2"])


@drive
async def test_reader_goes_on_after_a_restart(scores):
    """Under a name only what is new comes, from either relay; the packet in hand at the end comes again."""
    texts = []

    async def read(many, **options):
        found = many.messages(follow=False, resume="bot", **options)
        texts.append([each.packet.body["content"]["text"] async for each in found])

    async with RelayServer() as one, RelayServer(RELAY_2) as two:
        async with ManyRelays(scores, [one.url, two.url], identity=ME) as many:
            for text in "abc":
                await many.send({"type": "POST", "text": text})
            await read(many, count=2)
        async with ManyRelays(scores, [one.url, two.url], identity=ME) as many:
            unfinished = many.messages(follow=False, resume="bot")
            texts.append([(await anext(unfinished)).packet.body["content"]["text"]])
            await unfinished.aclose()
            await read(many)
            await read(many)
            await many.send({"type": "POST", "text": "d"})
            await read(many)

    assert texts == [["a", "b"], ["c"], ["c"], [], ["d"]]


@pytest.mark.slow  # a client that found nobody tries again after half a second
@drive
async def test_reader_waits_for_a_relay_and_hears_of_it(scores):
    """With keep_trying a relay that is down is no error: it is read once it is there."""
    news, started = [], asyncio.Event()

    def note(url, event):
        news.append((url, type(event)))
        started.set()

    async with RelayServer() as first:
        url, store = first.url, first.store
        async with ManyRelays(scores, [url], identity=ME) as many:
            report = await many.send({"type": "POST", "text": "x"})
    port = int(url.split(":")[2].split("/")[0])
    async with ManyRelays(scores, [url], on_connection=note) as many:
        reading = asyncio.create_task(anext(many.messages(keep_trying=True)))
        await started.wait()
        async with RelayServer(port=port, store=store):
            found = await reading

    assert found.packet == report.packet
    assert news[:2] == [(url, Disconnected), (url, Connected)]


@drive
async def test_packet_is_got_by_either_spelling_of_its_id(scores):
    """Bytes and text lead to the same packet; anything else, and a content that is none, is said."""
    async with RelayServer() as one, ManyRelays(scores, [one.url], identity=ME) as many:
        packet = (await many.send({"type": "POST", "text": "x"})).packet
        found = [(await many.get(wanted)).packet for wanted in (packet.packet_id, packet.body["packet_id"])]
        for wrong in (many.get("0xabc"), many.send("hello")):
            with pytest.raises(LocalError):
                await wrong

    assert found == [packet, packet]
