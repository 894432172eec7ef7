"""Laws of server.strata.stored_packets: which bytes of a stored packet are those that were stored."""

import orjson

from tests.protocols.strata.build import post
from waystation.server.strata.stored_packets import is_whole


def test_packet_is_whole_as_it_was_stored():
    """The bytes of an accepted packet have their own id."""
    assert is_whole(post("hello").canonical)


def test_no_bit_of_what_is_hashed_can_change():
    """Whatever a flipped bit makes of the packet, it is found, except inside the signature, which is not hashed."""
    canonical = post("hello").canonical
    signature = canonical.index(b'"signature":"0x') + len(b'"signature":"0x')
    for place in (each for each in range(len(canonical)) if not signature <= each < signature + 128):
        changed = bytearray(canonical)
        changed[place] ^= 1 << place % 8
        assert not is_whole(bytes(changed)), place


def test_what_is_no_packet_is_not_whole():
    """JSON of another form, and bytes that are no JSON."""
    for rubbish in (b"", b"{}", b"[]", b"\xff", orjson.dumps({"packet_id": "0x"})):
        assert not is_whole(rubbish)
