"""Laws of cli.mcu_folder: a folder is whole, private, and used by one program at a time."""

import hashlib
import os

import pytest

from waystation.cli.mcu.folder import (
    MAIN,
    Relay,
    check_folder,
    check_new,
    check_state,
    invite_into,
    relays_of,
    take_lock,
    write_folder,
)
from waystation.cli.mcu.package import device_module
from waystation.core.errors import HostError, LocalError
from waystation.protocols.bhumi.payload.invite import decode_invite

RELAYS = [Relay("tls://relay.example:8443", b"certificate"), Relay("tcp://127.0.0.1:1", b"")]


def test_folder_is_ready(tmp_path):
    """Everything a device needs is there; secrets are private; the invite is the state's."""
    folder = tmp_path / "demo"

    compiled, token = write_folder(folder, RELAYS, alias="bob", sources=True)

    settings = {}
    exec(compile((folder / "settings.py").read_text(), "settings.py", "exec"), settings)
    state = device_module("state").State(str(folder / "bhumi.state"))
    invite = decode_invite(token)
    assert not compiled
    assert settings["RELAYS"] == [("tls://relay.example:8443", "relay-1.der"), ("tcp://127.0.0.1:1", "")]
    assert (folder / "relay-1.der").read_bytes() == b"certificate"
    assert (folder / "main.py").read_text() == MAIN
    assert (invite.identity, state.invites) == (state.identity, [(invite.preimage, "bob", invite.secret, 0)])
    assert (invite.relays, invite.authority) == (("tls://relay.example:8443",), hashlib.sha256(b"certificate").digest())
    assert (invite.suite, invite.expires_s) == (4, 0)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "bhumi.state").stat().st_mode & 0o077 == 0


def test_existing_folder_stays_as_it_is(tmp_path):
    """What is there is not written over, not even a link that leads nowhere."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    for name in ("there", "link"):
        with pytest.raises(LocalError, match="exists already"):
            write_folder(tmp_path / name, RELAYS, alias="")
    with pytest.raises(LocalError, match="exists already"):
        check_new(tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_failure_leaves_nothing(tmp_path):
    """A folder that cannot be completed is removed."""
    with pytest.raises(LocalError, match="at most 32 bytes"):
        write_folder(tmp_path / "demo", RELAYS, alias="x" * 33)
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot make"):
        write_folder(tmp_path / "file" / "demo", RELAYS, alias="")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_more_invites(tmp_path):
    """More invites can be made up to a limit; a state that is damaged is not made anew."""
    write_folder(tmp_path / "demo", RELAYS, alias="", sources=True)
    for _ in range(7):
        invite_into(tmp_path / "demo", "")

    with pytest.raises(LocalError, match="8 invites wait"):
        invite_into(tmp_path / "demo", "")
    (tmp_path / "demo" / "bhumi.state").write_bytes(b"x")
    with pytest.raises(HostError, match="damaged"):
        invite_into(tmp_path / "demo", "")


def test_folder_of_something_else(tmp_path):
    """A folder that is not there says how to make one; one that is there, what it lacks."""
    with pytest.raises(LocalError, match="waystation mcu new"):
        check_folder(tmp_path / "nowhere")
    with pytest.raises(LocalError, match=r"it lacks main.py, settings.py, bhumi/"):
        check_folder(tmp_path)
    write_folder(tmp_path / "demo", RELAYS, alias="")
    assert check_folder(tmp_path / "demo") is None
    (tmp_path / "demo" / "settings.py").unlink()
    with pytest.raises(LocalError, match=r"it lacks settings.py$"):
        check_folder(tmp_path / "demo")


def test_state_of_a_folder(tmp_path):
    """It is there, or not, or damaged."""
    write_folder(tmp_path / "demo", RELAYS, alias="")
    path = tmp_path / "demo" / "bhumi.state"

    assert check_state(tmp_path / "demo")
    path.rename(tmp_path / "demo" / "bhumi.state.new")
    assert check_state(tmp_path / "demo")
    path.write_bytes(b"x")
    assert check_state(tmp_path / "demo")
    (tmp_path / "demo" / "bhumi.state.new").unlink()
    with pytest.raises(HostError, match="damaged"):
        check_state(tmp_path / "demo")
    path.unlink()
    assert not check_state(tmp_path / "demo")


@pytest.mark.parametrize(
    ("relays", "found"),
    [
        ('[("tls://a:1", "one.der"), ("b", "two.der")]', ("tls://a:1", "one.der")),
        ('[("localhost", "one.der")]', ("tls://localhost:8443", "one.der")),
        ('[("tcp://[::1]:1", "")]', ("tcp://[::1]:1", None)),
    ],
)
def test_relay_of_a_folder(tmp_path, relays, found):
    """The first relay and its authority are those of settings.py."""
    (tmp_path / "settings.py").write_text(f"WIFI = None\nRELAYS = {relays}\n")

    url, ca = relays_of(tmp_path)[0]

    assert (url, ca and ca.relative_to(tmp_path).as_posix()) == found


@pytest.mark.parametrize("text", ["", "RELAYS = [", "RELAYS = []", "RELAYS = make()", "RELAYS = [('8443', '')]"])
def test_relay_that_cannot_be_told(tmp_path, text):
    """Settings from which no relay can be read are one sentence."""
    (tmp_path / "settings.py").write_text(text)

    with pytest.raises(LocalError, match=r"settings\.py"):
        relays_of(tmp_path)


def test_lock(tmp_path):
    """One program at a time has the folder; a child that has a copy of the descriptor keeps it."""
    first = take_lock(tmp_path)
    copy = os.dup(first)
    os.close(first)
    with pytest.raises(HostError, match=rf"is running already \(process {os.getpid()}\)"):
        take_lock(tmp_path)
    os.close(copy)
    os.close(take_lock(tmp_path))

    with pytest.raises(HostError, match="cannot use"):
        take_lock(tmp_path / "nowhere")
