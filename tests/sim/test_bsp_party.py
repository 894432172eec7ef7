"""A party drives a device as its contract says, and loses in a crash what is not on its disk."""

import pytest

from tests.sim.build_bsp import Stranger, counts, forged_id, line_of, village
from waystation.protocols.bsp.events import Stored
from waystation.protocols.bsp.links import Mode, Visibility
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_party import key_of
from waystation.sim.bsp_records import ACK, MESSAGE, OFFER, REQUEST, ids_record
from waystation.sim.invariants import ViolationError


def test_what_arrives_at_once_is_answered_at_once():
    """Records of one instant get one ACK, behind one commit."""
    here, group = village(edges=("a",))
    stranger = Stranger(here).shares(group)
    messages = [stranger.invent(group, number, b"%d" % number) for number in range(5)]
    stranger.say(*(data for data, _ in messages), wait_ms=200)

    assert [record.kind for record in stranger.heard] == [ACK]
    assert set(stranger.heard[0].ids) == {message_id for _, message_id in messages}


def test_disk_takes_the_time_that_it_was_given():
    """Nothing is acknowledged and nobody told before the disk has answered: there and back."""
    here, group = village(edges=("a",), slow={"a": 10_000})
    stranger = Stranger(here).shares(group)
    stranger.say(stranger.invent(group, 1, b"one")[0], wait_ms=119)
    before = here.parties["a"].told.total()
    here.run(1)

    assert before == 0
    assert here.parties["a"].told.total() == 1
    assert here.parties["a"].delivered_at == {next(iter(here.parties["a"].told)): 120_000}


@pytest.mark.parametrize(("after_ms", "kept"), [(5, 0), (15, 1), (25, 1)])
def test_crash_loses_what_is_not_on_disk(after_ms, kept):
    """Before the disk has it a message is gone; afterwards it is there in the next life, told or not."""
    here, group = village(edges=("a",), slow={"a": 10_000})
    party = here.parties["a"]
    party.add(group, 1, b"one")
    here.run(after_ms)
    party.crash()
    told = party.told.total()
    party.start()
    here.run(100)

    assert len(party.states()) == kept
    assert told == (after_ms == 25)
    assert party.told.total() == told


def test_nothing_reaches_a_party_that_is_down():
    """Records and turns of an earlier life mean nothing."""
    here, group = village(edges=("a",))
    stranger = Stranger(here).shares(group)
    here.parties["a"].crash()
    stranger.say(stranger.invent(group, 1, b"one")[0], wait_ms=1_000)
    here.parties["a"].start()
    here.run(1_000)

    assert here.parties["a"].states() == {}
    assert stranger.heard == []


def test_owner_says_it_all_again():
    """Groups, peers, sharing and lines are there in the next life: an unsaid message goes out."""
    here, group = village()
    line_of(here, "a", "b").cut()
    here.parties["a"].add(group, 1, b"one")
    here.run(500)
    here.parties["a"].crash()
    line_of(here, "a", "b").heal()
    here.parties["a"].start()
    here.run(5_000)

    here.stand(group)
    assert len(here.parties["b"].states()) == 1


def test_what_is_no_record_is_dropped():
    """Rubbish is counted and changes nothing; what follows is heard."""
    here, _ = village(edges=("a",))
    stranger = Stranger(here)
    stranger.say(b"rubbish", ids_record(OFFER), ids_record(OFFER, forged_id(1)), wait_ms=300)

    assert here.parties["a"].malformed == 2
    assert stranger.ids(REQUEST) == [forged_id(1)]


def test_laws_hear_of_everything():
    """A pair's exchange is seen from both sides, record by record."""
    observed = []
    here, group = village(mode=Mode.INTERACTIVE)
    here._sink = observed.append
    here.parties["a"].add(group, 1, b"one")
    here.run(5_000)

    for kind in (seen.Said, seen.Heard):
        assert [each.record.kind for each in observed if isinstance(each, kind)] == [OFFER, REQUEST, MESSAGE, ACK]
    assert [each.party for each in observed if isinstance(each, seen.Told)] == ["a", "b"]
    assert isinstance(here.parties["b"].events[0], Stored)


def test_sharing_follows_the_owner():
    """What is shared no longer is sent no longer; shared again it is."""
    here, group = village()
    for name, other in ("ab", "ba"):
        here.parties[name].share(group.group_id, other, Visibility.INVISIBLE)
    here.parties["a"].add(group, 1, b"one")
    here.run(5_000)
    quiet = counts(here)
    for name, other in ("ab", "ba"):
        here.parties[name].share(group.group_id, other)
    here.run(5_000)

    assert quiet == (0, 0, 0, 0)
    assert counts(here) == (1, 1, 0, 0)


class Chatterbox:
    """What a device is that always has more to say."""

    def __init__(self, device):
        self._device = device

    def __getattr__(self, name):
        return getattr(self._device, name)

    def take_stirred(self):
        """Return everybody, always."""
        return [key_of("b")]

    def is_due(self, _peer, _now):
        """Return that there is something, always."""
        return True

    def speak(self, _peer, _now):
        """Return a REQUEST, but leave the loop of one peer."""
        self._is_odd = not getattr(self, "_is_odd", False)
        return [] if not self._is_odd else [b"\x01\x09\x00\x00"]


def test_device_that_never_stops_is_a_broken_law():
    """A turn without an end is found, not waited for."""
    here, _ = village()
    here.run(1)
    here.parties["a"].device = Chatterbox(here.parties["a"].device)
    here.parties["a"].stir()

    with pytest.raises(ViolationError, match="quiet"):
        here.run(1)


def test_keys_follow_from_names():
    """Everybody has a key of 32 bytes and of his own."""
    assert len(key_of("a")) == 32
    assert len({key_of(name) for name in ("a", "b", "d10", "h1")}) == 4
