import os
import random
import sqlite3
import stat

import pytest

from tests.sdk.build import issue
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.sdk.bhumi import state as bhumi_state
from waystation.sdk.bhumi.pairing import admission
from waystation.sdk.bhumi.pairing.admission import Grant
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts, PendingKind
from waystation.sdk.errors import UnknownPeerError

BOB = KeyPair.from_seed(bytes([0xB2]) * 32).public
EVE = KeyPair.from_seed(bytes([0xE5]) * 32).public
P = [bytes([number]) * 32 for number in range(64)]


class Clock:
    """A clock that a test turns."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(tmp_path, clock):
    opened = BhumiState(tmp_path / "me", clock=clock)
    yield opened
    opened.close()


def meet(state, alias="bob", peer=BOB, *rights):
    state.finish(bytes(32), peer, rights, HandshakeFacts(alias, "tls://r:1"))


def test_identity_is_made_once_and_kept_private(state):
    """The key file is 64 hexadecimal digits with mode 0600 in a folder with mode 0700, and is read back."""
    path = state.home / "node.key"
    again = BhumiState(state.home)

    assert again.identity == state.identity == KeyPair.from_seed(bytes.fromhex(path.read_text())).public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.home.stat().st_mode) == 0o700
    assert {entry.name.split("-")[0] for entry in state.home.iterdir()} == {"node.key", "bhumi.db"}
    again.close()


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "00" * 33])
def test_broken_key_file_is_refused(tmp_path, text):
    """A key file that holds no seed is refused by name, and is not overwritten."""
    (tmp_path / "node.key").touch(mode=0o600)
    (tmp_path / "node.key").write_text(text)

    with pytest.raises(HostError, match=r"node\.key does not hold a key"):
        BhumiState(tmp_path)
    assert (tmp_path / "node.key").read_text() == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_that_others_may_read_is_refused(tmp_path, mode):
    """A key file that group or world may read is refused with the command that mends it, and left as it is."""
    BhumiState(tmp_path).close()
    (tmp_path / "node.key").chmod(mode)

    with pytest.raises(HostError, match=r"run: chmod 600 .*node\.key") as caught:
        BhumiState(tmp_path)
    assert caught.value.exit_code == 4
    assert stat.S_IMODE((tmp_path / "node.key").stat().st_mode) == mode


@pytest.mark.parametrize("before", [None, 0o644])
def test_nobody_else_may_read_preimages(tmp_path, before):
    """In a folder that others may enter, the database and its companions have mode 0600; the folder keeps its own."""
    tmp_path.chmod(0o755)
    if before is not None:
        (tmp_path / "bhumi.db").touch(mode=before)
    state = BhumiState(tmp_path)
    state.add_invite("eve", random.Random(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("bhumi.db*")}
    state.close()

    assert modes == dict.fromkeys(("bhumi.db", "bhumi.db-wal", "bhumi.db-shm"), 0o600)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_folder_that_cannot_be_is_refused(tmp_path):
    """A path below a file is refused with a sentence and the exit code of stores."""
    (tmp_path / "file").touch()

    with pytest.raises(HostError, match="cannot use") as caught:
        BhumiState(tmp_path / "file" / "me")
    assert caught.value.exit_code == 5


def test_database_of_another_kind_is_refused(tmp_path):
    """A file that is no database is refused by the folder's name, and left as it is."""
    (tmp_path / "bhumi.db").write_text("not a database, and long enough to be read as one" * 100)

    with pytest.raises(HostError, match="not a database"):
        BhumiState(tmp_path)


def test_database_is_durable(state):
    """The database runs in WAL mode with full synchronisation."""
    database = sqlite3.connect(state.home / "bhumi.db")

    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert state.first("PRAGMA synchronous") == (2,)
    database.close()


