import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.cli.build import in_a_thread
from tests.sdk.strata.build import RelayServer
from waystation.core.effects import Send
from waystation.core.errors import LocalError, WaystationError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.identity import format_identity, revoke_key, rotate_key
from waystation.protocols.strata.messages import Filters
from waystation.sdk.errors import OutcomeUnknownError
from waystation.sdk.identity import save_identity_file
from waystation.sdk.relay_scores import RelayScores
from waystation.sdk.strata.key_change import KeyChange, begin_change, finish_change, new_rotation, pending_change
from waystation.sdk.strata.keys import KEY_FILE, create_identity, load_identity
from waystation.sdk.strata.many import ManyRelays

SKEW_S = 60
FRESH = KeyPair.from_seed(b"\x77" * 32)

FORKS = """
import os, signal, sys
from waystation.cli import main
from waystation.cli.strata import commands

home, steps = sys.argv[1], 0
WATCHED = ("open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree", "socket.connect")

def die_at(last):
    def step(name, args):
        global steps
        if name not in WATCHED or (name != "socket.connect" and home not in str(args[0])):
            return
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)

for line in sys.stdin:
    last, *words = line.split()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        die_at(int(last))
        try:
            main(["strata", *words, "--home", home])
        except SystemExit as ended:
            os.write(int(sys.argv[2]), b"%d\\n" % steps)
            os._exit(ended.code)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Runs commands in forks of itself, and kills each at a step: before it touches a file of the home, or connects."""


class Relay(RelayServer):
    """A relay whose clock a test moves, and whose OKs do not arrive while it is mute."""

    shift_us = 0
    mute = False

    def __init__(self, **settings):
        self.dropped = threading.Event()
        super().__init__(clock_skew_s=SKEW_S, **settings)

    @property
    def now(self):
        return Instant(super().now + self.shift_us)

    def later(self, seconds):
        self.shift_us += seconds * MICROSECONDS_PER_SECOND

    def _perform(self, effect):
        if self.mute and isinstance(effect, Send) and b'"type":"OK"' in effect.data:
            self.dropped.set()
        else:
            super()._perform(effect)


