"""The whole node on homes that have lost something: it does not start without a word (NODE-MARK)."""

import shutil

import pytest

from tests.server.build import NodeProcess, run_serve
from waystation.core.ids import encode_id52
from waystation.server.home import Home

BAN = {"subject": "192.0.2.9", "reason": "acknowledged"}


def test_fresh_home_is_a_warning_with_its_key(tmp_path):
    """A node that makes a key says so in its log once; the next start on that home does not."""
    node = NodeProcess(tmp_path / "home").start()
    first = node.log()
    assert node.stop() == 0
    again = NodeProcess(tmp_path / "home").start()
    second = again.log()
    assert again.stop() == 0

    assert "home.made" in first
    assert encode_id52(Home(tmp_path / "home").key_pair().public) in first
    assert "home.made" not in second.removeprefix(first)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (("store.sqlite-wal", "store.sqlite-shm"), "store.sqlite-wal is missing"),
        (("store.sqlite", "store.sqlite-wal", "store.sqlite-shm"), "store.sqlite is missing"),
        (("node.key",), "node.key is missing"),
    ],
    ids=["log", "store", "key"],
)
def test_loss_after_a_kill_stops_the_start(tmp_path, lost, words):
    """What was acknowledged before kill -9 and is gone is told with exit code 5, and put back it is all there."""
    home, aside = tmp_path / "home", tmp_path / "aside"
    node = NodeProcess(home).start()
    assert node.ask("POST", "/admin/v1/bans", BAN, node.token)[0] == 201
    node.kill()
    aside.mkdir()
    for name in lost:
        shutil.move(home / name, aside / name)
    refused = run_serve(home)
    for name in lost:
        assert not (home / name).exists()
        shutil.move(aside / name, home / name)
    healed = NodeProcess(home).start()
    status, body = healed.ask("GET", "/admin/v1/bans", token=healed.token)

    assert refused.returncode == 5
    assert words in refused.stderr
    assert "waystation check --accept" in refused.stderr
    assert status == 200
    assert "192.0.2.9" in str(body)
    assert healed.stop() == 0
