import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW
from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.client.identity import (
    Identity,
    rotate_key,
)
from waystation.sdk.strata.keys import KEY_FILE, create_identity, import_identity, load_identity, save_identity

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