class Command:
    """Commands of one home, killed where a test says."""

    def __init__(self, home, url):
        self._url = url
        self._counts, counts = os.pipe()
        self._forks = subprocess.Popen(
            [sys.executable, "-c", FORKS, str(home), str(counts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, pass_fds=(counts,),
        )  # fmt: skip
        os.close(counts)

    def close(self):
        self._forks.communicate()
        os.close(self._counts)

    def begin(self, *words, last=0):
        print(last, *words, "--relay", self._url, file=self._forks.stdin, flush=True)
        return int(self._forks.stdout.readline())

    def status(self):
        return int(self._forks.stdout.readline())

    def run(self, *words, last=0):
        self.begin(*words, last=last)
        return self.status()

    def steps(self, *words):
        assert self.run(*words) == 0
        return int(os.read(self._counts, 16))


def _survives(tmp_path, kills, seed):
    """Kill rotations at drawn steps, and behind OKs that were lost; the DID must sign when one has come to its end."""
    home, rng, relay = tmp_path / "me", random.Random(seed), Relay()
    did = create_identity(home).did
    killed, rotations = 0, 0
    with in_a_thread(relay) as url, contextlib.closing(Command(home, url)) as command:
        steps = command.steps("keys", "rotate")
        while killed < kills:
            for _ in range(rng.randrange(1, 4)):
                relay.mute = rng.random() < 0.5
                relay.dropped.clear()
                child = command.begin("keys", "rotate", last=0 if relay.mute else rng.randrange(1, steps + 1))
                if relay.mute:
                    assert relay.dropped.wait(20)
                    os.kill(child, signal.SIGKILL)
                killed += os.WIFSIGNALED(command.status())
                relay.later(rng.choice((0, SKEW_S + 10)))
            relay.mute = False
            key_id = load_identity(home).key_id
            assert command.run("keys", "rotate") == 0
            rotations += load_identity(home).key_id != key_id
            relay.later(SKEW_S + 10)
            assert command.run("publish", "hello") == 0
    assert load_identity(home).did == did
    assert pending_change(home) is None
    assert rotations > kills // 4


def test_no_kill_and_no_lost_answer_costs_the_name(tmp_path):
    """Wherever `keys rotate` is killed, the next one ends it, and the name signs, 20 times."""
    _survives(tmp_path, 20, 1)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_no_kill_and_no_lost_answer_costs_the_name_two_hundred_times(tmp_path):
    """As above, 200 times, at other steps."""
    _survives(tmp_path, 200, 2)


@contextlib.asynccontextmanager
async def folder(tmp_path, **settings):
    """Give a folder with an identity, a relay, and what connects to it."""
    home = tmp_path / "me"
    create_identity(home)
    async with Relay(**settings) as relay:
        with contextlib.closing(RelayScores(home / "scores.db")) as scores:
            yield home, relay, lambda identity: ManyRelays(scores, [relay.url], only=True, identity=identity)


def test_a_second_change_does_not_overwrite_the_first(tmp_path):
    """What waits is kept as it is, and comes back as it was written."""
    home = tmp_path / "me"
    me = create_identity(home)
    change = begin_change(home, new_rotation(me, FRESH, int(time.time())))
    with pytest.raises(LocalError, match="another change of keys is under way"):
        begin_change(home, KeyChange(me, revoke_key(me, me.key_id, int(time.time()))))

    assert pending_change(home) == change


def test_a_rotation_whose_answer_was_lost_is_sent_again_as_it_was(tmp_path):
    """The relay has it once, however often and late it is sent, and the folder has the new key then."""

    async def main():
        async with folder(tmp_path) as (home, relay, connect):
            change = begin_change(home, new_rotation(load_identity(home), FRESH, int(time.time())))
            async with connect(load_identity(home)) as client:
                await client.send(change.packet)
            relay.later(SKEW_S + 10)
            finished = await finish_change(home, pending_change(home), connect)

            assert finished.relays == (relay.url,)
            assert load_identity(home) == change.identity
            assert pending_change(home) is None
            async with connect(load_identity(home)) as client:
                events = client.messages(Filters(types=("KEY_EVENT",)), follow=False)
                assert [each.packet async for each in events] == [change.packet]

    asyncio.run(main())


@pytest.mark.parametrize("stored", [False, True])
def test_a_rotation_of_an_earlier_version_is_taken_up(tmp_path, stored):
    """Its file has the key alone: the relay is asked for the event, and where it has none a new one is signed."""

    async def main():
        async with folder(tmp_path) as (home, relay, connect):
            me = load_identity(home)
            packet, renewed = rotate_key(me, FRESH, "keys-new", int(time.time()) - 5)
            save_identity_file(home / "next" / KEY_FILE, format_identity(renewed))
            if stored:
                async with connect(me) as client:
                    await client.send(packet)
                relay.later(SKEW_S + 10)
            await finish_change(home, pending_change(home), connect)

            assert load_identity(home).key_pair == FRESH
            assert pending_change(home) is None
            async with connect(load_identity(home)) as client:
                assert (await client.send({"type": "POST", "text": "still here"})).ok

    asyncio.run(main())


def test_a_rotation_that_became_too_old_is_signed_again_with_the_same_key(tmp_path):
    """It had never reached a relay; a day later relays do not take it any more."""

    async def main():
        async with folder(tmp_path) as (home, _, connect):
            change = begin_change(home, new_rotation(load_identity(home), FRESH, int(time.time()) - 90_000))
            await finish_change(home, pending_change(home), connect)

            assert load_identity(home).key_pair == FRESH
            assert pending_change(home) is None
            async with connect(load_identity(home)) as client:
                assert (await client.send({"type": "POST", "text": "still here"})).ok
            assert change.packet is not None

    asyncio.run(main())


def test_a_relay_that_demands_auth_takes_the_rotation_up_from_the_new_key(tmp_path):
    """The old key is not admitted any more, and the relay has the event: the new key asks for the answer."""

    async def main():
        async with folder(tmp_path, anonymous=[]) as (home, relay, connect):
            change = begin_change(home, new_rotation(load_identity(home), FRESH, int(time.time())))
            async with connect(load_identity(home)) as client:
                assert (await client.send(change.packet)).ok
            relay.later(SKEW_S + 10)
            await finish_change(home, pending_change(home), connect)

            assert load_identity(home) == change.identity

    asyncio.run(main())


def test_a_refused_revocation_does_not_wait(tmp_path):
    """Nothing is lost with it, and the next change must not stand behind it; an unanswered one is kept."""

    async def main():
        async with folder(tmp_path) as (home, relay, connect):
            me = load_identity(home)
            old = begin_change(home, KeyChange(me, revoke_key(me, me.key_id, int(time.time()) - 90_000)))
            with pytest.raises(WaystationError, match="invalid_timestamp"):
                await finish_change(home, old, connect)
            assert pending_change(home) is None
            lost = begin_change(home, KeyChange(me, revoke_key(me, me.key_id, int(time.time()))))
            relay.mute = True
            with pytest.raises(OutcomeUnknownError):
                async with asyncio.timeout(20):
                    await finish_change(home, lost, lambda identity: _Hasty(connect(identity)))
            assert pending_change(home) == lost
            relay.mute = False
            assert (await finish_change(home, lost, connect)).relays == (relay.url,)
            assert json.loads((home / KEY_FILE).read_text())["key_id"] == me.key_id

    asyncio.run(main())


class _Hasty:
    """A client that waits half a second for an answer, not 90."""

    def __init__(self, many):
        self._many = many

    async def __aenter__(self):
        client = await self._many.__aenter__()
        send = client.send
        client.send = lambda packet, **options: send(packet, timeout_s=0.5, **options)
        return client

    async def __aexit__(self, *ended):
        await self._many.__aexit__(*ended)
