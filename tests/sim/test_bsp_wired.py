"""Parties on byte streams: what BspMachine does with connections, in the same village and under the same laws."""

import random

import pytest

from tests.sim.build_bsp import MODES, hop_ms, pair_bytes, write
from waystation.core.instant import Instant
from waystation.protocols.bsp.links import Mode
from waystation.sim.bsp_records import MESSAGE
from waystation.sim.bsp_village import BspVillage
from waystation.sim.bsp_wired import certificate_of
from waystation.sim.link import LinkSettings

BOTH = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
LINK = LinkSettings(latency_us=100_000, jitter_us=0, pieces=0.0, window_bytes=1_000_000)
HANDSHAKE_MS = 400  # dial, hello, proof, verdict


def wired(mode=Mode.BATCH, link=LINK, commit_us=0, seed=0):
    """Return a village of two wired parties, their cable, and their group."""
    here = BspVillage(random.Random(seed))
    for name in "ab":
        here.wired_party(name, mode, commit_us)
    cable = here.cable("a", "b", link)
    group = here.group()
    here.gather(group)
    return here, cable, group


@BOTH
def test_pair_costs_what_it_must(mode):
    """Over streams a hundred messages cost what scenario 1 says; they wait for the handshake."""
    here, _, group = wired(mode)
    ids = write(here, group)
    here.run(10_000)

    assert here.last_ms(ids, "ab") == HANDSHAKE_MS + hop_ms(mode)
    assert here.record_bytes() == pair_bytes(mode, 100)
    here.stand(group)


@pytest.mark.parametrize(
    "link", [LinkSettings(pieces=1.0), LinkSettings(window_bytes=2_048), LinkSettings(bytes_per_second=50_000)]
)
def test_any_stream_brings_everything_once(link):
    """In pieces, through a small window or slowly: the same messages, one copy each."""
    here, _, group = wired(link=link)
    ids = write(here, group)
    here.run(30_000)

    assert here.last_ms(ids, "ab") is not None
    assert here.records(MESSAGE) == 100
    assert set(here.parties["b"].told.values()) == {1}
    here.stand(group)


@pytest.mark.parametrize("at_ms", [50, 150, 250, 350, 450, 550])
def test_connection_that_breaks_is_made_again(at_ms):
    """Whatever was under way when it broke, handshake or records, comes over the next one, delivered once."""
    here, cable, group = wired()
    ids = write(here, group, count=5)
    here.run(at_ms)
    cable.set_out()
    here.run(10_000)

    assert [here.parties["b"].told[each] for each in ids] == [1] * 5
    here.stand(group)


BODY, COUNT = 10, 5


@pytest.mark.parametrize("part", range(27))
def test_23_stream_cut_at_every_byte(part):
    """The acceptor reads any number of bytes of five messages, then the stream ends: the next one completes the set."""
    whole = COUNT * (44 + BODY)
    for cut in range(part * whole // 27, (part + 1) * whole // 27 + (part == 26)):
        here, cable, group = wired()
        here.run(HANDSHAKE_MS)
        end = next(iter(here.parties["b"].ends.values()))
        read = []

        def short(data, end=end, cut=cut, read=read):
            taken = data[: cut - sum(read)]
            read.append(len(taken))
            if taken:
                type(end).received(end, taken)

        end.port.end = type("Short", (), {"received": staticmethod(short), "ended": end.ended})()
        ids = write(here, group, count=COUNT, size_bytes=BODY)
        here.run(100)
        before = here.parties["b"].told.total()
        cable.set_out()
        here.run(5_000)

        assert sum(read) == cut
        assert before == cut // (44 + BODY)
        assert [here.parties["b"].told[each] for each in ids] == [1] * COUNT
        here.stand(group)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("after_ms", [5, 15, 120])
def test_crash_is_healed(name, after_ms):
    """A party that dies between commit and answer, or between messages, finds everybody again."""
    here, _, group = wired(commit_us=10_000)
    here.run(1_000)
    ids = write(here, group, count=3) + write(here, group, name="b", count=3, size_bytes=20)
    here.run(after_ms)
    party = here.parties[name]
    party.crash()
    here.run(500)
    party.start()
    here.run(200_000)

    here.stand(group)
    assert all(here.parties[each].told[message_id] <= 1 for each in "ab" for message_id in ids)


def test_dead_connection_is_noticed():
    """A cut that nobody is told of: the dialler comes again when it notices, and the newer connection wins."""
    here, cable, group = wired()
    here.run(1_000)
    cable.cut()
    ids = write(here, group, name="b", count=3)
    here.run(5_000)
    lost = here.last_ms(ids, "ab")
    cable.heal()
    here.run(5_000)

    assert lost is None
    assert here.last_ms(ids, "ab") is not None
    assert len(here.parties["b"].ends) == 1


def test_peer_that_reads_nothing_is_let_go():
    """Whoever takes nothing for a minute is closed, and what it lacked comes over the next connection."""
    here, cable, group = wired(link=LinkSettings(window_bytes=1_000, pieces=0.0))
    here.run(1_000)
    next(iter(here.parties["b"].ends.values())).port.pause()
    ids = write(here, group, count=10)
    here.run(59_000)
    before = here.parties["a"].refused
    here.run(30_000)

    assert (before, here.parties["a"].refused) == (0, 1)
    assert here.last_ms(ids, "ab") is not None
    assert cable.is_up


def test_quiet_pair_costs_nothing():
    """Once everything is said no timer brings a connection to life, or an event at all."""
    here, _, group = wired()
    write(here, group)
    here.run(200_000)
    performed = here.schedule.performed
    here.schedule.run(Instant(here.schedule.now + 3_600_000_000))

    assert here.schedule.performed - performed <= 1


def test_certificates_are_everybodys_own():
    """Hashes of 32 bytes, by name."""
    assert len(certificate_of("a")) == 32 != certificate_of("b")
