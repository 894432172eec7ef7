"""Laws of sdk.identity: one key in one file, made once and read with care."""

import random

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.identity import put_key, read_key, read_or_make_key
from waystation.sdk.lprp import KEY_FILE, LprpState

ALICE = KeyPair.from_seed(bytes([1]) * 32)


def test_key_is_made_once_and_read_again(tmp_path):
    """A file that is absent is no key; the first use makes one of mode 0600, and every later use reads it."""
    path = tmp_path / "x.key"
    absent = read_key(path)
    made = read_or_make_key(path, random.Random(1))

    assert absent is None
    assert read_or_make_key(path).seed == read_key(path).seed == made.seed == random.Random(1).randbytes(32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == made.seed.hex() + "\n"


@pytest.mark.parametrize("text", ["", "no key", "ab" * 31, "ab" * 33])
def test_file_without_a_key_is_refused(tmp_path, text):
    """Anything but 64 hexadecimal digits is named as no key, and stays as it is."""
    (tmp_path / "x.key").write_text(text)
    (tmp_path / "x.key").chmod(0o600)

    with pytest.raises(HostError, match="64 hexadecimal digits are expected"):
        read_or_make_key(tmp_path / "x.key")
    assert (tmp_path / "x.key").read_text() == text


@pytest.mark.parametrize(("state", "name"), [(BhumiState, "node.key"), (LprpState, KEY_FILE)])
def test_put_key_makes_a_folder_the_devices(tmp_path, state, name):
    """A folder that is opened afterwards has the device's key, and is its owner's alone; a second time is fine."""
    home = tmp_path / "relay"
    put_key(home / name, ALICE)
    put_key(home / name, ALICE)
    opened = state(home)
    opened.close()

    assert opened.identity == ALICE.public
    assert (home / name).stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_put_key_overwrites_nobody(tmp_path):
    """The key of another identity stays, and the caller is told."""
    (tmp_path / "x.key").write_text(random.Random(1).randbytes(32).hex())
    (tmp_path / "x.key").chmod(0o600)
    before = (tmp_path / "x.key").read_text()

    with pytest.raises(LocalError, match="another key"):
        put_key(tmp_path / "x.key", ALICE)
    assert (tmp_path / "x.key").read_text() == before


@pytest.mark.parametrize(("text", "mode"), [("no key", 0o600), (ALICE.seed.hex(), 0o644)])
def test_put_key_tells_of_a_file_that_cannot_be_used(tmp_path, text, mode):
    """A file that holds no key, or one that others may read, is not taken for ours."""
    (tmp_path / "x.key").write_text(text)
    (tmp_path / "x.key").chmod(mode)

    with pytest.raises(HostError):
        put_key(tmp_path / "x.key", ALICE)
