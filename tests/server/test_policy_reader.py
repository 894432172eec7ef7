"""Laws of server.policy_reader: what is trusted, what is refused, and what stays in force meanwhile."""

import asyncio
import json
import os
import threading

import pytest
from structlog.testing import capture_logs

from tests.server.build import until
from tests.server.build_policy import HOUR, NODE, OTHER_NODE, policy_part, publish, rule_of, score_of, wall_us
from waystation.core.errors import ConfigError
from waystation.core.ids import decode_key_hex
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.crypto.signing import KeyPair, sign
from waystation.engine.admission import AdmissionRefusal
from waystation.pipeline.publish import load_key, stage
from waystation.rules.lines import encode_line
from waystation.rules.relay_state import State
from waystation.rules.snapshot import (
    CURRENT_BYTES_MAX,
    CURRENT_NAME,
    FILE_BYTES_MAX,
    decode_snapshot,
    encode_snapshot,
    signed_bytes,
)
from waystation.server.config.settings import PolicySettings
from waystation.server.home import Home
from waystation.server.policy_reader import PolicyReader, read_published
from waystation.store.memory import MemoryStore

HOST = "192.0.2.7"


class Reading:
    """A reader over the lake of a home, with what it keeps."""

    def __init__(self, home, store=None, **settings):
        self.lake = home / "lake"
        self.folder = self.lake / "published"
        self.store = store or MemoryStore()
        keep = lambda record: self.store.commit([record])  # noqa: E731
        self.reader = PolicyReader(PolicySettings(**settings), Home(home), NODE, self.store, keep)
        self.reader.policy.set_wall(Instant(0), wall_us())

    @property
    def pointer(self):
        return self.folder / CURRENT_NAME

    def look(self):
        """Look once; return the status."""
        asyncio.run(self.reader.look())
        return self.reader.status()

    def forge(self, **changes):
        """Sign a pointer with other values in some fields with the lake's own key, and put it there."""
        fields = json.loads(self.pointer.read_bytes()) | changes
        snapshot = decode_snapshot(encode_line(fields) + b"\n")
        self.pointer.write_bytes(encode_snapshot(snapshot.signed(sign(load_key(self.lake), signed_bytes(snapshot)))))


def file_with(reading, stem):
    """Return the published file of this stem."""
    files = decode_snapshot(reading.pointer.read_bytes()).files
    return next(reading.folder / entry.name for entry in files if entry.name.startswith(stem))


def test_nothing_published_is_no_trouble(tmp_path):
    """A home without a pipeline has no policy, and nobody is told about it."""
    with capture_logs() as lines:
        status = Reading(tmp_path).look()

    assert (status["snapshot"], status["trouble"], status["sizes"]["rules"]) == ("", "", 0)
    assert lines == []


def test_named_folder_must_have_something(tmp_path):
    """An operator who named a folder hears that nothing is there."""
    reading = Reading(tmp_path, path=str(tmp_path / "lake" / "published"))

    assert "CURRENT.json is missing" in reading.look()["trouble"]


def test_snapshot_is_taken_as_a_whole(tmp_path):
    """Rules, scores and tables of one snapshot come together; rules of another node stay where they are."""
    reading = Reading(tmp_path)
    snapshot = publish(reading.lake, [rule_of()], [score_of()], more=[policy_part([rule_of()] * 1, OTHER_NODE)])
    with capture_logs() as lines:
        status = reading.look()
        reading.look()

    assert (status["snapshot"], status["trouble"]) == (snapshot.snapshot, "")
    assert status["sizes"]["rules"] == 1
    assert 3_590 < status["age_s"] < 3_700
    assert [relay["relay_id"] for relay in reading.reader.relays()] == ["0123456789abcdef"]
    assert json.loads(reading.reader.document("outcomes"))["rows"] == [{"n": 12}]
    assert reading.reader.document("runs") is None
    assert [line["event"] for line in lines] == ["policy.loaded"]


def test_snapshot_is_never_of_negative_age(tmp_path):
    """A moment that our clock has not reached yet, such as the hour that has begun, is no age."""
    reading = Reading(tmp_path)
    publish(reading.lake, [rule_of()])
    reading.forge(as_of=wall_us() + 600_000_000)
    status = reading.look()

    assert (status["trouble"], status["age_s"]) == ("", 0.0)


def test_key_outside_the_home_must_be_named(tmp_path):
    """Only a lake in the node's own home is trusted unasked, also through a link."""
    home, lake = tmp_path / "home", tmp_path / "lake"
    home.mkdir()
    publish(lake, [rule_of()])
    key = load_key(lake).public.hex()
    (home / "lake").symlink_to(lake)

    with pytest.raises(ConfigError, match=r"policy\.key must say who signs"):
        Reading(home, path=str(lake / "published"))
    assert "policy.key must say who signs" in Reading(home).look()["trouble"]
    for settings in ({"path": str(lake / "published")}, {}):
        assert Reading(home, key=key, **settings).look()["sizes"]["rules"] == 1