def test_everything_survives(state):
    """What was written is there after opening again."""
    meet(state, "bob", BOB, P[1])
    issue(state, BOB, [P[2]])
    invite = state.add_invite("eve", random.Random(1))
    state.begin_message(P[1], BOB, b"exact bytes")
    state.close()

    again = BhumiState(state.home)

    assert again.find_peer("bob").issued == 1
    assert again.preimages() == [invite, P[2]]
    (pending,) = again.pending()
    assert (pending.preimage, pending.peer, pending.kind, pending.payload) == (
        P[1], BOB, PendingKind.MESSAGE, b"exact bytes",
    )  # fmt: skip
    again.close()


def test_grants(state):
    """A preimage is an invite, a peer's, or nobody's."""
    invite = state.add_invite("eve", random.Random(1))
    issue(state, BOB, [P[1]])

    assert state.grant_of(invite) == Grant(invite, None, "eve")
    assert state.grant_of(P[1]) == Grant(P[1], BOB)
    assert state.grant_of(P[2]) is None


def test_answer_spends_and_issues(state):
    """An answer spends its preimage, issues the next ones, and is found again by preimage and by hint."""
    issue(state, BOB, [P[1]])

    state.answered(P[1], BOB, b"answer", [P[2], P[3]], None)

    assert (state.grant_of(P[1]), state.preimages()) == (None, [P[2], P[3]])
    assert state.response_to(P[1]) == b"answer"
    assert [state.find_by_hint(hint_of(each)) for each in P[1:5]] == [P[1], P[2], P[3], None]


def test_one_answer_per_peer_is_kept(state):
    """Only the last answer to each peer is kept for retries."""
    state.answered(P[1], BOB, b"first", [], None)
    state.answered(P[2], BOB, b"second", [], None)
    state.answered(P[3], EVE, b"other", [], None)

    assert [state.response_to(each) for each in P[1:4]] == [None, b"second", b"other"]
    assert {each.preimage for each in state.recent_responses()} == {P[2], P[3]}


def test_old_answers_are_not_carried(state, clock):
    """Answers are carried to a relay for 300 seconds, newest first."""
    state.answered(P[1], BOB, b"old", [], None)
    clock.now += 200
    state.answered(P[2], EVE, b"new", [], None)
    both = [each.response for each in state.recent_responses()]
    clock.now += 100

    assert both == [b"new", b"old"]
    assert [each.response for each in state.recent_responses()] == [b"new"]


def test_rights_are_used_oldest_first(state):
    """Preimages for a peer come in the order of their arrival; one that was given back is the next."""
    meet(state, "bob", BOB, P[1], P[2])
    state.gain(BOB, [P[3]])
    state.begin_message(P[1], BOB, b"x")
    second = state.next_right(BOB)
    state.give_back(P[1], BOB)

    assert (second, state.next_right(BOB), state.pending()) == (P[2], P[1], [])
    assert state.find_peer("bob").rights == 3


def test_pending_right_is_not_free(state):
    """A preimage that is on its way can be used for nothing else, and is gone for good when it ends."""
    meet(state, "bob", BOB, P[1])

    state.begin_message(P[1], BOB, b"x")
    during = state.next_right(BOB)
    state.finish(P[1], BOB, [P[2]])

    assert (during, state.next_right(BOB), state.pending()) == (None, P[2], [])


def test_handshake_is_pending_and_issues_the_way_back(state):
    """A handshake is recorded with its bytes, and the preimage it hands over is valid from then on."""
    state.begin_handshake(P[1], BOB, b"bytes", "bob", P[2])

    (pending,) = state.pending()
    assert (pending.kind, pending.payload, pending.alias) == (PendingKind.HANDSHAKE, b"bytes", "bob")
    assert state.grant_of(P[2]) == Grant(P[2], BOB)
    state.withdraw(P[2])
    assert state.grant_of(P[2]) is None


def test_what_was_issued_stays_bounded(state):
    """A peer that loses every answer does not fill the state: the oldest preimages go."""
    for each in P[:40]:
        issue(state, BOB, [each])

    kept = state.preimages()
    assert kept == P[40 - bhumi_state.ISSUED_PER_PEER_MAX : 40]


