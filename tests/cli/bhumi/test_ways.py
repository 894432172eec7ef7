"""Laws of cli.bhumi_ways: which relays a command goes by, with and without --find."""

import asyncio
import contextlib
import json

import pytest

from tests.cli.bhumi.test_commands import Listening
from tests.cli.build import caller, in_a_thread
from tests.sdk.bhumi.build_open import OpenRelay
from waystation.cli.bhumi import ways as bhumi_ways
from waystation.cli.bhumi.ways import DEFAULT_RELAY, look_around, open_ways
from waystation.core.errors import HostError, LocalError
from waystation.sdk.bhumi import BhumiState, RelayBook


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bhumi command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("bhumi", capfd)


@pytest.fixture
def relay():
    """A relay with a key."""
    with in_a_thread(OpenRelay(1)) as url:
        yield url


@pytest.mark.parametrize(
    ("given", "find", "relays"),
    [(None, False, [DEFAULT_RELAY]), (None, True, []), (["a:1"], False, ["tls://a:1"]), (["a:1"], True, ["tls://a:1"])],
)
def test_relays_of_a_command(tmp_path, given, find, relays):
    """What was given counts; without it the local node, or the book."""
    with open_ways(tmp_path, given, None, insecure=True, find=find) as ways:
        assert ways.relays == relays
        assert (ways.book is not None) is (ways.quality is not None) is find
        assert ways.tls is not None


def test_bare_tcp_needs_no_authority(tmp_path):
    """Without TLS nothing is trusted, and nothing read."""
    with open_ways(tmp_path, ["tcp://a:1"], tmp_path / "none.pem", insecure=False, find=False) as ways:
        assert ways.tls is None


def test_nonsense_is_refused(tmp_path):
    """An address that cannot be read is one sentence."""
    with pytest.raises(LocalError), open_ways(tmp_path, ["http://a"], None, insecure=False, find=False):
        pass


def test_sender_needs_some_relay(tmp_path):
    """With an empty book there is nobody to send by."""
    with (
        open_ways(tmp_path, None, None, insecure=True, find=True) as ways,
        contextlib.closing(BhumiState(tmp_path)) as state,
        pytest.raises(LocalError, match="no relay is known"),
    ):
        ways.sender(state, None, wait_s=0.0, dials_private=False)


@pytest.mark.parametrize(("given", "find", "count"), [(None, True, 1), (["a:1"], True, 0), (None, False, 0)])
def test_local_network_is_searched_when_the_book_is_all(tmp_path, monkeypatch, given, find, count):
    """Nobody waits for the local network who has named a relay."""
    looks = []

    async def look(book, seconds, **_):
        looks.append((book, seconds))

    monkeypatch.setattr(bhumi_ways, "look_on_lan", look)
    with open_ways(tmp_path, given, None, insecure=True, find=find) as ways:
        asyncio.run(look_around(ways))

    assert len(looks) == count


def test_network_that_cannot_be_searched_stops_nobody(tmp_path, monkeypatch, capsys):
    """The reason is told, and the command goes on."""

    async def look(_book, _seconds, **_):
        raise HostError("no interface")

    monkeypatch.setattr(bhumi_ways, "look_on_lan", look)
    with open_ways(tmp_path, None, None, insecure=True, find=True) as ways:
        asyncio.run(look_around(ways))

    assert capsys.readouterr().err == "waystation: the local network cannot be searched: no interface\n"


def test_conversation_by_the_book(run, relay, monkeypatch, tmp_path):
    """Both sides find the relay in their books; the listener says that it can be found, unless it is hidden."""
    monkeypatch.setattr(bhumi_ways, "_LOOK_S", 0.01)
    with contextlib.closing(RelayBook(tmp_path / "bob")) as book:
        book.add_seed(relay)
    token = run("invite", "--home", "alice", "--alias", "bob")[1].strip()
    listener = Listening("alice", relay, "--echo", "--find")
    shown = listener.next()
    accepted = run("accept", token, "--home", "bob", "--alias", "alice", "--find")
    sent = run("send", "alice", "hi", "--home", "bob", "--find")
    code = listener.stop()
    hidden = Listening("alice", relay, "--echo", "--hidden")
    again = run("send", "alice", "still there?", "--home", "bob", "--find", "--json")
    events = [hidden.next(), hidden.stop()]

    assert (shown["event"], shown["relay"]) == ("presence", relay)
    assert (accepted[0], sent[:2], code) == (0, (0, "hi\n"), 0)
    assert "waystation bhumi send alice hello --find" in accepted[2]
    assert json.loads(again[1])["reply"] == "still there?"
    assert (events[0]["event"], events[1]) == ("request", 0)


def test_seed_relays_come_before_the_usual_one(tmp_path):
    """Behind what was named, and in place of the node of this machine."""
    (tmp_path / "relays.json").write_text('["tcp://127.0.0.1:4"]')
    with open_ways(tmp_path, None, None, insecure=False, find=False) as ways:
        seeds = ways.relays
    with open_ways(tmp_path, ["tcp://127.0.0.1:5"], None, insecure=False, find=False) as ways:
        named = ways.relays

    assert (seeds, named) == (["tcp://127.0.0.1:4"], ["tcp://127.0.0.1:5"])