def test_off_reads_nothing(tmp_path):
    """A node that wants no policy neither reads nor counts; told otherwise, it begins."""
    reading = Reading(tmp_path, mode="off")
    publish(reading.lake, [rule_of()])

    assert reading.look()["snapshot"] == ""
    reading.reader.use(PolicySettings(mode="shadow"))
    assert reading.look()["sizes"]["rules"] == 1


def alter_file(reading):
    path = file_with(reading, f"policy-{NODE}")
    path.write_bytes(path.read_bytes().replace(b'"amount":0', b'"amount":1'))


def swap_nodes(reading):
    mine, other = (file_with(reading, f"policy-{node}") for node in (NODE, OTHER_NODE))
    data = mine.read_bytes()
    mine.write_bytes(other.read_bytes())
    other.write_bytes(data)


def swap_entries(reading):
    files = json.loads(reading.pointer.read_bytes())["files"]
    mine, other = (next(entry for entry in files if node in entry["name"]) for node in (NODE, OTHER_NODE))
    mine["sha256"], other["sha256"] = other["sha256"], mine["sha256"]
    reading.pointer.write_bytes(encode_line(json.loads(reading.pointer.read_bytes()) | {"files": files}) + b"\n")


def cut_file(reading):
    path = file_with(reading, "scores")
    path.write_bytes(path.read_bytes()[:-5])


def grow_file(reading):
    with file_with(reading, "scores").open("r+b") as file:
        file.truncate(FILE_BYTES_MAX + 1)


def grow_pointer(reading):
    reading.pointer.write_bytes(b" " * (CURRENT_BYTES_MAX + 1))


def pipe_for_file(reading):
    path = file_with(reading, "scores")
    path.unlink()
    os.mkfifo(path)


def alter_pointer(reading):
    reading.pointer.write_bytes(reading.pointer.read_bytes().replace(b'"rule_version":"1"', b'"rule_version":"2"'))


def foreign_key(reading):
    snapshot = decode_snapshot(reading.pointer.read_bytes())
    pair = KeyPair.from_seed(b"x" * 32)
    fields = json.loads(encode_snapshot(snapshot)) | {"key": pair.public.hex()}
    snapshot = decode_snapshot(encode_line(fields) + b"\n")
    reading.pointer.write_bytes(encode_snapshot(snapshot.signed(sign(pair, signed_bytes(snapshot)))))


def another_row_count(reading):
    files = json.loads(reading.pointer.read_bytes())["files"]
    reading.forge(files=[entry | {"rows": entry["rows"] + 1} for entry in files])


FAULTS = [
    (alter_file, "its hash is another"),
    (swap_nodes, "its hash is another"),
    (swap_entries, "which is not its hash"),
    (cut_file, "its hash is another"),
    (grow_file, "at most 4194304 are read"),
    (grow_pointer, "at most 65536 are read"),
    (pipe_for_file, "is no file"),
    (lambda reading: file_with(reading, "scores").unlink(), "is missing"),
    (lambda reading: reading.pointer.unlink(), "is missing"),
    (lambda reading: reading.pointer.write_bytes(b""), "something is missing"),
    (lambda reading: reading.pointer.write_bytes(reading.pointer.read_bytes()[:200]), "something is missing"),
    (alter_pointer, "has not the signature"),
    (foreign_key, "is signed by another key"),
    (another_row_count, "rows;"),
    (lambda reading: reading.forge(node_id=OTHER_NODE), "is for the node 8899aabbccddeeff"),
    (lambda reading: reading.forge(as_of=1, expires_at=2), "goes back"),
    (lambda reading: reading.forge(as_of=wall_us() - 2, expires_at=wall_us() - 1), "has expired"),
    (lambda reading: reading.forge(as_of=wall_us() + 25 * HOUR, expires_at=wall_us() + 26 * HOUR), "has not come"),
    (lambda reading: (reading.lake / "publish.key").write_text("x"), "does not hold a key"),
]


@pytest.mark.parametrize(("spoil", "why"), FAULTS)
def test_what_is_not_in_order_changes_nothing(tmp_path, spoil, why):
    """The last good snapshot stays, the fault is said once in the log and as long as it lasts in the status."""
    reading = Reading(tmp_path, mode="enforce")
    reading.reader.policy.use_key(b"k")
    good = publish(reading.lake, [rule_of()])
    reading.look()
    publish(
        reading.lake,
        [rule_of(), rule_of(b"1" * 16)],
        [score_of()],
        as_of_us=good.as_of_us + 1,
        more=[policy_part([rule_of(b"2" * 16)], OTHER_NODE)],
    )
    spoil(reading)
    with capture_logs() as lines:
        status = reading.look()
        reading.look()

    assert why in status["trouble"]
    assert (status["snapshot"], status["sizes"]["rules"]) == (good.snapshot, 1)
    assert reading.reader.relays() == []
    assert [(line["event"], line["kept"]) for line in lines] == [("policy.refused", good.snapshot)]


