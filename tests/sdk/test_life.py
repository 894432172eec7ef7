"""Laws of sdk.life, and the five clients that keep them."""

import asyncio

import pytest

import waystation
from waystation.errors import (
    ClosedError,
    HostError,
    InUseError,
    LocalError,
    NotOpenError,
    RelayUnreachableError,
    UnknownPeerError,
)
from waystation.sdk.life import Client, Life, Reading

HOST = "lprp://" + "11" * 32 + "@127.0.0.1:9"


def numbers(count):
    """Return a maker of generators that go on with one sequence, and the queue that feeds it."""
    queue = asyncio.Queue()
    for number in range(count):
        queue.put_nowait(number)

    async def source():
        while True:
            yield await queue.get()

    return source, queue


async def merk(home):
    """Return a MERK client that is new, and calls that only an open one allows."""
    keys = waystation.merk.open_keys(home)
    client = waystation.merk.MerkClient("ws://127.0.0.1:9/merk", keys=keys)
    return client, [lambda: client.send("11" * 32, "x"), client.messages, client.reached, client.reconnect]


async def lprp(home):
    """Return an LPRP tenant; as ``merk``."""
    client = waystation.lprp.open(home, HOST, keep_trying=True)
    calls = [lambda: client.send("11" * 32, "x"), client.messages, lambda: client.public_key, client.status]
    lists = [lambda: client.allow("11" * 32), lambda: client.set_whitelist([]), client.whitelist, client.renew]
    return client, [*calls, *lists, client.check_whitelist, client.reconnect]


async def bhumi(home):
    """Return a Bhumi client; as ``merk``."""
    client = waystation.bhumi.open(home, "tcp://127.0.0.1:9", keep_trying=True)
    return client, [
        lambda: client.send("alice", "x"),
        client.requests,
        lambda: client.public_key,
        client.peers,
        client.reconnect,
    ]


async def strata(home):
    """Return a Strata client; as ``merk``."""
    scores = waystation.strata.RelayScores(home / "scores.db")
    client = waystation.strata.ManyRelays(scores, ["ws://127.0.0.1:9/strata"])
    return client, [
        lambda: client.send({"type": "POST"}),
        client.messages,
        lambda: client.get(bytes(32)),
        client.reconnect,
    ]


async def bsp(home):
    """Return a BSP client; as ``merk``."""
    client = waystation.bsp.open(home)
    calls = [lambda: client.send("talk", b"x"), client.messages, client.status, lambda: client.history("talk")]
    return client, [*calls, lambda: client.meet("11" * 32), lambda: client.create_group("x"), client.reconnect]


CLIENTS = [bhumi, bsp, lprp, merk, strata]


async def call(function):
    """Call it, and wait for it if there is something to wait for."""
    result = function()
    if asyncio.iscoroutine(result):
        await result


@pytest.mark.parametrize("wrong", [5, None, 1.5, ["11" * 32]])
@pytest.mark.parametrize("make", [bhumi, lprp])
def test_key_of_a_wrong_type_is_a_sentence(tmp_path, make, wrong):
    """A recipient that is no key at all is the caller's mistake, named by its type; so is a token, and content."""

    async def scenario():
        async with (await make(tmp_path))[0] as client:
            with pytest.raises(LocalError, match=f"a key is a text or 32 bytes, not {type(wrong).__name__}"):
                await client.send(wrong, "x")
            if make is bhumi:
                with pytest.raises(LocalError, match=f"(token|invitation) is a text .*, not {type(wrong).__name__}"):
                    await client.accept(wrong)
                with pytest.raises(UnknownPeerError, match="no peer has the key"):
                    await client.send(client.public_key, "x")
            else:
                with pytest.raises(LocalError, match=f"text or bytes, not {type(wrong).__name__}"):
                    await client.send("11" * 32, wrong)

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [5, None, object(), {"a": 1}])
def test_wrong_types_given_to_merk_are_sentences(tmp_path, wrong):
    """A wrong key says what a key is, and wrong content says what content can be; neither waits for a relay."""

    async def scenario():
        async with open_merk(tmp_path) as client:
            with pytest.raises(LocalError, match=f"a key is a text or 32 bytes, not {type(wrong).__name__}"):
                await client.send(wrong, "x")
            with pytest.raises(LocalError, match=rf"a binary stream, not {type(wrong).__name__}"):
                await client.send("11" * 32, wrong)

    asyncio.run(scenario())


@pytest.mark.parametrize("make", CLIENTS)
def test_open_client_tries_now_as_often_as_it_is_asked(tmp_path, make):
    """NODE-BACK: ``reconnect`` is on all five, returns at once, and harms nothing while there is nobody."""

    async def scenario():
        client, _ = await make(tmp_path)
        client = open_merk(tmp_path) if make is merk else client
        async with client as opened:
            for _ in range(3):
                opened.reconnect()
                await asyncio.sleep(0)

    asyncio.run(scenario())


