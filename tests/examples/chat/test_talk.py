"""Laws of a chat that runs on one terminal."""

import asyncio
import json
import os
import sys

import pytest

from tests.sdk.bsp.build import devices, hurry, next_event
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.examples.chat.format import CHAT, FORMATS_KNOWN, Line, write_line
from waystation.examples.chat.talk import Talk
from waystation.protocols.bsp.invite import Invitation
from waystation.sdk.bsp import BspUrl, PeerUnreachable

KEY = KeyPair.from_seed(b"\x05" * 32).public.hex()


@pytest.fixture
def typed(monkeypatch):
    """A pipe as stdin; gives its writing end."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writing


def talk(folder, *, then, as_json=True, count=0, stays=False):
    """Run a talk to its end, with ``then`` called between its opening and its run; return what ``run`` returned."""

    async def main():
        async with devices(folder, 1, formats=FORMATS_KNOWN) as (alice,):
            group = await alice.create_group("chat", format=CHAT)
            running = Talk(alice, ("chat", group), "alice", as_json=as_json)
            await running.open(None, [], listen_at=None, after=0)
            then(alice)
            async with asyncio.timeout(20):
                return await running.run(count, stays=stays)

    return asyncio.run(main())


def test_commands_are_carried_out_and_their_faults_told(tmp_path, monkeypatch, typed, capfd):
    """Each command does its work or says what is wrong, and the talk goes on."""
    lines = [f"/allow {KEY} carol", "/allow x", "/export", "/import", "/export to.bsp", "/peers", "/quit"]
    os.write(typed, ("\n".join(lines) + "\n").encode())
    monkeypatch.chdir(tmp_path)
    talk(tmp_path, then=lambda alice: None)
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    assert [event["event"] for event in events] == [
        "ready",
        "newcomer",
        "error",
        "error",
        "error",
        "exported",
        "peer",
    ]
    assert [event["error"] for event in events if event["event"] == "error"][1:] == [
        "/export PATH [PEER]",
        "/import PATH",
    ]
    assert (events[5]["path"], events[6]["name"]) == (None, "carol")
    os.close(typed)


def test_people_read_the_same_in_words(tmp_path, typed, capfd):
    """Without JSON the results of commands are sentences on stderr and stdout."""
    lines = [f"/allow {KEY} carol", "hello", "/peers", f"/export {tmp_path / 'to.bsp'} carol", "/help", "/quit"]
    os.write(typed, ("\n".join(lines) + "\n").encode())
    talk(tmp_path, then=lambda alice: None, as_json=False)
    told = capfd.readouterr()

    assert "carol is let in" in told.err
    assert "carol: not connected, lacks 1" in told.err
    assert "/import PATH" in told.err
    assert "1 message and 0 acknowledgements" in told.out
    os.close(typed)


def test_count_ends_a_talk_that_stays(tmp_path, typed):
    """A talk that stays behind the end of stdin ends with so many messages."""
    os.write(typed, b"one\ntwo\n")
    os.close(typed)

    assert talk(tmp_path, then=lambda alice: None, count=2, stays=True)


def test_disk_that_refuses_ends_the_talk(tmp_path, typed, monkeypatch):
    """A message that the disk does not take ends the talk with the disk's reason."""
    os.write(typed, b"lost\n")

    def refuse(alice):
        def commit(changes):
            raise HostError("the disk is full", exit_code=5)

        monkeypatch.setattr(alice.home.store, "commit", commit)

    with pytest.raises(HostError, match="disk is full"):
        talk(tmp_path, then=refuse)
    os.close(typed)


def test_lost_file_is_written_again(tmp_path, typed, capfd):
    """``/again`` puts into another file what an earlier one had, which ``/export`` does not."""
    lines = [f"/allow {KEY} carol", "hello", *(f"/{word} {tmp_path / word}" for word in ("export", "export", "again"))]
    os.write(typed, ("\n".join(lines) + "\n/again\n/quit\n").encode())
    talk(tmp_path, then=lambda alice: None)
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    assert [event["messages_count"] for event in events if event["event"] == "exported"] == [1, 0, 1]
    assert [event["error"] for event in events if event["event"] == "error"] == ["/again PATH [PEER]"]
    os.close(typed)


@pytest.mark.parametrize(
    ("name", "known", "called"), [("zoë", "", "zoë"), ("zoë", "mine", "mine"), ("taken", "", ""), ("a\x1b", "", "")]
)
def test_who_invites_is_called_as_it_says(tmp_path, name, known, called):
    """The name in an invitation becomes that of its peer, unless it has one, somebody has it, or it is none."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            chat = alice.home.profile.group(bytes(32), b"", CHAT)
            await alice.meet(bytes([9]) * 32, "taken")
            await alice.meet(KEY, known)
            invitation = Invitation(BspUrl.parse(f"bsp+tls://{KEY}@127.0.0.1:1"), chat, name)
            await Talk(alice, ("chat", chat), "alice", as_json=True).open(invitation, [], listen_at=None, after=0)
            return alice.home.peer(KEY).name

    assert asyncio.run(main()) == called


def test_second_line_of_a_message_is_nobody_elses(tmp_path, typed, capfd):
    """A message of several lines stands apart from its first, so that none of them passes for another message."""
    os.close(typed)

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            group = await alice.create_group("chat", format=CHAT)
            await alice.send(group, write_line(Line("mallory", "hi\n12:00 alice: I owe you"), []))
            running = Talk(alice, ("chat", group), "alice", as_json=False)
            await running.open(None, [], listen_at=None, after=0)

    asyncio.run(main())
    first, second = capfd.readouterr().out.splitlines()

    assert first.endswith("mallory: hi")
    assert second == "      12:00 alice: I owe you"


def test_peer_that_is_dialled_in_vain_is_told_once(tmp_path, typed, capfd, monkeypatch):
    """The same reason is said once, however often the peer is dialled meanwhile."""
    hurry(monkeypatch)
    os.close(typed)

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            group = await alice.create_group("chat", format=CHAT)
            await alice.meet(KEY, "carol")
            running = Talk(alice, ("chat", group), "alice", as_json=False)
            await running.open(None, [], listen_at=None, after=0)
            news = alice.news()
            alice.connect(KEY, "bsp+tls://127.0.0.1:1")
            talking = asyncio.ensure_future(running.run(0, stays=True))
            for _ in range(3):
                await next_event(news, lambda event: isinstance(event, PeerUnreachable))
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)

    asyncio.run(main())

    assert capfd.readouterr().err.count("nobody listens on") == 1
