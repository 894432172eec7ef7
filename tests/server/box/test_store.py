"""Laws of server.box_store."""

import hashlib
import os
import subprocess
import sys

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.server.box.limits import BoxLimits
from waystation.server.box.refusals import BoxRefusal, BoxRefusedError
from waystation.server.box.store import (
    FILE_BYTES_MAX,
    Action,
    BoxStore,
    FileEntry,
    add_owner,
    owner_names,
    remove_owner,
)


@pytest.fixture
def path(tmp_path):
    """Return where the box is."""
    return tmp_path / "box"


def box_with_contact(path, limits=BoxLimits()):  # noqa: B008 - immutable
    """Return an open box, the owner's hash, and one contact."""
    token = add_owner(path, "alice")
    store = BoxStore(path, limits)
    owner = store.find(token).owner
    return store, owner, store.add_contact(owner)


def name_of(data):
    """Return what a file must be called."""
    return hashlib.sha256(data).hexdigest()


def put(store, folder, data):
    """Keep a file under its name."""
    return store.put(folder, name_of(data), data)


def refusal_of(call, *arguments):
    """Return why a call was refused."""
    with pytest.raises(BoxRefusedError) as caught:
        call(*arguments)
    return caught.value.refusal


def test_file_comes_back_and_can_be_deleted(path):
    """Put, list, get and delete do what they say; a repeat is told apart."""
    store, _, contact = box_with_contact(path)
    folder = contact.to_owner
    first, second = put(store, folder, b"one"), put(store, folder, b"two")
    again = put(store, folder, b"one")
    listed = store.files(folder)
    read = store.get(folder, name_of(b"two"))
    store.delete(folder, name_of(b"one"))

    assert (first, second, again) == (True, True, False)
    assert listed == [FileEntry(name_of(b"one"), 3), FileEntry(name_of(b"two"), 3)]
    assert read == b"two"
    assert store.files(folder) == listed[1:]
    assert refusal_of(store.get, folder, name_of(b"one")) is BoxRefusal.UNKNOWN_FILE
    assert refusal_of(store.delete, folder, name_of(b"one")) is BoxRefusal.UNKNOWN_FILE


def test_everything_is_there_after_a_restart(path):
    """Owners, contacts, tokens, files and their order, and what they weigh."""
    store, owner, contact = box_with_contact(path)
    for number in range(5):
        data = b"file %d" % number
        put(store, contact.to_contact, data)
        os.utime(path / "folders" / contact.to_contact / name_of(data), (100 - number, 100 - number))
    again = BoxStore(path)

    assert again.find(contact.token).contact == store.find(contact.token).contact
    assert again.contacts(owner) == store.contacts(owner)
    assert again.files(contact.to_contact) == store.files(contact.to_contact)[::-1]
    assert again.sizes() == store.sizes() == {"owners": 1, "contacts": 1, "files": 5, "bytes": 30}


def test_half_done_work_of_a_killed_node_is_put_away(path):
    """Files and contacts that were being written, folders whose contact is not there, and folders that are missing."""
    store, _, contact = box_with_contact(path)
    put(store, contact.to_owner, b"whole")
    (path / "folders" / contact.to_owner / ".half").write_bytes(b"ha")
    (path / "contacts" / ".half.json").write_bytes(b"{")
    (path / "folders" / ("0" * 64)).mkdir()
    (path / "folders" / ("0" * 64) / name_of(b"x")).write_bytes(b"x")
    (path / "folders" / contact.to_contact).rmdir()
    again = BoxStore(path)

    assert again.sizes() == {"owners": 1, "contacts": 1, "files": 1, "bytes": 5}
    assert sorted(each.name for each in (path / "folders").iterdir()) == sorted([contact.to_owner, contact.to_contact])
    assert [each.name for each in (path / "folders" / contact.to_owner).iterdir()] == [name_of(b"whole")]
    assert put(again, contact.to_contact, b"y")


def test_killed_while_writing_loses_nothing_that_was_kept(path):
    """A process that is killed at any moment leaves every file whose put had returned, and no other than whole ones."""
    _, _, contact = box_with_contact(path)
    script = (
        "import hashlib, sys; from pathlib import Path; from waystation.server.box.store import BoxStore\n"
        "store = BoxStore(Path(sys.argv[1]))\n"
        "for number in range(10_000):\n"
        "    data = (b'%d ' % number) * 2_000\n"
        "    store.put(sys.argv[2], hashlib.sha256(data).hexdigest(), data)\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path), contact.to_owner], stdout=subprocess.PIPE, text=True
    )
    told = [process.stdout.readline() for _ in range(20)]
    process.kill()
    told += process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    store = BoxStore(path)
    files = store.files(contact.to_owner)

    assert len(told) <= len(files) <= len(told) + 1
    assert all(name_of(store.get(contact.to_owner, entry.file_id)) == entry.file_id for entry in files)