@pytest.mark.parametrize("make", CLIENTS)
def test_client_that_is_not_open_says_so(tmp_path, make):
    """Every call before ``async with`` raises one error with a sentence, and never an AssertionError."""

    async def scenario():
        _, calls = await make(tmp_path)
        for each in calls:
            with pytest.raises(NotOpenError, match="use it inside `async with`"):
                await call(each)

    asyncio.run(scenario())


def open_merk(home):
    """Return what opens a MERK client."""
    return waystation.merk.open(home, "ws://127.0.0.1:9/merk", keep_trying=True)


def open_strata(home):
    """Return what opens a Strata client."""
    return waystation.strata.open(home, "ws://127.0.0.1:9/strata")


@pytest.mark.parametrize("make", [open_merk, open_strata])
def test_what_open_returns_says_whether_it_is_open(tmp_path, make):
    """Without ``async with`` it is no AttributeError; inside it is the client; and after the end it is closed."""

    async def scenario():
        opening = make(tmp_path)
        for name in ("send", "messages", "public_key"):
            with pytest.raises(NotOpenError, match="is not open yet: use it inside `async with`"):
                getattr(opening, name)
        async with opening as client:
            assert opening.public_key == client.public_key
            with pytest.raises(InUseError, match="open already"):
                await opening.__aenter__()
        with pytest.raises(ClosedError, match="is closed"):
            opening.messages()
        with pytest.raises(ClosedError):
            await opening.__aenter__()

    asyncio.run(scenario())


def test_open_that_fails_gives_its_reason(tmp_path):
    """What cannot be opened raises its own error, and can be used no more than a client that was closed."""

    async def scenario():
        opening = waystation.merk.open(tmp_path, "ws://127.0.0.1:9/merk")
        with pytest.raises(RelayUnreachableError):
            await opening.__aenter__()
        with pytest.raises(ClosedError):
            opening.messages()

    asyncio.run(scenario())


def test_open_without_a_relay_is_the_callers_mistake(tmp_path):
    """No relay at all is no relay that cannot be reached, and a wrong address is told at once."""

    async def scenario():
        for relays, more in (([], {}), ([], {"only": True, "keep_trying": True})):
            with pytest.raises(LocalError, match="no relay is known"):
                await waystation.merk.open(tmp_path, relays, **more).__aenter__()

    asyncio.run(scenario())
    with pytest.raises(LocalError, match="not a WebSocket address"):
        waystation.merk.open(tmp_path, "nonsense")
    with pytest.raises(LocalError, match="not a relay"):
        waystation.strata.open(tmp_path, "nonsense")


@pytest.mark.parametrize("make", [bhumi, bsp, lprp, strata])
def test_client_that_was_closed_says_so(tmp_path, make):
    """Every call after the end raises one error with a sentence; so does opening it again."""

    async def scenario():
        client, calls = await make(tmp_path)
        async with client:
            with pytest.raises(InUseError, match="open already"):
                await client.__aenter__()
        for each in calls:
            with pytest.raises(ClosedError, match="is closed"):
                await call(each)
        with pytest.raises(ClosedError):
            await client.__aenter__()

    asyncio.run(scenario())


def test_merk_client_that_was_closed_says_so(tmp_path):
    """As the others; it begins without waiting for a relay."""

    async def scenario():
        client, calls = await merk(tmp_path)
        client.start()
        with pytest.raises(InUseError):
            client.start()
        await client.aclose()
        for each in calls:
            with pytest.raises(ClosedError):
                await call(each)

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [bhumi, lprp])
def test_two_tasks_cannot_read_one_client(tmp_path, make):
    """A second task is refused in a sentence, and the first one goes on."""

    async def scenario():
        client, _ = await make(tmp_path)
        async with client:
            read = client.requests if make is bhumi else client.messages
            first = asyncio.create_task(anext(read()))
            await asyncio.sleep(0)
            with pytest.raises(InUseError, match="another task reads"):
                await anext(read())
            assert not first.done()
            first.cancel()
            await asyncio.wait([first])
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_what_ends_the_listening_half_reaches_its_reader(tmp_path):
    """A second listener of one identity is told so by ``requests``, not left waiting."""

    async def scenario():
        async with waystation.bhumi.open(tmp_path, "tcp://127.0.0.1:9", keep_trying=True) as one:
            waiting = asyncio.create_task(anext(one.requests()))
            for _ in range(10):  # it takes the lock in its first turns
                await asyncio.sleep(0)
            assert (tmp_path / "device.lock").exists()
            async with waystation.bhumi.open(tmp_path, "tcp://127.0.0.1:9", keep_trying=True) as two:
                with pytest.raises(waystation.errors.HomeBusyError, match="another program listens"):
                    await anext(two.requests())
            waiting.cancel()
            await asyncio.wait([waiting])

    asyncio.run(scenario())


