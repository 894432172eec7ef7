"""Laws of relays as ways to peers, as the command line uses them."""

import asyncio
import json

import pytest

from tests.cli.bsp.build import make_homes
from tests.cli.build import caller, in_a_thread
from tests.sdk.lprp.build import HostServer
from waystation.cli.bsp import ways as bsp_ways
from waystation.sdk.bsp import BspHome
from waystation.sdk.identity import put_key
from waystation.sdk.lprp import KEY_FILE, LprpTenant


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a folder with the homes alice and bob; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bsp_ways, "CARRIED_QUIET_S", 1.0)
    make_homes(tmp_path, "opaque")
    return caller("bsp", capfd)


async def lease(home, host):
    """Get a lease for the device of a home, as it does by itself when it runs for some seconds."""
    opened = BspHome(home, makes=False)
    opened.close()
    put_key(home / "lprp" / KEY_FILE, opened.key_pair)
    async with LprpTenant(home / "lprp", host):
        pass


@pytest.mark.slow
def test_message_waits_at_a_host_for_somebody_who_is_away(run, tmp_path):
    """What one device leaves at an LPRP host another one gets later, though the two are never there together."""
    added = run("add", "--group", "talk", "--body", "for later", "--home", "alice")[1].strip()
    with in_a_thread(HostServer()) as host:
        refused = run("sync", "--lprp", host, "--home", "alice", "--timeout", "20")
        asyncio.run(lease(tmp_path / "bob", host))
        left = run("sync", "--lprp", host, "--home", "alice", "--timeout", "20")
        got = run("listen", "0", "--lprp", host, "--home", "bob", "--count", "1", "--timeout", "20", "--json")

    assert (refused[0], "the recipient has no lease" in refused[2]) == (1, True)
    assert (left[0], got[0]) == (0, 0)
    assert json.loads(got[1])["id"] == added


def test_dead_relay_is_told_and_nothing_is_complete(run, monkeypatch):
    """An exchange over relays that nobody runs says so, and who lacks what; its exit code is 1."""
    monkeypatch.setattr(bsp_ways, "CARRIED_QUIET_S", 0.1)
    run("add", "--group", "talk", "--body", "x", "--home", "alice")
    merk = run("sync", "--merk", "ws://127.0.0.1:1/merk", "--home", "alice", "--timeout", "0.5")
    lprp = run("sync", "--lprp", f"lprp://{'07' * 32}@127.0.0.1:1", "--home", "alice", "--timeout", "0.5")

    assert (merk[0], lprp[0]) == (1, 1)
    assert "MERK: ws://127.0.0.1:1/merk is not reached: nobody listens" in merk[2]
    assert "not done after 0.5 s" in lprp[2]
    assert "LPRP: the host has not answered" in lprp[2]
    assert "bob is not known to have 1 of our messages" in lprp[2]


def test_exchange_without_its_relay_is_not_complete(run, monkeypatch):
    """Though nothing is owed to anybody, nothing was got either from a relay that nobody runs."""
    monkeypatch.setattr(bsp_ways, "CARRIED_QUIET_S", 0.1)
    merk = run("sync", "--merk", "ws://127.0.0.1:1/merk", "--home", "alice", "--json")
    lprp = run("sync", "--lprp", f"lprp://{'07' * 32}@127.0.0.1:1", "--home", "alice", "--json")

    assert (merk[0], lprp[0]) == (1, 1)
    assert json.loads(merk[1])["unreached"] == {"merk": "no relay is connected"}
    assert json.loads(lprp[1])["unreached"] == {"lprp": "the host has not answered"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--merk", "https://nowhere"), "not a WebSocket address"),
        (("--lprp", "lprp://nowhere"), "does not say which key"),
        (("--merk", "wss://127.0.0.1:1", "--ca", "missing.pem"), "missing.pem"),
    ],
)
def test_impossible_relay_is_told(run, words, why):
    """An address or authority that is none is told in one sentence."""
    code, _, err = run("sync", *words, "--home", "alice")

    assert code in (1, 2)
    assert why in err
