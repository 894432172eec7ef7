"""Laws of a home's trust at a real node: what a relay has shown is learnt by senders, too, and used by every dial."""

import asyncio
import contextlib
import datetime
import random

import pytest

from tests.sdk.build import QUICK, RunningDevice, echo
from tests.server.build import eventually
from tools.served import ServedNode
from waystation.crypto.certificates import der_of, make_local_certificates
from waystation.crypto.hashing import sha256
from waystation.sdk.bhumi import AuthorityLearned, BhumiState, PeerOffline, RelayBook, RelayQuality, Sender
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, RelayAuthorities
from waystation.sdk.bhumi.probe import Prober, QaVerdict
from waystation.sdk.errors import RelayUnreachableError
from waystation.server.certificates.succession import Succession
from waystation.server.home import Home
from waystation.transport.tls import client_context

YEARS_9 = datetime.timedelta(days=3_300)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node in the last year of its authority: it has the next one."""
    served = ServedNode(tmp_path_factory.mktemp("node"), "bhumi")
    home = Home(served.home)
    home.ensure()
    succession = Succession(home)
    while not home.next_ca_path.exists():
        assert succession.advance(datetime.datetime.now(datetime.UTC) + YEARS_9) is not None
    served.start()
    yield served
    assert served.stop() == 0


def place(node):
    """Return the node's address by the name that is in its certificate."""
    return node.address_of("bhumi").replace("127.0.0.1", "localhost")


def authority(node, name="ca.pem"):
    """Return an authority of the node in DER."""
    home = Home(node.home)
    return der_of((home.ca_path if name == "ca.pem" else home.next_ca_path).read_bytes())


def another(tmp_path):
    """Return a context that trusts an authority which the node's certificate does not come from."""
    path = tmp_path / "another.pem"
    path.write_bytes(make_local_certificates(["localhost"], datetime.datetime.now(datetime.UTC)).ca_pem)
    return client_context(path)


def test_device_and_sender_learn_the_next_authority(node, tmp_path):
    """Each keeps both and reports the one that it did not know; a second time it is no news."""
    tls = client_context(Home(node.home).ca_path)

    async def scenario():
        events = []
        async with RunningDevice(tmp_path / "alice", place(node), echo, tls=tls) as alice:
            await alice.listening()
            (learned,) = await alice.until(AuthorityLearned)
            state = BhumiState(tmp_path / "bob")
            async with Sender(state, place(node), tls=tls, timeouts=QUICK, on_event=events.append) as bob:
                await bob.accept(alice.token(), alias="alice")
                await bob.send("alice", "hi")
            async with Sender(state, place(node), tls=tls, timeouts=QUICK, on_event=events.append) as bob:
                await bob.send("alice", "hi again")
            kept = RelayAuthorities(state).of(place(node))
            state.close()
            return learned, events, kept

    learned, events, kept = asyncio.run(scenario())

    news = AuthorityLearned(place(node), sha256(authority(node, "next")))
    assert learned == news and events == [news]
    assert sorted(kept) == sorted([authority(node), authority(node, "next")])


def test_every_dial_uses_what_was_learnt(node, tmp_path):
    """With another --ca than the node's, sending, watching, asking where somebody is and probing work all the same."""
    given = another(tmp_path)

    async def scenario():
        events = []
        state = BhumiState(tmp_path / "bob")
        async with RunningDevice(
            tmp_path / "alice", place(node), echo, tls=client_context(Home(node.home).ca_path)
        ) as alice:
            # Before it listens, so that the relay has the commits when it does.
            first, second = alice.token(), alice.token()
            await alice.listening()
            async with Sender(state, place(node), tls=given, timeouts=QUICK) as bob:
                with pytest.raises(RelayUnreachableError, match="not trusted"):
                    await bob.accept(first, alias="alice")
            RelayAuthorities(state).keep(place(node), authority(node))
            trust = HomeTrust(given, RelayAuthorities(state))
            places = ()
            while not places:
                places = await Guide(tls=trust).where(place(node), alice.state.identity)
            async with Sender(state, place(node), tls=given, timeouts=QUICK, on_event=events.append) as bob:
                await bob.accept(second, alias="alice")
                reply = await bob.send("alice", "hi")
                bob.watch("alice")
                alice.task.cancel()
                await eventually(lambda: [each for each in events if isinstance(each, PeerOffline)], "a report")
            with (
                contextlib.closing(RelayBook(tmp_path / "bob")) as book,
                contextlib.closing(RelayQuality(tmp_path / "bob")) as quality,
            ):
                rng = random.Random(1)
                prober = Prober(RelayChoice(place(node), book, quality, rng), quality, trust, rng)
                verdict, _ = await prober.probe(place(node), 30)
        state.close()
        return reply.text, len(places), verdict

    assert asyncio.run(scenario()) == ("hi", 1, QaVerdict.OK)
