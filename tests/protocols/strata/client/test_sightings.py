import pytest

from tests.sdk.strata.build import ALICE
from waystation.protocols.strata.client import sightings
from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.client.sightings import Sightings

ME = Identity.of(ALICE)


@pytest.fixture
def packet():
    """One public packet."""
    return ME.packet({"type": "POST", "text": "x"}, timestamp=1_800_000_000)


def test_earliest_time_counts_and_everyone_is_remembered(packet):
    """Whoever tells a smaller time is believed; a relay that took a publish tells none."""
    seen = Sightings()
    times = [
        seen.note(packet, "a", None),
        seen.note(packet, "b", 20),
        seen.note(packet, "c", 10),
        seen.note(packet, "d", 30),
    ]
    [sighting] = seen.for_probes()

    assert times == [None, 20, 10, 10]
    assert (seen.received_at(packet.packet_id), seen.packet(packet.packet_id)) == (10, packet)
    assert (sighting.seen_on, sighting.public) == (("a", "b", "c", "d"), True)


def test_memory_is_bounded(packet, monkeypatch):
    """The packet seen first is forgotten first."""
    monkeypatch.setattr(sightings, "SIGHTINGS_MAX", 1)
    seen, other = Sightings(), ME.packet({"type": "POST", "text": "y"}, timestamp=1_800_000_000)
    seen.note(packet, "a", 1)
    seen.note(other, "a", 1)

    assert (seen.packet(packet.packet_id), seen.received_at(packet.packet_id)) == (None, None)
    assert seen.packet(other.packet_id) == other