def test_upkeep_that_fails_reaches_the_caller(tmp_path, monkeypatch):
    """An unexpected exception in the background is raised by the next call, and at the end."""
    monkeypatch.setattr("waystation.sdk.strata.many.EVALUATION_S", 0.0)

    async def scenario():
        client, _ = await strata(tmp_path)
        monkeypatch.setattr(client, "evaluate", lambda: 1 / 0)
        await client.__aenter__()
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await client.send({"type": "POST"})
        with pytest.raises(ZeroDivisionError):
            await client.__aexit__()

    asyncio.run(scenario())


def test_fault_of_the_merk_client_reaches_its_reader(tmp_path):
    """A callback of the program that raises ends the wait for a relay and for messages with that very error."""

    def on_event(event):
        raise ZeroDivisionError(type(event).__name__)

    async def scenario():
        keys = waystation.merk.open_keys(tmp_path)
        client = waystation.merk.MerkClient("ws://127.0.0.1:9/merk", keys=keys, on_event=on_event)
        client.start()
        with pytest.raises(ZeroDivisionError, match="Disconnected"):
            await client.reached()
        with pytest.raises(ZeroDivisionError):
            await anext(client.messages())
        with pytest.raises(ZeroDivisionError):
            await client.send("11" * 32, "x")
        await client.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_late", [False, True])
def test_fault_of_the_strata_client_reaches_its_reader(monkeypatch, is_late):
    """A callback that raises ends a subscription with that very error, which waits for no keys of authors then."""
    monkeypatch.setattr("waystation.sdk.strata.relay.KEYS_WAIT_S", 3_600.0)

    def on_event(event):
        raise ZeroDivisionError(type(event).__name__)

    async def scenario():
        client = waystation.strata.RelayClient("ws://127.0.0.1:9/strata", on_event=on_event)
        client.start()
        if is_late:
            with pytest.raises(ZeroDivisionError):
                await client.reached()
        async with asyncio.timeout(20), client.subscribe() as packets:
            with pytest.raises(ZeroDivisionError, match="Disconnected"):
                await anext(packets)
        with pytest.raises(ZeroDivisionError):
            await client.reached()
        await client.aclose()

    asyncio.run(scenario())


def test_fault_of_the_tenant_reaches_its_reader(tmp_path, monkeypatch):
    """What ends the look at the folder is raised by ``messages``."""
    monkeypatch.setattr("waystation.sdk.lprp.tenant.LOOK_S", 0.0)

    async def scenario():
        client = waystation.lprp.open(tmp_path, HOST, keep_trying=True)
        async with client:
            monkeypatch.setattr(client.state, "changes", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await anext(client.messages())

    asyncio.run(scenario())


def test_cancelled_reader_takes_nothing_with_it():
    """The iterator of a task that was cancelled while it waited goes on with the next item."""

    async def scenario():
        source, queue = numbers(1)
        reading = Reading(set(), "numbers", source)
        first = await anext(reading)
        waiting = asyncio.create_task(anext(reading))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        queue.put_nowait(1)
        return first, await anext(reading)

    assert asyncio.run(scenario()) == (0, 1)


def test_reader_that_cannot_go_on_says_so():
    """Where a new generator would begin anew, the iterator of a cancelled task ends in a sentence, not in silence."""

    async def scenario():
        source, _ = numbers(0)
        reading = Reading(set(), "numbers", source, resumes=False)
        waiting = asyncio.create_task(anext(reading))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(ClosedError, match="call it again"):
            await anext(reading)

    asyncio.run(scenario())


def test_part_of_a_client_that_is_still_opening():
    """What is not there yet is not an AssertionError either."""
    life = Life("the client")
    life.open()

    with pytest.raises(NotOpenError, match="still opening"):
        life.part(None)
    assert life.part("there") == "there"


def test_client_that_cannot_be_opened_is_closed():
    """What keeps it from opening comes out, its parts are closed, and it cannot be opened again."""

    class Broken(Client):
        def __init__(self):
            self._life = Life("the client")
            self.closed_count = 0

        async def _open(self):
            raise HostError("no disk")

        async def aclose(self):
            self.closed_count += 1
            self._life.close()

    async def scenario():
        client = Broken()
        for error in (HostError, ClosedError):
            with pytest.raises(error):
                await client.__aenter__()
        return client.closed_count

    assert asyncio.run(scenario()) == 1
