"""Scenarios 18 to 20 and 22 to 25 of specs/bsp.md section 10: records that are lost, cut, crossing, or out of place."""

import pytest

from tests.sim.bsp.build import (
    BOTH,
    connection_of,
    counts,
    forged_id,
    listener,
    network,
    pair_bytes,
    state_of,
    write,
)
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader
from waystation.sim.bsp.host import SEED
from waystation.sim.bsp.observations import State
from waystation.sim.bsp.records import ACK, MESSAGE, OFFER, REQUEST, ids_record, message_record

DELIVERED = 2
OFFERED_MAX = 1_000


@pytest.mark.parametrize("sizes", [(1_001,), (2_000,), (500, 501), (1_000, 1_000)])
def test_18_more_offers_than_are_remembered(sizes):
    """The newest thousand offers are requested, within one record and over several; the oldest when offered again."""
    _, stranger, _ = listener()
    ids = [forged_id(number) for number in range(sum(sizes))]
    records = [ids_record(OFFER, *ids[sum(sizes[:at]) : sum(sizes[: at + 1])]) for at in range(len(sizes))]
    stranger.say(*records, wait_ms=200)
    requested = stranger.ids(REQUEST)
    stranger.say(ids_record(OFFER, *ids[:-OFFERED_MAX]), wait_ms=200)

    assert requested == ids[-OFFERED_MAX:]
    assert stranger.ids(REQUEST)[OFFERED_MAX:] == ids[:-OFFERED_MAX][-OFFERED_MAX:]


def test_18_repeated_offers_are_requested_once():
    """The same identifier offered thrice in one instant, in one record or in two, is requested once."""
    _, stranger, _ = listener()
    stranger.say(ids_record(OFFER, *[forged_id(1)] * 2), ids_record(OFFER, forged_id(1)), wait_ms=200)

    assert stranger.ids(REQUEST) == [forged_id(1)]


