"""Laws of sdk.bhumi.seeds: nobody is sent anywhere by us; a list that was shipped counts where nothing else does."""

import asyncio
import json

import pytest

from tests.sdk.build import LoopbackRelay, echo
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.payload.invite import decode_invite
from waystation.sdk.bhumi import BhumiClient, Listening
from waystation.sdk.bhumi.seeds import SEEDS, SEEDS_FILE, SEEDS_MAX, SEEDS_VARIABLE, seed_relays


def ship(folder, listed):
    """Put a list into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / SEEDS_FILE).write_text(json.dumps(listed))


def test_ours_is_empty(tmp_path):
    """An SDK as it comes knows no relay."""
    assert SEEDS == () and seed_relays(tmp_path) == []


def test_list_of_the_home_wins_over_that_of_the_environment(tmp_path, monkeypatch):
    """Addresses come in their full spelling and order."""
    ship(tmp_path / "shipped", ["relay.example"])
    monkeypatch.setenv(SEEDS_VARIABLE, str(tmp_path / "shipped" / SEEDS_FILE))
    of_all = seed_relays(tmp_path / "bob")
    ship(tmp_path / "bob", ["tcp://127.0.0.1:1", "tls://other.example:443"])

    assert of_all == ["tls://relay.example:8443"]
    assert seed_relays(tmp_path / "bob") == ["tcp://127.0.0.1:1", "tls://other.example:443"]


@pytest.mark.parametrize("listed", [{"relays": []}, [7], ["http://a"], ["tls://a:1"] * (SEEDS_MAX + 1)])
def test_list_that_is_none_is_a_sentence(tmp_path, listed):
    """It names the file; nothing is silently left out."""
    ship(tmp_path, listed)
    with pytest.raises(LocalError, match=SEEDS_FILE):
        seed_relays(tmp_path)


def test_named_list_that_is_missing_is_a_sentence(tmp_path, monkeypatch):
    """Who names one wants it used."""
    monkeypatch.setenv(SEEDS_VARIABLE, str(tmp_path / "nowhere.json"))
    with pytest.raises(LocalError, match="cannot be read"):
        seed_relays(tmp_path)


def test_client_without_relays_listens_and_sends_by_the_list(tmp_path):
    """Neither side names a relay: the device registers at the seed, its invitation names it, and it is asked there."""

    async def scenario():
        events = []
        async with LoopbackRelay() as relay:
            ship(tmp_path / "alice", [relay.url])
            async with BhumiClient(tmp_path / "alice", on_event=events.append) as alice:
                serving = asyncio.create_task(alice.serve(echo))
                await eventually(lambda: [each for each in events if isinstance(each, Listening)], "a registration")
                token = alice.invite("bob")
                async with BhumiClient(tmp_path / "bob") as bob:
                    await bob.accept(token, alias="alice")
                    reply = await bob.send("alice", "hi")
                serving.cancel()
                await asyncio.wait([serving])
            return decode_invite(token).relays == (relay.url,), reply.text

    assert asyncio.run(scenario()) == (True, "hi")
