"""Laws of sdk.merk: one folder, one program, and names for all that a program needs."""

import asyncio

import pytest

from tests.sdk.merk.build import NOWHERE, RelayServer
from waystation.sdk import merk as merk_module
from waystation.sdk.errors import HomeBusyError, RelayUnreachableError
from waystation.sdk.merk import RECIPIENTS_FILE, SEEN_FILE, SERVERS_FILE, load_keys
from waystation.sdk.merk import open as open_merk


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(10):
            return await scenario()

    return asyncio.run(bounded())


def test_everything_named_is_there():
    """The one module has all that its list names."""
    assert all(hasattr(merk_module, name) for name in merk_module.__all__)


def test_folder_keeps_identity_servers_and_pins(tmp_path):
    """What one run learnt the next one knows; nothing else is left in the folder."""

    async def scenario():
        async with RelayServer() as relay:
            for name in ("alice", "bob"):
                async with open_merk(tmp_path / name, relay.url):
                    pass
            bob = load_keys(tmp_path / "bob")
            async with (
                open_merk(tmp_path / "alice", relay.url) as merk,
                open_merk(tmp_path / "bob", relay.url) as other,
            ):
                merk.servers.add(relay.url)
                outcome = (await merk.send(bob.signing.public, "hi")).outcome
                message = await anext(aiter(other.messages()))
                return outcome.ok, message.text, message.sender == merk.public_key

    assert run(scenario) == (True, "hi", True)
    names = sorted(path.name for path in (tmp_path / "alice").iterdir())
    assert names == sorted(["merk.key", "merk.lock", RECIPIENTS_FILE, SEEN_FILE, SERVERS_FILE])


def test_second_program_is_refused(tmp_path, monkeypatch):
    """One connection per identity, so one program per folder."""
    monkeypatch.setattr(merk_module, "_BUSY_WAIT_S", 0.01)

    async def scenario():
        async with RelayServer() as relay, open_merk(tmp_path, relay.url):
            with pytest.raises(HomeBusyError, match="another program"):
                async with open_merk(tmp_path, relay.url):
                    pass

    run(scenario)


def test_unreachable_relay_ends_it_unless_it_is_to_keep_trying(tmp_path):
    """A program that sends wants to know at once, one that listens can wait."""

    async def scenario():
        with pytest.raises(RelayUnreachableError):
            async with open_merk(tmp_path, NOWHERE, only=True):
                pass
        async with open_merk(tmp_path, NOWHERE, only=True, keep_trying=True) as merk:
            return merk.relay

    assert run(scenario) is None
