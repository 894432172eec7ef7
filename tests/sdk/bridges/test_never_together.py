"""Three members that are never online together, and between them a mailbox that always is, over every way there is.

The members come one after the other, each in its folder, and go again; each meets nobody but the mailbox, which is no
member and keeps the group for the first of them. What must hold in the end: equal sets, causal order, each message
delivered once by each of them, then silence, and no body left at the mailbox.
"""

import asyncio
import contextlib
import dataclasses

import pytest

from tests.sdk.bsp.build import chained, hurry, key_of, peer_in
from tests.sdk.bsp.build_carrier import run
from tests.sdk.build import LoopbackRelay
from tests.sdk.lprp.build import QUICK as QUICK_TENANT
from tests.sdk.lprp.build import HostServer, until
from tests.sdk.merk.build import QUICK, RelayServer
from waystation.core.instant import Instant
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bsp.device.member import Usage
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.merk.messages import MessageType
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.bridges.bhumi import BspOverBhumi
from waystation.sdk.bridges.lprp import BspOverLprp
from waystation.sdk.bridges.merk import BspOverMerk, merk_keys_of
from waystation.sdk.bsp import BspHome, BspUrl, Delivered
from waystation.sdk.bsp.mailbox import MailboxOwner
from waystation.sdk.identity import put_key

READING_WINDOWS = 2
"""The last ones, in which nobody writes: they bring what is missing."""
NUMBERS = {"A": 2, "B": 3, "C": 4}
"""What the members' keys are made from."""
LONG = b"\x77" * 32_000
CALM_S = 0.1
QUIET_S = 0.3
EMPTY_ANSWER_BYTES_MAX = 300
"""Of a Bhumi response without a bundle: preimage, envelope, next preimage and a relay's address."""


class Counted:
    """A carrier whose bundles are counted."""

    def __init__(self, carrier):
        self.carrier = carrier
        self.terms = carrier.terms
        self.bundle_bytes_max = carrier.bundle_bytes_max
        self.reaches = carrier.reaches
        self.open = carrier.open
        self.close = carrier.close
        self.bundles_count = 0

    async def carry(self, peer, bundle):
        self.bundles_count += 1
        await self.carrier.carry(peer, bundle)