@pytest.mark.parametrize(
    ("file_id", "data", "refusal"),
    [
        ("../../../etc/passwd", b"x", BoxRefusal.BAD_NAME),
        ("", b"x", BoxRefusal.BAD_NAME),
        (name_of(b"x").upper(), b"x", BoxRefusal.BAD_NAME),
        (name_of(b"x") + "\n", b"x", BoxRefusal.BAD_NAME),
        (name_of(b"x")[:-1], b"x", BoxRefusal.BAD_NAME),
        (name_of(b"y"), b"x", BoxRefusal.OTHER_BYTES),
        (name_of(b""), b"", BoxRefusal.FILE_EMPTY),
        (name_of(bytes(FILE_BYTES_MAX + 1)), bytes(FILE_BYTES_MAX + 1), BoxRefusal.FILE_TOO_LARGE),
    ],
)
def test_files_that_are_not_taken(path, file_id, data, refusal):
    """A name that is none, or that of other bytes; nothing, and too much."""
    store, _, contact = box_with_contact(path)

    assert refusal_of(store.put, contact.to_owner, file_id, data) is refusal
    assert store.sizes()["files"] == 0


def test_largest_file_is_taken(path):
    """1 MiB fits."""
    store, _, contact = box_with_contact(path)

    assert put(store, contact.to_owner, bytes(FILE_BYTES_MAX))


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (BoxLimits(folder_files_max=3), BoxRefusal.FOLDER_FULL),
        (BoxLimits(folder_bytes_max=30), BoxRefusal.FOLDER_FULL),
        (BoxLimits(files_max=3), BoxRefusal.BOX_FULL),
    ],
)
def test_room_has_bounds(path, limits, refusal):
    """Three files of ten bytes fit, a fourth does not, nor after a restart; one that goes makes room."""
    store, _, contact = box_with_contact(path, limits)
    files = [b"file no. %d" % number for number in range(4)]
    for data in files[:3]:
        put(store, contact.to_owner, data)
    first = refusal_of(put, store, contact.to_owner, files[3])
    store = BoxStore(path, limits)
    second = refusal_of(put, store, contact.to_owner, files[3])
    store.delete(contact.to_owner, name_of(files[0]))

    assert {len(data) for data in files} == {10}
    assert (first, second) == (refusal, refusal)
    assert put(store, contact.to_owner, files[3])


def test_contacts_have_a_bound(path):
    """Two of two, and no third; one that goes makes room."""
    store, owner, contact = box_with_contact(path, BoxLimits(contacts_max=2))
    store.add_contact(owner)
    refusal = refusal_of(store.add_contact, owner)
    store.remove_contact(owner, contact.to_owner)

    assert refusal is BoxRefusal.CONTACTS_FULL
    assert store.add_contact(owner)


def test_files_go_one_way(path):
    """The owner reads what comes, a contact what is for it; the owner may look after both folders."""
    store, owner, contact = box_with_contact(path)
    holders = {"owner": store.find(add_owner(path, "bob")), "contact": store.find(contact.token)}
    holders["owner"] = next(holder for holder in store._tokens.values() if holder.owner == owner and not holder.contact)
    answers = {}
    for who, holder in holders.items():
        for folder in ("to_owner", "to_contact"):
            for action in Action:
                try:
                    answers[who, folder, action] = store.check(holder, getattr(contact, folder), action)
                except BoxRefusedError as error:
                    answers[who, folder, action] = error.refusal

    refused = {place for place, answer in answers.items() if answer is BoxRefusal.NOT_ALLOWED}
    assert refused == {
        ("owner", "to_owner", Action.PUT),
        ("contact", "to_owner", Action.READ),
        ("contact", "to_contact", Action.PUT),
    }
    assert {answer for place, answer in answers.items() if place not in refused} == {None}


def test_folders_of_others_are_not_there(path):
    """Another owner, its contacts, and other contacts of the same owner find nothing."""
    store, owner, contact = box_with_contact(path)
    stranger = store.find(add_owner(path, "bob"))
    theirs = store.add_contact(stranger.owner)
    second = store.add_contact(owner)
    for token in (theirs.token, second.token):
        assert refusal_of(store.check, store.find(token), contact.to_contact, Action.READ) is BoxRefusal.UNKNOWN_FOLDER

    assert refusal_of(store.check, stranger, contact.to_owner, Action.READ) is BoxRefusal.UNKNOWN_FOLDER
    assert refusal_of(store.check, stranger, "../owners", Action.READ) is BoxRefusal.UNKNOWN_FOLDER
    assert refusal_of(store.remove_contact, stranger.owner, contact.to_owner) is BoxRefusal.UNKNOWN_CONTACT
    assert store.contacts(stranger.owner) == [store.find(theirs.token).contact]


