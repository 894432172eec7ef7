"""Laws of sdk.bsp_box, against a real box and against one that lies."""

import asyncio
import hashlib
import json

import pytest

from tests.server.box.build import box_on_port
from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.sdk.bsp.box import FILE_BYTES_MAX, BoxClient, BoxFile, BoxFolders
from waystation.sdk.errors import BoxRefusedError

ID = "a" * 64


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """Return an open box."""
    with box_on_port(tmp_path_factory.mktemp("box") / "box") as box:
        yield box


def refusal_of(awaitable):
    """Return status and word of a refusal."""
    with pytest.raises(BoxRefusedError) as caught:
        asyncio.run(awaitable)
    return caught.value.status, caught.value.refusal


def test_files_go_both_ways(box):
    """Owner and contact put, list, get and delete; a repeat is no second file."""

    async def scenario():
        owner = BoxClient(box.url, box.owner)
        contact = await owner.add_contact()
        friend = BoxClient(box.url + "/", contact.token)
        folders = await friend.folders()
        for writer, reader, folder in ((friend, owner, folders.to_owner), (owner, friend, folders.to_contact)):
            entries = [await writer.put(folder, b"sealed") for _ in range(2)]
            assert entries == [BoxFile(hashlib.sha256(b"sealed").hexdigest(), 6)] * 2
            assert await reader.files(folder) == entries[:1]
            assert await reader.get(folder, entries[0].file_id) == b"sealed"
            seen = (await owner.contacts())[-1]
            await reader.delete(folder, entries[0].file_id)
            assert await reader.files(folder) == []
        await owner.remove_contact(contact.to_owner)
        return contact, folders, seen, await owner.contacts()

    contact, folders, seen, left = asyncio.run(scenario())

    assert folders == BoxFolders(contact.to_owner, contact.to_contact)
    assert (seen.to_owner, seen.files_count, seen.size_bytes) == (contact.to_owner, 1, 6)
    assert left == []


def test_refusals_keep_their_word(box):
    """What the box says no to is told with its status and word."""
    owner = BoxClient(box.url, box.owner)

    assert refusal_of(owner.files(ID)) == (404, "unknown_folder")
    assert refusal_of(owner.folders()) == (403, "not_allowed")
    assert refusal_of(owner.remove_contact(ID)) == (404, "unknown_contact")
    assert refusal_of(BoxClient(box.url, ID).contacts()) == (401, "bad_token")


def test_another_address_is_told(box):
    """A place that is no box gives no word, and a hint."""
    with pytest.raises(BoxRefusedError, match="is this the address of a box") as caught:
        asyncio.run(BoxClient(f"{box.url}/elsewhere", box.owner).contacts())

    assert (caught.value.status, caught.value.refusal) == (404, "")


@pytest.mark.parametrize("token", ["", "x", "A" * 64, "a" * 63, "a" * 65])
def test_bad_tokens_are_not_sent(token):
    """A token of another form is the caller's mistake."""
    with pytest.raises(LocalError):
        BoxClient("http://127.0.0.1:1", token)


@pytest.mark.parametrize(
    "ask",
    [
        lambda box: box.put(ID, b""),
        lambda box: box.put(ID, bytes(FILE_BYTES_MAX + 1)),
        lambda box: box.put("x", b"x"),
        lambda box: box.files("../x"),
        lambda box: box.get(ID, "x"),
        lambda box: box.delete("x", ID),
        lambda box: box.remove_contact("x"),
    ],
)
def test_what_no_box_takes_is_not_sent(ask):
    """Files and identifiers are looked at before anything is connected."""
    with pytest.raises(LocalError):
        asyncio.run(ask(BoxClient("http://127.0.0.1:1", ID)))


def test_file_that_is_too_large_is_not_counted():
    """Nobody reads a file to its end to say how long it is."""
    with pytest.raises(LocalError, match="1 to 1,048,576 bytes, this has more"):
        asyncio.run(BoxClient("http://127.0.0.1:1", ID).put(ID, bytes(FILE_BYTES_MAX + 1)))


def test_nobody_there_is_told():
    """A box that cannot be reached is a host's failure."""
    with pytest.raises(HostError, match="cannot fetch"):
        asyncio.run(BoxClient("http://127.0.0.1:1", ID).contacts())


def lie(ask, answer):
    """Return what a client makes of a box that says ``answer`` to everything."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await ask(BoxClient(f"http://127.0.0.1:{port}", ID))

    return asyncio.run(run())


LIES = [
    b"",
    b"[]",
    b"{}",
    b"[" * 100_000,
    *(json.dumps({"files": each, "contacts": each}).encode() for each in (1, [1], [{}])),
]


@pytest.mark.parametrize("answer", LIES)
@pytest.mark.parametrize(
    "ask", [BoxClient.contacts, BoxClient.add_contact, BoxClient.folders, lambda box: box.files(ID)]
)
def test_lies_of_a_box_are_told(ask, answer):
    """An answer that is none ends in one error."""
    with pytest.raises(RemoteError, match="none of a box"):
        lie(ask, answer)


def test_identifiers_of_a_box_are_checked():
    """A box cannot make its client ask for another path, or write another file."""
    answer = json.dumps({"files": [{"id": "../../x", "bytes": 1}]}).encode()

    with pytest.raises(RemoteError, match="none of a box"):
        lie(lambda box: box.files(ID), answer)


def test_other_bytes_are_noticed():
    """What comes back must be what was left there."""
    with pytest.raises(RemoteError, match="other bytes"):
        lie(lambda box: box.get(ID, ID), b"forged")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("https://example.org", True),
        ("http://example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://10.0.0.1:1", False),
    ],
)
def test_tokens_go_in_the_clear_only_within_the_machine(url, allowed):
    """A box elsewhere is spoken to over TLS."""
    if allowed:
        assert BoxClient(url, ID)
    else:
        with pytest.raises(LocalError, match="https"):
            BoxClient(url, ID)