def test_invites_are_bounded(state, monkeypatch):
    """Unused invites have a limit."""
    monkeypatch.setattr(admission, "INVITES_MAX", 2)
    for _ in range(2):
        state.add_invite("", random.Random())

    with pytest.raises(LocalError, match="2 invites"):
        state.add_invite("", random.Random())
    assert len(state.preimages()) == 2


def test_peers_by_name(state):
    """A peer is found by alias or id52; a name that two share, or nobody has, is refused."""
    meet(state, "bob", BOB)
    meet(state, "", EVE)

    assert state.find_peer("bob").identity == state.find_peer(encode_id52(BOB)).identity == BOB
    assert state.find_peer(encode_id52(EVE)).name == encode_id52(EVE)[:8]
    for name in ("zoe", "", encode_id52(P[1])):
        with pytest.raises(UnknownPeerError):
            state.find_peer(name or "nobody")
    meet(state, "bob", EVE)
    with pytest.raises(UnknownPeerError, match="2 peers"):
        state.find_peer("bob")


def test_meeting_again_keeps_the_alias(state):
    """A second handshake without an alias changes the address only."""
    meet(state, "bob", BOB)
    state.finish(bytes(32), BOB, (), HandshakeFacts("", "tls://new:1"))

    assert (state.find_peer("bob").url, len(state.peers())) == ("tls://new:1", 1)


def test_spares_can_be_stopped(state):
    """A peer that knows no spares is remembered as such."""
    meet(state, "bob", BOB)
    before = state.find_peer("bob").gives_spares
    state.stop_spares(BOB)

    assert (before, state.find_peer("bob").gives_spares) == (True, False)


def test_changes_of_others_are_noticed(state):
    """The change mark moves when this or another program writes, and stays when nobody does."""
    other = BhumiState(state.home)
    marks = [state.changes(), state.changes()]
    other.add_invite("x", random.Random(1))
    marks.append(state.changes())
    state.add_invite("y", random.Random(2))
    marks.append(state.changes())
    other.close()

    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


def test_a_failing_change_is_undone(state):
    """When one part of a change fails nothing of it stays, and the error is one of the host."""
    issue(state, EVE, [P[2]])

    with pytest.raises(HostError, match=r"bhumi\.db"):
        state.answered(P[1], BOB, b"answer", [P[2]], None)
    assert state.response_to(P[1]) is None
    assert state.grant_of(P[2]) == Grant(P[2], EVE)


def test_secrets_are_not_shown(state):
    """Preimages and payloads do not appear in what tracebacks print."""
    state.begin_handshake(P[1], BOB, b"secret bytes", "bob", P[2])

    shown = repr([state.pending(), state.grant_of(P[2])])
    assert "secret" not in shown
    assert repr(P[1]) not in shown


def test_two_programs_agree_on_one_identity(tmp_path, monkeypatch):
    """A program that finds the key made between its look and its own try uses that one."""
    real_link = os.link
    rival = KeyPair.from_seed(bytes([7]) * 32)

    def slow_link(fresh, path):
        path.touch(mode=0o600)
        path.write_text(rival.seed.hex())
        real_link(fresh, path)

    monkeypatch.setattr(os, "link", slow_link)

    state = BhumiState(tmp_path)

    assert state.identity == rival.public
    state.close()


def test_a_right_is_gained_once(tmp_path):
    """A preimage that was spent, or was the invite, never becomes a right again; one given back does."""
    state = BhumiState(tmp_path)
    peer, invite, spent, returned = (bytes([n]) * 32 for n in range(4))
    state.finish(invite, peer, [spent, returned], HandshakeFacts("alice", ""))
    state.begin_message(spent, peer, b"")
    state.finish(spent, peer, [spent, invite])
    state.begin_message(returned, peer, b"")
    state.give_back(returned, peer)
    state.gain(peer, [spent, invite, returned])
    found = state.peer(peer).rights, state.next_right(peer), state.inviter_of(invite).alias, state.inviter_of(spent)
    state.close()

    assert found == (1, returned, "alice", None)
