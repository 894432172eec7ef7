"""What the people of a MERK world share."""

from dataclasses import replace

from tests.sim.build_merk import QUIET, Quarter, stranger
from waystation.core.instant import Instant
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.messages import HEADER_BYTES
from waystation.protocols.merk.sealing import data_frame
from waystation.protocols.merk.wire import frame_hash
from waystation.sim.merk_commons import CROWD_BYTES, CROWD_FRAMES, CROWD_US, address_of

ONE = replace(QUIET, nodes=1)
SENDER = KeyPair.from_seed(bytes([3]) * 32)
FRAME = data_frame(SENDER, stranger(), b"hello", header_signature=False)


def test_what_is_made_is_known_to_all():
    """A frame is known with its origin, and its message with its author."""
    commons = Quarter(ONE).commons
    fingerprint = SENDER.public, sha256(FRAME[HEADER_BYTES:])
    before = commons.is_authored(fingerprint)
    name = commons.make(FRAME)

    assert name == frame_hash(FRAME)
    assert (before, commons.is_authored(fingerprint)) == (False, True)
    assert commons.origin_of(name) == "honest"
    assert commons.origin_of(bytes(16)) == "nobody"
    assert commons.recent_frames() == [name, bytes(16)]


def test_forged_frames_have_no_author():
    """What a hostile client made in somebody's name is known as that."""
    commons = Quarter(ONE).commons
    name = commons.make(FRAME, "client")

    assert commons.origin_of(name) == "client"
    assert not commons.is_authored((SENDER.public, sha256(FRAME[HEADER_BYTES:])))


def test_crowds_are_many_frames_or_many_bytes_at_a_time():
    """A target is crowded when its queue may be full, and only around that time."""
    quarter = Quarter(ONE)
    commons, target, other = quarter.commons, stranger(1), stranger(2)
    for _ in range(CROWD_FRAMES):
        commons.note_sent(target, 1)
    commons.note_sent(other, CROWD_BYTES - 1)
    now = quarter.schedule.now

    assert commons.is_crowded(target, now)
    assert not commons.is_crowded(other, now)
    assert not commons.is_crowded(target, Instant(now + CROWD_US))
    commons.note_sent(other, 1)
    assert commons.is_crowded(other, now)
    assert commons.targets_count == 2


def test_nodes_are_reached_by_their_address():
    """Every node has an address of its own, by its number."""
    quarter = Quarter(replace(QUIET, nodes=2))

    assert [quarter.commons.sites[address_of(node)] for node in (0, 1)] == quarter.houses
    assert [site.number for site in quarter.commons.sites.values()] == [0, 1]
    assert len(set(quarter.commons.node_keys)) == 2


def test_lines_have_numbers():
    """No two connections share one."""
    commons = Quarter(ONE).commons

    assert [commons.next_line() for _ in range(3)] == [1, 2, 3]