class Way:
    """How devices come to the one between; ``traffic`` tells how much was said so far."""

    windows = "ABCABCAB"
    """Who is there, one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.carriers = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def traffic(self):
        """Return what must not grow any more in the end."""
        return sum(carrier.bundles_count for carrier in self.carriers)

    async def attach(self, peer, carrier):
        """Use a carrier, counted."""
        self.carriers.append(Counted(carrier))
        await peer.attach(self.carriers[-1])

    async def ask(self, _peer, _between, work):
        """Do what needs an answer of the one between."""
        await work

    async def meet(self, peer, between, group):
        """Wait until both hold the same, and know it."""
        await until(lambda: are_in_step(peer, between, group))


class OverTls(Way):
    """The one between listens, the others dial it, through a wire on which bytes are counted."""

    def __init__(self, folder):
        super().__init__(folder)
        self._bytes_count = 0
        self._tasks = set()

    async def __aexit__(self, *_):
        self._wire.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def join(self, peer, between, _stack):
        if peer is between:
            self._place = BspUrl.parse(await between.listen())
            self._wire = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        else:
            port = self._wire.sockets[0].getsockname()[1]
            peer.connect(between.key, str(dataclasses.replace(self._place, port=port)))
            await until(lambda: any(each.link for each in peer.status().peers))

    def traffic(self):
        return self._bytes_count

    async def _connect(self, reader, writer):
        to, back = await asyncio.open_connection(self._place.host, self._place.port)
        for source, sink in ((reader, back), (to, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)

    async def _pass(self, source, sink):
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                self._bytes_count += len(data)
                sink.write(data)
                await sink.drain()
        sink.close()


class OverFiles(Way):
    """Somebody carries files to the one between and back, as long as there are any."""

    async def join(self, peer, between, _stack):
        """Nothing reaches anybody by itself."""

    async def ask(self, peer, between, work):
        asking = asyncio.create_task(work)
        while not asking.done():
            await self._carry(peer, between)
            await self._carry(between, peer)
            await wait(0.01)
        await asking

    async def meet(self, peer, between, group):
        while not are_in_step(peer, between, group):
            assert await self._carry(peer, between) + await self._carry(between, peer) > 0

    async def _carry(self, giver, taker):
        file = await giver.export_file(taker.key, self.folder / f"{self.traffic()}.bsp")
        if file.path is None:
            return 0
        await taker.import_file(file.path)
        return 1

    def traffic(self):
        return len(list(self.folder.glob("*.bsp")))


class OverMerk(Way):
    """All are clients of one relay of the mesh."""

    async def __aenter__(self):
        self.relay = await RelayServer().__aenter__()
        return self

    async def __aexit__(self, *details):
        await self.relay.__aexit__(*details)

    async def join(self, peer, _between, _stack):
        keys = merk_keys_of(peer.home.key_pair)
        carrier = BspOverMerk(self.relay.url, keys=keys, only=True, **QUICK)
        await self.attach(peer, carrier)
        await until(lambda: carrier.merk.relay)

    def traffic(self):
        return super().traffic(), len(self.relay.of_kind(MessageType.ENCRYPTED_DATA))


class OverBhumi(Way):
    """The one between listens and has invited the others; ``listens`` says whether they listen, too."""

    def __init__(self, folder, *, listens=True):
        super().__init__(folder)
        self._listens = listens

    async def __aenter__(self):
        self.relay = await LoopbackRelay().__aenter__()
        return self

    async def __aexit__(self, *details):
        await self.relay.__aexit__(*details)

    async def join(self, peer, between, stack):
        home = self.folder / "bhumi" / peer.key.hex()[:8]
        put_key(home / "node.key", peer.home.key_pair)
        state = stack.enter_context(contextlib.closing(BhumiState(home)))
        listens = self._listens or peer is between
        carrier = BspOverBhumi(state, self.relay.url, listens=listens, poll_first_s=0.02, look_s=0.01)
        await self.attach(peer, carrier)
        if peer is between:
            self.inviter = carrier
        elif not state.peers():
            await carrier.accept(self.inviter.invite())
        if peer is not between:
            await until(lambda: carrier.reaches(between.key))

    def traffic(self):
        answers_count = sum(len(payload) > EMPTY_ANSWER_BYTES_MAX for _, payload in self.relay.of_type(FrameType.ACK))
        return super().traffic(), answers_count, len(self.relay.of_type(FrameType.SEND)) if self._listens else 0


class OverLprp(Way):
    """All are tenants of one host, which is there for those who are not."""

    windows = "ABCAB"  # each window costs a lease and the work for it

    async def __aenter__(self):
        self.host = await HostServer().__aenter__()
        return self

    async def __aexit__(self, *details):
        await self.host.__aexit__(*details)

    async def join(self, peer, _between, _stack):
        home = self.folder / "lprp" / peer.key.hex()[:8]
        carrier = BspOverLprp(home, self.host.host, key_pair=peer.home.key_pair, settings=QUICK_TENANT)
        await self.attach(peer, carrier)
        await until(lambda: carrier.tenant.status().lease_until_ms)


def are_in_step(peer, between, group):
    """Return whether two devices hold the same messages, delivered, and know it of each other."""
    return _ids(peer, group) == _ids(between, group) and not _owed(peer, between) and not _owed(between, peer)


def _ids(peer, group):
    return {message.message_id for message in peer.history(group)}


def _owed(peer, other):
    return next(each.owed_count for each in peer.status().peers if each.key == other.key)


async def note(news, heard):
    """Write down what a device delivers of each group, in its order."""
    async for event in news:
        if isinstance(event, Delivered):
            heard.setdefault(event.group_id, []).append(event.message_id)


async def live_through(way, folder):
    """Let everybody come and go; return the group, what each has heard, what each holds, and what was said last."""
    heard, held, group = {name: {} for name in "MABC"}, {}, None
    async with way, contextlib.AsyncExitStack() as stays:
        between = await stays.enter_async_context(peer_in(folder / "M", 1, owners=[key_of(NUMBERS["A"])]))
        noting = asyncio.create_task(note(between.news(), heard["M"]))
        await way.join(between, between, stays)
        for number, name in enumerate(way.windows):
            async with contextlib.AsyncExitStack() as stack:
                peer = await stack.enter_async_context(peer_in(folder / name, NUMBERS[name]))
                stack.callback(asyncio.create_task(note(peer.news(), heard[name])).cancel)
                group = group or await peer.create_group("all", format="deps_v1")
                await peer.meet(between.key)
                await peer.join(group)
                await peer.share(group, between.key)  # before we are there, else what comes at once is nothing to us
                await way.join(peer, between, stack)
                if number == 0:
                    await way.ask(peer, between, host(peer, between, group))
                if number < len(way.windows) - READING_WINDOWS:
                    await write(peer, group, b"%d by %s" % (number, name.encode()))
                await way.meet(peer, between, group)
                await calm(way)
                held[name] = peer.history(group)
                if number == len(way.windows) - 1:
                    said = way.traffic()
                    await wait(QUIET_S)
                    said = said, way.traffic()
        held["M"] = between.history(group)
        await until(lambda: not between.status().sizes["hosted_bodies"])
    await asyncio.wait([noting])
    return group, {name: each[group.group_id] for name, each in heard.items()}, held, said


async def host(owner, mailbox, group):
    """Have a group kept for all three."""
    others = [await owner.meet(key_of(NUMBERS[name])) for name in "BC"]
    await MailboxOwner(owner, mailbox.key).host(group, others)


def usage_on_disk(folder, group):
    """Return what a group weighs in a home that nobody works with."""
    with contextlib.closing(BspHome(folder)) as home:
        device = BspDevice(home.profile, home.store)
        device.join(group, Instant(0))
        return device.usage(group.group_id)


async def write(peer, group, text):
    """Add three messages, each depending on the two before it here; one of them is about as long as can be."""
    for part in (b" one", b" two", LONG if text.startswith(b"0") else b" three"):
        last = [message.message_id for message in peer.history(group)][-2:]
        await peer.send(group, chained(text + part, *last))


async def calm(way):
    """Wait until nothing is said for a moment: the last acknowledgement may be under way."""
    before = None
    while before != (before := way.traffic()):
        await wait(CALM_S)


async def wait(seconds):
    """Let some time pass in which nothing should happen."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    "way",
    [
        OverTls,
        OverFiles,
        OverMerk,
        OverBhumi,
        pytest.param(lambda folder: OverBhumi(folder, listens=False), id="OverBhumi, polling"),
        OverLprp,
    ],
)
def test_three_that_are_never_online_together(tmp_path, monkeypatch, way):
    """Equal sets, causal order, each delivered once, then silence, and nothing but names left at the mailbox."""
    hurry(monkeypatch)
    chosen = way(tmp_path)
    group, heard, held, (before, after) = run(lambda: live_through(chosen, tmp_path), timeout_s=60)

    everything = {message.message_id for message in held["A"]}
    above = {message.message_id: message.dependencies for message in held["A"]}
    assert len(everything) == 3 * (len(chosen.windows) - READING_WINDOWS)
    for name in "MABC":
        places = {message_id: place for place, message_id in enumerate(heard[name])}
        assert {message.message_id for message in held[name]} == everything
        assert sorted(heard[name]) == sorted(everything)
        assert all(places[each] < places[message_id] for message_id in everything for each in above[message_id])
    assert all(message.body is not None for name in "ABC" for message in held[name])
    assert after == before
    assert usage_on_disk(tmp_path / "M", group) == Usage(0, 0, len(everything))
