"""Laws of sdk.merk_keys."""

import json

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.core.errors import HostError, LocalError
from waystation.sdk.merk.keys import KEY_FILE, create_keys, import_keys, load_keys, open_keys


def test_created_keys_are_loaded_and_private(tmp_path):
    """What was made is what is there, readable by its owner alone; two makings differ."""
    keys = create_keys(tmp_path / "one")

    assert load_keys(tmp_path / "one") == keys
    assert (tmp_path / "one" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert create_keys(tmp_path / "two").signing.public != keys.signing.public


def test_file_is_the_originals_export(tmp_path):
    """The key file itself can be given to the original, and its export taken over."""
    keys = import_keys(tmp_path, ALICE.export_json())

    assert keys == ALICE
    assert json.loads((tmp_path / KEY_FILE).read_text()) == json.loads(ALICE.export_json())


def test_identity_is_never_overwritten(tmp_path):
    """Neither create nor import replaces one."""
    import_keys(tmp_path, ALICE.export_json())
    for attempt in (lambda: create_keys(tmp_path), lambda: import_keys(tmp_path, BOB.export_json())):
        with pytest.raises(LocalError, match="not overwritten"):
            attempt()

    assert load_keys(tmp_path) == ALICE


def test_absent_identity_says_how_to_make_one(tmp_path):
    """Loading nothing is the caller's mistake; opening makes one, once."""
    with pytest.raises(LocalError, match="keys create"):
        load_keys(tmp_path)

    assert open_keys(tmp_path) == open_keys(tmp_path)


def test_damaged_or_open_file_is_refused(tmp_path):
    """A file that is no key file, or that others may read, is not used."""
    path = tmp_path / KEY_FILE
    path.write_text("{}")
    path.chmod(0o600)
    with pytest.raises(HostError, match="does not hold MERK keys"):
        load_keys(tmp_path)
    path.chmod(0o640)
    with pytest.raises(HostError, match="chmod 600"):
        load_keys(tmp_path)
