"""One key for device and relay, unless told otherwise."""

import random

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.bsp_identities import Identities, merk_keys_of, put_key
from waystation.sdk.lprp import KEY_FILE, LprpState
from waystation.sdk.merk import Keys

ALICE, BOB, CAROL = (KeyPair.from_seed(bytes([each]) * 32) for each in (1, 2, 3))


def test_same_key_by_default():
    """Whoever is not named has one key for both, in either direction."""
    identities = Identities()

    assert identities.relay_key_of(ALICE.public) == ALICE.public
    assert identities.peer_of(ALICE.public) == ALICE.public


def test_mapped_key():
    """A named peer is found by its key at the relay, and the other way round; the others stay as they are."""
    identities = Identities({ALICE.public: CAROL.public})

    assert identities.relay_key_of(ALICE.public) == CAROL.public
    assert identities.peer_of(CAROL.public) == ALICE.public
    assert identities.peer_of(BOB.public) == BOB.public


def test_two_peers_with_one_key_are_refused():
    """A message of that key could be of either."""
    with pytest.raises(LocalError, match="one key"):
        Identities({ALICE.public: CAROL.public, BOB.public: CAROL.public})


def test_merk_keys_are_the_devices_own_and_the_same_at_every_start():
    """The signing key is the device's; the agreement key grows from it, and differs between devices."""
    first, again, other = merk_keys_of(ALICE), merk_keys_of(ALICE), merk_keys_of(BOB)

    assert first.signing == ALICE
    assert first == again
    assert first.agreement_public != other.agreement_public
    assert first.agreement_secret != ALICE.seed
    assert Keys.import_json(first.export_json()) == first


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