@BOTH
def test_19_lost_acknowledgement(mode):
    """A lost ACK costs one repeat after the base interval, and one more ACK."""
    here, group = network(mode=mode)
    connection = connection_of(here, "a", "b")
    ids = write(here, group, count=1)
    arrival_ms = 100 if mode is Mode.BATCH else 300
    here.run(arrival_ms - 50)
    connection.cut()
    here.run(100)
    connection.heal()
    here.run(200_000)

    copies = [(at // 1_000, kind) for at, kind in connection.tallies["a"].copies[ids[0]]]
    repeat = (arrival_ms - 100 + 1_000, MESSAGE if mode is Mode.BATCH else OFFER)
    assert copies == ([(0, MESSAGE), repeat] if mode is Mode.BATCH else [(0, OFFER), (200, MESSAGE), repeat])
    assert connection.tallies["b"].by_kind[ACK] == 2
    assert here.quiet_since_ms() == repeat[0] + 100
    assert here.hosts["b"].reported[ids[0]] == 1


@pytest.mark.parametrize("what", ["unknown", "unshared group", "unshared message", "deleted"])
def test_20_request_for_what_is_not_to_be_had(what):
    """A REQUEST for something unknown, unshared or deleted is met with silence."""
    here, stranger, group = listener(Mode.INTERACTIVE)
    other = here.group(b"another")
    here.hosts["a"].join(other)
    if what == "unknown":
        wanted = forged_id(1)
    elif what == "unshared group":
        wanted = here.hosts["a"].add(other, 1, b"secret")
    else:
        wanted = here.hosts["a"].add(group, 1, b"gone", share=what == "deleted")
    if what == "deleted":
        here.hosts["a"].delete(group.group_id, wanted)
    stranger.say(ids_record(REQUEST, wanted), wait_ms=300_000)

    assert stranger.ids(MESSAGE) == []
    assert stranger.received == []


@BOTH
def test_20_request_for_what_the_peer_holds_is_served(mode):
    """A peer that lost its store may ask again for what it has acknowledged: it gets one copy, or two."""
    here, stranger, group = listener(mode)
    wanted = here.hosts["a"].add(group, 1, b"again")
    here.run(100)
    stranger.say(ids_record(ACK, wanted), wait_ms=10_000)
    before = stranger.ids(MESSAGE).count(wanted)
    for _ in range(9):
        stranger.say(ids_record(REQUEST, wanted), wait_ms=100)
    here.run(60_000)

    assert before == (1 if mode is Mode.BATCH else 0)
    assert 1 <= stranger.ids(MESSAGE).count(wanted) - before <= 2


@BOTH
def test_22_crossing(mode):
    """Two messages that cross cost two messages: no third copy of either."""
    here, group = network(mode=mode)
    ids = [here.hosts[name].add(group, 1, name.encode() * 1_000) for name in "ab"]
    here.run(200_000)

    assert here.records(MESSAGE) == 2
    assert here.record_bytes() == 2 * pair_bytes(mode, 1)
    assert here.last_ms(ids, "ab") == (100 if mode is Mode.BATCH else 300)
    here.stand(group)


BODY = 10
RECORD_BYTES = 4 + 40 + BODY


@pytest.mark.parametrize("whole", range(5))
def test_23_connection_cut_at_every_byte(whole):
    """Wherever a stream of five messages is cut, after the next connection both have the same, each message once."""
    for cut in range(whole * RECORD_BYTES, (whole + 1) * RECORD_BYTES + (whole == 4)):
        here, group = network()
        connection = connection_of(here, "a", "b")
        connection.cut()
        ids = write(here, group, count=5, size_bytes=BODY)
        here.run(0)
        stream = b"".join(message_record(group.group_id, 1_000 + n, n.to_bytes(4, "big") + bytes(6)) for n in range(5))
        reader = RecordReader(SEED)
        count = len(reader.feed(stream[:cut]))
        refusal = reader.finish()
        here.hosts["b"].take("a", stream[: count * RECORD_BYTES])
        here.down(connection)
        connection.heal()
        here.up(connection)
        here.run(5_000)

        assert connection.tallies["a"].bytes_by_kind[MESSAGE] == 5 * RECORD_BYTES * 2
        assert refusal is (Refusal.TRUNCATED if cut % RECORD_BYTES else None)
        assert count == cut // RECORD_BYTES
        assert list(here.hosts["b"].reported.items()) == [(each, 1) for each in ids]
        here.stand(group)


@BOTH
@pytest.mark.parametrize("crash_ms", [5, 15], ids=["before the disk", "before the ACK"])
def test_24_killed_before_the_acknowledgement(mode, crash_ms):
    """A device killed between its disk and its ACK gets one repeat and delivers once; so does one killed before."""
    here, group = network(mode=mode, slow={"b": 10_000})
    slow, connection = here.hosts["b"], connection_of(here, "a", "b")
    ids = write(here, group, count=1)
    here.run((100 if mode is Mode.BATCH else 300) + crash_ms)
    slow.crash()
    here.down(connection)
    here.run(100)
    slow.start()
    here.up(connection)
    again_ms = here.now_ms
    here.run(200_000)

    sent = [kind for _, kind in connection.tallies["a"].copies[ids[0]]]
    repeats = [kind for at, kind in connection.tallies["a"].copies[ids[0]] if at >= again_ms * 1_000]
    assert repeats == ([OFFER, MESSAGE] if (mode, crash_ms) == (Mode.INTERACTIVE, 5) else sent[:1])
    assert slow.reported[ids[0]] <= 1
    assert state_of(here, "b", ids[0]) == State(DELIVERED, 1, True)
    here.stand(group)


@BOTH
def test_25_nothing_of_another_group(mode):
    """A peer hears nothing of a group that is not shared with it."""
    here, group = network(("ab", "ac"), mode)
    secret = here.group(b"secret")
    here.gather(secret, "ac")
    ids = write(here, secret, count=5, name="c") + write(here, group, count=5, name="a")
    here.run(10_000)

    assert here.last_ms(ids[5:], "abc") is not None
    assert here.last_ms(ids[:5], "ac") is not None
    assert not set(ids[:5]) & set(connection_of(here, "a", "b").tallies["a"].copies)
    here.stand(secret, "ac")


def test_25_records_of_another_group_change_nothing():
    """What a peer says about a group that is not shared with it looks to it as if nobody knew the group."""
    here, stranger, _ = listener()
    secret = here.group(b"secret")
    here.hosts["a"].join(secret)
    known_id = here.hosts["a"].add(secret, 1, b"known")
    here.run(100)
    forged, forged_secret_id = stranger.invent(secret, 2, b"forged")
    before = here.hosts["a"].states()
    stranger.say(forged, message_record(secret.group_id, 1, b"known"), wait_ms=200)
    heard_of_messages = list(stranger.received)
    stranger.say(ids_record(ACK, known_id), ids_record(OFFER, known_id, forged_id(7)), wait_ms=200)

    assert heard_of_messages == []
    assert stranger.ids(ACK) == []
    assert stranger.ids(REQUEST) == [known_id, forged_id(7)]
    assert here.hosts["a"].states() == before
    assert forged_secret_id not in before
    assert counts(here)[OFFER] == 0
