import pytest

from tests.protocols.strata.build import ALICE, BOB, CLIENT, MEDIA_HASH, NOW, claim, client_attested, did, photo, signed
from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.keys.keyring import read_key_event
from waystation.protocols.strata.relay.documents import read_document
from waystation.sdk.strata.keys import (
    KEY_FILE,
    Identity,
    add_key,
    approve_recovery,
    create_identity,
    import_identity,
    load_identity,
    make_did_document,
    revoke_key,
    rotate_key,
    save_identity,
    sign_attested,
)

ME = Identity.of(ALICE)


def test_key_file_is_private_and_loads_again(tmp_path):
    """Mode 0600, and the same identity afterwards; a second one does not overwrite it."""
    made = create_identity(tmp_path / "new")

    assert load_identity(tmp_path / "new") == made
    assert (tmp_path / "new" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    with pytest.raises(LocalError):
        create_identity(tmp_path / "new")


def test_imported_seed_is_the_same_author(tmp_path):
    """64 hexadecimal digits carry an identity."""
    assert import_identity(tmp_path, ALICE.seed.hex() + "\n") == ME


def test_rotated_identity_keeps_its_name(tmp_path):
    """The file holds the new key under the old DID."""
    packet, renewed = rotate_key(ME, BOB, "keys-2", NOW)
    save_identity(tmp_path, renewed)

    assert load_identity(tmp_path) == renewed
    assert (renewed.did, renewed.key_pair) == (ME.did, BOB)
    assert packet.body["content"]["replaces"] == ME.key_id


def test_files_that_hold_no_key_are_refused(tmp_path):
    """Absent, readable by others, or something else: each has its sentence."""
    with pytest.raises(LocalError, match="keys create"):
        load_identity(tmp_path)
    for text in (
        "",
        "[]",
        "{}",
        '{"did": 1, "key_id": "x", "seed": "y"}',
        '{"did": "x", "key_id": "x#1", "seed": "00"}',
    ):
        (tmp_path / KEY_FILE).write_text(text)
        (tmp_path / KEY_FILE).chmod(0o600)
        with pytest.raises(HostError, match="does not hold"):
            load_identity(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(HostError, match="chmod 600"):
        load_identity(tmp_path)


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


@pytest.mark.parametrize(
    "text", ["", "zz" * 32, "ab" * 31, "a b", "a b {seed}", '{{"seed": "{seed}"}}', "{{{seed}", "{seed}0"]
)
def test_bad_secret_is_not_repeated(tmp_path, text):
    """Whatever is given as a seed may be one: no message and no cause carries it."""
    given = text.format(seed="5a" * 32)
    with pytest.raises(LocalError) as refused:
        import_identity(tmp_path, given)

    assert refused.value.__cause__ is None
    assert "zz" not in str(refused.value) and "5a5a" not in str(refused.value) and "abab" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["hello", None, [1], {}, {"text": "x"}])
def test_content_without_a_type_is_a_mistake(content):
    """A sentence says so instead of an error of Python."""
    with pytest.raises(LocalError):
        Identity.of(ALICE).packet(content, timestamp=1)
