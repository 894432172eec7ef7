"""Laws of the folder of a BSP device."""

import asyncio
import contextlib
import random
import sqlite3

import pytest
from cryptography import x509

from tests.store.build_rot import flip_column
from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import BspPeer
from waystation.sdk.bsp.home import KEY_FILE, STORE_FILE, BspHome, HomeGroup, HomePeer, HomeShare
from waystation.transport.tls import server_context

PEER = KeyPair.from_seed(bytes(32)).public
OTHER = KeyPair.from_seed(b"\x01" * 32).public
GROUP = SEED.group(bytes(32), b"one", "deps_v1")
SECOND = SEED.group(bytes(32), b"two", "opaque")


@pytest.fixture
def home(tmp_path):
    """A new home."""
    opened = BspHome(tmp_path / "me", rng=random.Random(1))
    yield opened
    opened.close()


def test_identity_is_made_once_and_private(tmp_path, home):
    """A new home makes a key that only its owner may read, and keeps it."""
    again = BspHome(tmp_path / "me")
    mode = (home.path / KEY_FILE).stat().st_mode & 0o777

    assert again.key == home.key
    assert mode == 0o600
    again.close()


def test_what_is_written_is_read_by_another_opening(home):
    """Groups, peers and shares are there when the home is opened anew, with every field."""
    share = home.put_share(GROUP.group_id, PEER, Visibility.VISIBLE)
    home.commit([home.put_group("talk", GROUP), home.put_peer("bob", PEER, "bsp+tls://peer.example"), share])
    again = BspHome(home.path, makes=False)

    assert again.groups() == [HomeGroup("talk", GROUP)]
    assert again.peers() == [HomePeer("bob", PEER, "bsp+tls://peer.example:7443")]
    assert again.shares() == [HomeShare(GROUP.group_id, PEER, Visibility.VISIBLE)]
    again.close()


def test_missing_home_is_told_and_not_made(tmp_path):
    """A mistyped folder is told, and is not there afterwards."""
    with pytest.raises(LocalError, match="is no home"):
        BspHome(tmp_path / "typo", makes=False)
    assert not (tmp_path / "typo").exists()


def test_profile_is_kept_and_another_refused(tmp_path):
    """A home speaks one profile for ever."""
    BspHome(tmp_path / "me", profile="briar").close()
    kept = BspHome(tmp_path / "me")
    kept.close()

    with pytest.raises(LocalError, match="made for profile briar"):
        BspHome(tmp_path / "me", profile="seed")


def test_store_of_another_key_is_refused(tmp_path, home):
    """A store is not used under a key that it was not made for, nor without its key."""
    key = home.path / KEY_FILE
    kept = key.read_text()
    key.write_text("ab" * 32)
    with pytest.raises(HostError, match="another key"):
        BspHome(home.path)
    key.unlink()
    with pytest.raises(HostError, match="is gone"):
        BspHome(home.path)
    key.write_text(kept)

    assert (home.path / STORE_FILE).exists()


@pytest.mark.parametrize(("text", "mode", "why"), [("zz", 0o600, "does not hold a key"), ("ab" * 32, 0o644, "chmod")])
def test_key_file_that_cannot_be_used_is_told(tmp_path, text, mode, why):
    """A damaged key, or one that others may read, is refused with what to do."""
    path = tmp_path / KEY_FILE
    path.write_text(text)
    path.chmod(mode)

    with pytest.raises(HostError, match=why):
        BspHome(tmp_path)


def test_note_is_read_by_another_opening(home):
    """A short text is there when the home is opened anew; without one there is nothing."""
    home.commit([home.put_note("nick", "zoë")])
    again = BspHome(home.path, makes=False)

    assert (again.note("nick"), again.note("other")) == ("zoë", "")
    again.close()


def test_home_is_busy_while_a_peer_works_with_it(home):
    """Whoever looks sees whether a program runs with the home."""

    async def scenario():
        async with BspPeer(home.path):
            return home.is_busy

    assert (home.is_busy, asyncio.run(scenario()), home.is_busy) == (False, True, False)


def test_certificate_is_for_the_host_and_its_key_is_ours_alone(tmp_path):
    """Both are files of the home that a TLS server can be made of; once more replaces them."""
    with contextlib.closing(BspHome(tmp_path)) as home:
        first = [path.read_bytes() for path in home.make_certificate("peer.example", 1_800_000_000.0)]
        certificate, key = home.make_certificate("peer.example", 1_800_000_000.0)

    server_context(certificate, key)
    assert "peer.example" in str(x509.load_pem_x509_certificate(certificate.read_bytes()).extensions)
    assert [path.parent for path in (certificate, key)] == [tmp_path, tmp_path]
    assert key.stat().st_mode & 0o077 == 0
    assert [certificate.read_bytes(), key.read_bytes()] != first


@pytest.mark.parametrize("key", [b"identity", b"profile"])
def test_home_whose_facts_are_damaged_is_refused(tmp_path, key):
    """Neither its owner nor its profile is guessed (NODE-ROT)."""
    path = tmp_path / "damaged"
    BspHome(path, profile="briar").close()
    with contextlib.closing(sqlite3.connect(path / STORE_FILE)) as connection:
        rows = connection.execute("SELECT rowid, key FROM records").fetchall()
    [rowid] = [rowid for rowid, name in rows if key in name]
    flip_column(path / STORE_FILE, "records", rowid, "value")

    with pytest.raises(HostError, match="is damaged"):
        BspHome(path)