def test_removed_contact_leaves_nothing(path):
    """Token, files and folders are gone, also after a restart."""
    store, owner, contact = box_with_contact(path)
    put(store, contact.to_owner, b"x")
    store.remove_contact(owner, contact.to_owner)

    for each in (store, BoxStore(path)):
        assert each.find(contact.token) is None
        assert each.sizes() == {"owners": 1, "contacts": 0, "files": 0, "bytes": 0}
    assert not [*(path / "folders").iterdir(), *(path / "contacts").iterdir()]
    assert refusal_of(store.files, contact.to_owner) is BoxRefusal.UNKNOWN_FOLDER


def test_owners_come_and_go_while_the_box_is_open(path):
    """The list is read when it has changed; with an owner go its contacts and files."""
    store = BoxStore(path)
    token = add_owner(path, "alice")
    other = add_owner(path, "bob")
    contact = store.add_contact(store.find(token).owner)
    put(store, contact.to_owner, b"x")
    names = owner_names(path)
    remove_owner(path, "alice")

    assert names == ["alice", "bob"]
    assert store.find(token) is None
    assert store.find(contact.token) is None
    assert store.find(other) is not None
    assert store.sizes() == {"owners": 1, "contacts": 0, "files": 0, "bytes": 0}


def test_new_owner_of_an_old_name_is_another(path):
    """Forgetting and setting up again gives nobody the old contacts."""
    store, _, contact = box_with_contact(path)
    remove_owner(path, "alice")
    token = add_owner(path, "alice")
    again = BoxStore(path)

    assert again.contacts(again.find(token).owner) == []
    assert (again.find(contact.token), store.find(contact.token)) == (None, None)


@pytest.mark.parametrize("token", ["", "x", "0" * 63, "0" * 65, "G" * 64, "é" * 64, "0" * 64])
def test_other_tokens_are_nobodys(path, token):
    """Text of another form, and one that was never made."""
    store, _, _ = box_with_contact(path)

    assert store.find(token) is None


def test_no_token_is_on_the_disk(path):
    """Whoever reads the disk learns hashes; files are for their owner alone."""
    token = add_owner(path, "alice")
    store = BoxStore(path)
    contact = store.add_contact(store.find(token).owner)
    kept = [each for each in path.rglob("*") if each.is_file()]

    assert len(kept) == 2
    assert not [each for each in kept if token in each.read_text() or contact.token in each.read_text()]
    assert {each.stat().st_mode & 0o777 for each in kept} == {0o600}
    assert {each.stat().st_mode & 0o777 for each in path.rglob("*") if each.is_dir()} == {0o700}


@pytest.mark.parametrize("name", ["", "Alice", "a b", "../x", ".x", "-x", "x" * 33, "x/y"])
def test_bad_names_of_owners(path, name):
    """A name is a file's: a-z, 0-9, - and _."""
    with pytest.raises(LocalError, match="no name for an owner"):
        add_owner(path, name)


def test_owners_are_set_up_once(path):
    """A second setup does not take the first one's place, and only who is there can be forgotten."""
    add_owner(path, "alice")
    with pytest.raises(LocalError, match="already"):
        add_owner(path, "alice")
    with pytest.raises(LocalError, match="no owner 'bob'"):
        remove_owner(path, "bob")

    assert owner_names(path) == ["alice"]
    assert owner_names(path / "elsewhere") == []


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"owner": 1}'])
def test_damaged_contact_is_told(path, damage):
    """The file is named, and what to do."""
    store, _, contact = box_with_contact(path)
    (path / "contacts" / f"{contact.to_owner}.json").write_text(damage)

    with pytest.raises(HostError, match="damaged; remove it"):
        BoxStore(path)
    assert store.sizes()["contacts"] == 1


def test_damaged_owner_is_told(path):
    """A file in the list of owners that holds no hash."""
    add_owner(path, "alice")
    (path / "owners" / "alice").write_text("secret")

    with pytest.raises(HostError, match="holds no SHA-256"):
        BoxStore(path)


def test_disk_that_refuses_is_told(path):
    """A file where a folder should be ends in a sentence."""
    path.write_text("")

    with pytest.raises(HostError, match="cannot open the box"):
        BoxStore(path)


def test_file_that_somebody_removed_is_unknown(path):
    """What is not on the disk any more is not served."""
    store, _, contact = box_with_contact(path)
    put(store, contact.to_owner, b"x")
    (path / "folders" / contact.to_owner / name_of(b"x")).unlink()

    assert refusal_of(store.get, contact.to_owner, name_of(b"x")) is BoxRefusal.UNKNOWN_FILE
