"""Kept mail in a home's store: what ``backup``, ``restore`` and ``check`` make of it (MERK-MAIL)."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner

import waystation
from tests.store.build_rot import flip_column
from tools.served import ServedNode
from waystation.cli import app
from waystation.sdk.merk import Outcome

LETTERS = ["one", "two", "three"]
run = CliRunner()


def bounded(scenario):
    """Run clients, and give up on those that hang."""

    async def limited():
        async with asyncio.timeout(60):
            return await scenario

    return asyncio.run(limited())


async def leave_letters(folder, url):
    """Let Bob open a mailbox and go, and Alice write to him."""
    async with waystation.merk.open(folder / "bob", url, only=True, mailbox=True) as bob:
        await bob.mailbox.open()
    async with waystation.merk.open(folder / "alice", url, only=True) as alice:
        return [(await alice.send(bob.public_key, text)).outcome for text in LETTERS]


async def letters_of_bob(folder, url, count):
    """Return so many texts that Bob's program takes, and how his mailbox is."""
    texts = []
    async with waystation.merk.open(folder / "bob", url, only=True) as bob:
        async for message in bob.messages():
            texts.append(message.text)
            if len(texts) == count:
                break
        return texts, (await bob.mailbox.state()).state.name


async def write_once_more(folder, url):
    """Return the outcome of a stranger's message to Bob, who is away."""
    async with waystation.merk.open(folder / "bob", url, only=True) as bob:
        key = bob.public_key
    async with waystation.merk.open(folder / "carol", url, only=True) as carol:
        return (await carol.send(key, "four")).outcome


def deep_check(home):
    """Return the exit code of ``check --deep`` and its findings by name."""
    result = run.invoke(app, ["check", str(home), "--deep", "--json"])
    return result.exit_code, {each["name"]: each["says"] for each in json.loads(result.stdout)["findings"]}


@pytest.fixture
def node(tmp_path):
    """A node in a process of its own, with three letters for Bob."""
    node = ServedNode(tmp_path / "node", "merk").start()
    try:
        assert bounded(leave_letters(tmp_path, node.address_of("merk"))) == [Outcome.STORED] * len(LETTERS)
        yield node
    finally:
        node.close()


def test_a_backup_of_a_live_node_has_the_mail(tmp_path, node):
    """Restored into another folder it gives each letter to its owner, in order, and keeps on taking mail."""
    backup, home = tmp_path / "backup", tmp_path / "new"
    saved = run.invoke(app, ["backup", str(backup), "--home", str(node.home)])
    node.kill()
    restored = run.invoke(app, ["restore", str(backup), "--home", str(home)])
    code, found = deep_check(home)
    again = ServedNode(home, "merk").start()
    try:
        url = again.address_of("merk")
        texts, state = bounded(letters_of_bob(tmp_path, url, 3))
        outcome = bounded(write_once_more(tmp_path, url))
        assert again.stop() == 0
    finally:
        again.close()

    assert (saved.exit_code, restored.exit_code, code) == (0, 0, 0)
    assert found["merk_mail"] == "3 rows are whole"
    assert found["merk_mailboxes"] == "1 rows are whole"
    assert (texts, state) == (LETTERS, "OPEN")
    assert outcome is Outcome.STORED


def test_check_names_a_damaged_letter(tmp_path, node):
    """One bit costs one letter: the others are given to their owner."""
    assert node.stop() == 0
    store = node.home / "store.sqlite"
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT rowid FROM records WHERE tbl = 'merk_mail' ORDER BY key").fetchall()
    flip_column(store, "records", rows[1][0], "value")
    code, found = deep_check(node.home)
    node.start()
    texts = bounded(letters_of_bob(tmp_path, node.address_of("merk"), 2))

    assert code == 1
    assert found["merk_mail"].startswith("1 of 3 rows are damaged")
    assert texts == (["one", "three"], "OPEN")
