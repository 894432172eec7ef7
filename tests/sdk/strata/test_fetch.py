import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, post
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.events import PublishRefused
from waystation.protocols.strata.client.inspection import own_key
from waystation.sdk.strata.fetch import as_packet_id, check_fetched, refusal_of


def test_only_the_packet_asked_for_is_good():
    """A good packet of another id is no answer."""
    packet, other = post(), post("other", BOB)
    body = {"packet": packet.body, "received_at": NOW}

    assert check_fetched(body, packet.packet_id, NOW, own_key).packet == packet
    assert check_fetched(body, other.packet_id, NOW, own_key).reason == "packet_id"
    assert ALICE.public != BOB.public


def test_packet_id_is_bytes_or_text():
    """Both spellings are taken, nothing else."""
    assert as_packet_id(b"\x11" * 32) == as_packet_id("0x" + "11" * 32) == b"\x11" * 32
    for wrong in ("0xabc", "11" * 32, "0x" + "AA" * 32, b"short", 5, None):
        with pytest.raises(LocalError, match="a packet id is 32 bytes"):
            as_packet_id(wrong)


def test_refusal_of_a_large_packet_names_the_size_that_is_taken():
    """The relay said it, and the sender needs it."""
    refused = ("m1", bytes(32), "packet_too_large", "canonical_size", "Packet exceeds the maximum size.", None)
    error = refusal_of("ws://a", PublishRefused(*refused, max_bytes=262_144))

    assert str(error).endswith("Packet exceeds the maximum size; it takes at most 262144 bytes")
    assert "at most" not in str(refusal_of("ws://a", PublishRefused(*refused, max_bytes=None)))
