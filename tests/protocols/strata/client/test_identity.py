import pytest

from tests.protocols.strata.build import ALICE, BOB, CLIENT, MEDIA_HASH, NOW, claim, client_attested, did, photo, signed
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.identity import (
    Identity,
    add_key,
    approve_recovery,
    make_did_document,
    revoke_key,
    rotate_key,
    sign_attested,
)
from waystation.protocols.strata.keys.keyring import read_key_event
from waystation.protocols.strata.relay.documents import read_document

ME = Identity.of(ALICE)


def test_key_events_are_what_relays_read():
    """Each passes the reader that relays use."""
    packets = [
        add_key(ME, BOB.public, "phone", NOW),
        rotate_key(ME, BOB, "keys-2", NOW)[0],
        revoke_key(ME, ME.key_id, NOW, revoked_at=NOW - 9, reason="lost"),
        approve_recovery(ME, b"\1" * 32, NOW, note="yes"),
    ]
    for packet in packets:
        read_key_event(packet.body["content"], ME.did)

    assert packets[2].body["content"]["revoked_at"] == NOW - 9
    assert all(packet.author_id == ME.did and packet.id_matches for packet in packets)


def test_document_names_recovery_keys_and_their_policy():
    """Relays read it, and a threshold nobody can reach is refused here."""
    read = read_document(make_did_document(ME, [BOB.public, CLIENT.public], NOW, threshold=2))

    assert (read.did, read.policy.threshold) == (ME.did, 2)
    assert [method.recovery for method in read.methods].count(True) == 2
    with pytest.raises(LocalError):
        make_did_document(ME, [BOB.public], NOW, threshold=2)


def test_client_attestation_is_the_oracles():
    """The attested packet is byte for byte what the letter of the specification gives."""
    body = photo(claim("SOFTWARE", MEDIA_HASH))
    ours = sign_attested(ME, body, client_id=did(CLIENT), client_version="1.0.0", client_key_pair=CLIENT)

    assert ours.body == signed(client_attested(body))
    with pytest.raises(LocalError):
        sign_attested(ME, {"content": {}}, client_id="x", client_version="1.0.0", client_key_pair=CLIENT)


@pytest.mark.parametrize("content", ["hello", None, [1], {}, {"text": "x"}])
def test_content_without_a_type_is_a_mistake(content):
    """A sentence says so instead of an error of Python."""
    with pytest.raises(LocalError):
        Identity.of(ALICE).packet(content, timestamp=1)


def test_unknown_field_of_a_packet_is_named_with_those_that_are():
    """In the words of a packet, not of a function that the caller never met."""
    with pytest.raises(LocalError, match="a packet has expires_at, nonce, provenance_header, extra, and no ttl"):
        Identity.of(ALICE).packet({"type": "POST"}, timestamp=NOW, ttl=5)
