"""What the people of a Strata world share."""

from tests.sim.build_strata import Quarter
from waystation.sim import strata_observations as seen
from waystation.sim.chance import fork
from waystation.sim.strata_commons import Author


def test_what_is_made_is_known_to_all():
    """A packet that somebody makes is observed and can be recognised, byte for byte."""
    quarter = Quarter()
    packet = quarter.packet()
    forged = packet.canonical.replace(b"hello", b"jello")

    assert quarter.kinds(seen.Made)[0].packet_id == packet.packet_id
    assert quarter.commons.is_genuine(packet.packet_id, packet.author_id, b"EVENT" + packet.canonical)
    assert not quarter.commons.is_genuine(packet.packet_id, packet.author_id, b"EVENT" + forged)
    assert not quarter.commons.is_genuine(bytes(32), packet.author_id, packet.canonical)


def test_relays_may_make_packets_themselves():
    """A descriptor is genuine although nobody in the world made it."""
    quarter = Quarter()

    assert quarter.commons.is_genuine(bytes(32), quarter.commons.relay_ids[0], b"")


def test_keys_are_known_over_changes():
    """Readers know every key that an author ever had, and none of a stranger."""
    quarter = Quarter()
    author = Author(quarter.rng)
    other = author.next_key()
    for key in (author.key, other):
        quarter.commons.know_key(author.did, key)

    assert quarter.commons.keys_of(author.did, 0) == (author.key.public, other.public)
    assert quarter.commons.keys_of("did:strata:nobody", 0) is None


def test_forks_do_not_disturb_each_other():
    """Draws of one part do not shift those of another."""
    first, second = Quarter().rng, Quarter().rng
    one = fork(first)
    one.random()

    assert fork(first).random() == [fork(second), fork(second)][1].random()
