import asyncio
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sdk.build import BOB, RunningDevice, ScriptedRelay, echo
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import ContentType, DeviceMessage, MessageResponse
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.suites import SharedSecrets, suite_hint_of
from waystation.sdk.bhumi.dialect import Dialect, read_answer, write_request
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts

EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
P = [bytes([number]) * 32 for number in range(16)]
FIRST_SCHEMA = """
CREATE TABLE peers (
    id BLOB PRIMARY KEY, alias TEXT NOT NULL, url TEXT NOT NULL, gives_spares INTEGER NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE invites (
    preimage BLOB PRIMARY KEY, hint BLOB NOT NULL, alias TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE issued (
    position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, hint BLOB NOT NULL, peer BLOB NOT NULL
);
CREATE INDEX issued_by_hint ON issued (hint);
CREATE TABLE theirs (position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, peer BLOB NOT NULL);
CREATE TABLE spent (position INTEGER PRIMARY KEY, preimage BLOB NOT NULL UNIQUE, peer BLOB NOT NULL);
CREATE INDEX spent_by_peer ON spent (peer);
CREATE TABLE accepted (preimage BLOB PRIMARY KEY, peer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE pending (
    preimage BLOB PRIMARY KEY, peer BLOB NOT NULL, kind TEXT NOT NULL, payload BLOB NOT NULL, alias TEXT NOT NULL,
    created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE last_response (
    peer BLOB PRIMARY KEY, preimage BLOB NOT NULL, hint BLOB NOT NULL, response BLOB NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
"""
"""What version 1 of the database was, word for word: it must not change with the program."""


def old_database(home):
    """Make a folder as the first version left it: a peer, an invite, two preimages given out, one answer, one right."""
    home.mkdir(exist_ok=True)
    database = sqlite3.connect(home / "bhumi.db")
    database.executescript(FIRST_SCHEMA)
    database.execute("INSERT INTO peers VALUES (?, 'bob', 'tcp://bob:1', 1, 1.0)", (BOB.public,))
    database.execute("INSERT INTO invites VALUES (?, ?, 'eve', 1.0)", (P[1], hint_of(P[1])))
    for preimage in P[2:4]:
        row = (preimage, hint_of(preimage), BOB.public)
        database.execute("INSERT INTO issued (preimage, hint, peer) VALUES (?, ?, ?)", row)
    database.execute("INSERT INTO last_response VALUES (?, ?, ?, x'55', 2e9)", (BOB.public, P[4], hint_of(P[4])))
    database.execute("INSERT INTO theirs VALUES (1, ?, ?)", (P[5], BOB.public))
    database.commit()
    database.close()


def dump(home):
    """Return all of a database as text."""
    database = sqlite3.connect(home / "bhumi.db")
    lines = list(database.iterdump())
    database.close()
    return lines


def test_old_database_is_read(tmp_path):
    """Whom and what the first version knew is there; its peers speak bhumi-v1, and both hints find a preimage."""
    old_database(tmp_path)
    state = BhumiState(tmp_path)
    (bob,) = state.peers()
    by_hint = [[state.find_by_hint(hint(each)) for each in P[1:6]] for hint in (hint_of, suite_hint_of)]
    state.close()

    assert (bob.alias, bob.url, bob.rights, bob.issued, bob.dialect) == ("bob", "tcp://bob:1", 1, 2, Dialect.E2E)
    assert by_hint == [[*P[1:5], None]] * 2


def test_old_database_is_written(tmp_path):
    """Everything that writes a changed table works on a file of the first version."""
    old_database(tmp_path)
    state = BhumiState(tmp_path)
    invite = state.add_invite("zoe", random.Random(1))
    state.answered(P[2], BOB.public, b"answer", [P[6]], None)
    state.answered(P[1], EVE.public, b"hello", [P[7]], HandshakeFacts("eve", "", P[8], Dialect.SUITE_2))
    found = [state.find_by_hint(suite_hint_of(each)) for each in (invite, P[2], P[6], P[1], P[7])]
    dialects = {peer.alias: peer.dialect for peer in state.peers()}
    state.close()

    assert found == [invite, P[2], P[6], P[1], P[7]]
    assert dialects == {"bob": Dialect.E2E, "eve": Dialect.SUITE_2}


def test_old_database_equals_a_new_one(tmp_path):
    """An old file and a fresh one have the same columns afterwards, and opening again changes nothing."""
    for home in (tmp_path / "old", tmp_path / "new"):
        if home.name == "old":
            old_database(home)
        BhumiState(home).close()
    states = [BhumiState(tmp_path / name) for name in ("old", "new")]
    tables = [row[0] for row in states[0].all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    columns = [[state.all(f"PRAGMA table_info({table})") for table in tables] for state in states]
    indexes = [state.all("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name") for state in states]
    for state in states:
        state.close()
    before = dump(tmp_path / "old")
    BhumiState(tmp_path / "old").close()

    assert columns[0] == columns[1]
    assert indexes[0] == indexes[1]
    assert dump(tmp_path / "old") == before


def test_half_migrated_database_is_completed(tmp_path):
    """A file that has some of the columns gets the others."""
    old_database(tmp_path)
    database = sqlite3.connect(tmp_path / "bhumi.db")
    database.execute("ALTER TABLE issued ADD COLUMN suite_hint BLOB")
    database.commit()
    database.close()
    state = BhumiState(tmp_path)
    found = [state.find_by_hint(suite_hint_of(each)) for each in P[1:5]]
    state.close()

    assert found == P[1:5]


def test_two_programs_open_an_old_database_at_once(tmp_path):
    """Both get it migrated; none meets the other's half."""
    old_database(tmp_path)
    BhumiState(tmp_path / "key").close()
    (tmp_path / "key" / "node.key").rename(tmp_path / "node.key")

    def look(_):
        state = BhumiState(tmp_path)
        found = state.find_by_hint(suite_hint_of(P[3]))
        state.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(4))) == [P[3]] * 4


def test_a_dialect_of_a_later_version_is_named(tmp_path):
    """A peer that a later version met in something unknown here is refused with a sentence, not guessed at."""
    old_database(tmp_path)
    state = BhumiState(tmp_path)
    with state.transaction():
        state.run("UPDATE peers SET dialect = 'suite-9'")

    with pytest.raises(HostError, match="'suite-9', which this version does not know"):
        state.peer(BOB.public)
    state.close()


@pytest.mark.parametrize("dialect", [Dialect.E2E, Dialect.SUITE_1, Dialect.SUITE_2])
def test_device_of_an_old_database_understands_suites(tmp_path, dialect):
    """A preimage given out before suites existed is found by its new hint, and the answer is in the same dialect."""
    old_database(tmp_path)

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            own, bobs = SharedSecrets(device.state.key_pair), SharedSecrets(BOB)
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            request = DeviceMessage(ContentType.TEXT, b"hi")
            sealed = write_request(dialect, bobs, own.key_pair.public, P[3], request, random.Random(1))
            relay.send(peer, messages.Deliver(1, sealed))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return read_answer(dialect, bobs, own.key_pair.public, P[3], wire.decode_ack(ack).payload)

    answer = asyncio.run(scenario())

    assert isinstance(answer, MessageResponse)
    assert (answer.status, answer.content) == (0, b"hi")