def test_trouble_ends_with_a_good_snapshot(tmp_path):
    """Once all is in order again, that is what counts, and the same fault would be said again."""
    reading = Reading(tmp_path)
    publish(reading.lake, [])
    alter_pointer(reading)
    reading.look()
    newer = publish(reading.lake, [rule_of()])
    with capture_logs() as lines:
        status = reading.look()
        alter_pointer(reading)
        reading.look()

    assert (status["trouble"], status["snapshot"]) == ("", newer.snapshot)
    assert [line["event"] for line in lines] == ["policy.loaded", "policy.refused"]


def test_restart_does_not_forget_how_far_it_was(tmp_path):
    """An older snapshot of the same key is refused by the node's next life too; the same one is taken."""
    first = Reading(tmp_path)
    old = publish(first.lake, [rule_of()])
    old_pointer = first.pointer.read_bytes()
    publish(first.lake, [], as_of_us=old.as_of_us + 1)
    first.look()
    second = Reading(tmp_path, first.store)
    status = second.look()
    second.pointer.write_bytes(old_pointer)

    assert status["trouble"] == ""
    assert "goes back" in Reading(tmp_path, first.store).look()["trouble"]
    assert Reading(tmp_path).look()["snapshot"] == old.snapshot


def test_everything_decays_to_neutral(tmp_path):
    """When a snapshot ends nobody is kept out and no relay is judged, and the status says why."""
    reading = Reading(tmp_path, mode="enforce")
    policy = reading.reader.policy
    policy.use_key(b"k")
    ref = keyed_reference(b"k", b"net:192.0.2.0/24")
    ends = wall_us() + 60_000_000
    publish(reading.lake, [rule_of(ref)], [score_of(state=State.BLACKLISTED)], lasts_us=ends - wall_us() + HOUR)
    reading.look()
    before = policy.refuses(HOST, Instant(0)), len(policy.scores(Instant(0)))
    later = Instant(120_000_000)

    assert before == (AdmissionRefusal.POLICY_BLOCKED, 1)
    assert (policy.refuses(HOST, later), len(policy.scores(later))) == (None, 0)


def test_end_of_what_is_in_force_is_said(tmp_path):
    """A pipeline that stopped is noticed: the status says that its last snapshot has expired."""
    reading = Reading(tmp_path)
    ends = wall_us() + 100_000
    publish(reading.lake, [], [score_of()], as_of_us=ends - HOUR, lasts_us=HOUR)
    before = reading.look()["trouble"], len(reading.reader.relays())
    until(lambda: wall_us() >= ends)

    assert before == ("", 1)
    assert (reading.look()["trouble"], reading.reader.relays()) == ("CURRENT.json has expired", [])


@pytest.mark.parametrize("times", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_reader_sees_whole_snapshots_only(tmp_path, times):
    """While snapshots are published as fast as may be, each that is read is one of them, and none is refused."""
    lake = tmp_path / "lake"
    folder = lake / "published"
    start = publish(lake, []).as_of_us
    key = load_key(lake).public
    done = threading.Event()

    def publish_on():
        for number in range(times):
            rules = [rule_of(bytes([each]) * 16) for each in range(number % 5)]
            publish(lake, rules, [score_of(score=len(rules) / 10)], as_of_us=start + number)
        done.set()

    writer = threading.Thread(target=publish_on)
    writer.start()
    seen, newest = 0, None
    while not done.is_set():
        found = read_published(folder, NODE, key, newest, wall_us())
        newest = found.snapshot.as_of_us
        seen += 1
        scores = [score.score for score in found.scores.values()]
        assert scores in ([], [len(found.table) / 10])
    writer.join()

    assert seen > 0
    assert read_published(folder, NODE, key, newest, wall_us()).snapshot.as_of_us == start + times - 1


def test_publisher_killed_before_the_pointer_changes_nothing(tmp_path):
    """Files without a pointer to them are nothing yet; the next publish sweeps them."""
    reading = Reading(tmp_path)
    good = publish(reading.lake, [rule_of()])
    stage(reading.folder, [policy_part([rule_of(b"1" * 16)])])
    status = reading.look()
    publish(reading.lake, [rule_of()], as_of_us=good.as_of_us + 1)

    assert (status["snapshot"], status["trouble"]) == (good.snapshot, "")
    assert len(list(reading.folder.glob("policy-*"))) <= 2


def test_key_is_what_the_home_says(tmp_path):
    """A named key is not looked up beside the folder."""
    reading = Reading(tmp_path, key=KeyPair.from_seed(b"x" * 32).public.hex())
    publish(reading.lake, [])

    assert "is signed by another key" in reading.look()["trouble"]
    assert decode_key_hex(load_key(reading.lake).public.hex()) == load_key(reading.lake).public
