"""Laws of a whole node whose store takes no writes (NODE-REFUSED, NODE-FLOOR, NODE-GONE).

``tests/soak/faults/test_table.py`` tries the same with clients of all five protocols.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from soak.shims.preload import Shims, Word
from tests.disk import fill, small_disk
from tests.server.build import NodeProcess, exchange, key_pair, run_serve, until
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.errors import RequestRefusedError, WaystationError
from waystation.sdk.strata.relay import RelayClient
from waystation.store.writer_thread import HUNG_S

AUTHOR = Identity.of(key_pair(4))
FLOOR_MIB = 1_048_576
"""More than any disk of a test has free."""


def publish(node, text):
    """Publish a post; return "stored", or why the relay refused it."""

    async def story():
        async with RelayClient(node.url("strata"), identity=AUTHOR) as client:
            try:
                await client.post({"type": "POST", "text": text}, timeout_s=60)
            except RequestRefusedError as error:
                return f"{error.code} {error.detail}"
            return "stored"

    return asyncio.run(story())


def publish_into_silence(node):
    """Publish to a node that ends without an answer."""
    with contextlib.suppress(WaystationError):
        publish(node, "no answer")


def exchanges(node, number):
    """Return whether a Bhumi exchange between two clients comes to its end."""
    preimage = bytes([number]) * 32
    with node.client() as device, node.client() as sender:
        device.identify(key_pair(number), preimage)
        return bool(exchange(device, sender, key_pair(number), preimage))


def is_ready(node):
    return node.ask("GET", "/readyz")[0] == 200


def test_floor_of_free_space_refuses_and_lets_go_when_it_is_lowered(tmp_path):
    """Below it Strata refuses and Bhumi goes on; status, metrics and readyz say so, and a reload ends it."""
    node = NodeProcess(tmp_path / "home", tables=f"[store]\nfree_mib_least = {FLOOR_MIB}\n")
    with node.start():
        until(lambda: not is_ready(node), "the look at the disk")
        refused, goes_on = publish(node, "no"), exchanges(node, 7)
        ready, metrics = node.ask("GET", "/readyz"), node.ask("GET", "/metrics")[1]
        (trouble, *_) = node.ask("GET", "/admin/v1/status")[1]["trouble"]
        (node.home / "node.toml").write_text("[store]\nfree_mib_least = 0\n")
        node.signal(signal.SIGHUP)
        until(lambda: is_ready(node), "the end of the fault")
        after = publish(node, "yes")

    assert (refused, goes_on, after) == ("internal_error not_stored", True, "stored")
    assert ready == (503, {"ok": False, "why": "store: full", "since": ready[1]["since"]})
    assert 'waystation_store_fault{kind="full"} 1.0' in metrics
    assert trouble.startswith("since ") and f"store.free_mib_least keeps {FLOOR_MIB}" in trouble


def test_home_that_is_moved_stops_acknowledgements_until_it_is_back(tmp_path):
    """What would be acknowledged could not be found; when the folder is back, the same node takes it."""
    with NodeProcess(tmp_path / "home", store__free_mib_least="0").start() as node:
        token = node.token
        before = publish(node, "before")
        node.home.rename(tmp_path / "away")
        refused = publish(node, "meanwhile")
        ready = node.ask("GET", "/readyz", token=token)
        for each in node.home.rglob("*") if node.home.exists() else ():
            assert each.is_dir() or "journal" in each.parts or "archive" in each.parts, each
        if node.home.exists():  # the journal has begun a new one
            node.home.rename(tmp_path / "left-over")
        (tmp_path / "away").rename(node.home)
        until(lambda: is_ready(node), "the end of the fault")
        after = publish(node, "after")

    assert (before, refused, after) == ("stored", "internal_error not_stored", "stored")
    assert ready == (503, {"ok": False, "why": "store: gone", "since": ready[1]["since"]})


def test_store_that_is_written_over_stops_acknowledgements_for_good(tmp_path):
    """NODE-GONE: nothing is acknowledged into it, file and log are left as they are, and no start takes them."""
    with NodeProcess(tmp_path / "home").start() as node:
        assert publish(node, "early") == "stored"
        store = node.home / "store.sqlite"
        early = store.read_bytes()
        os.utime(store)  # a file with another time is looked at, and the log folded in
        until(lambda: store.read_bytes() != early, "a fold of the log")
        assert publish(node, "late") == "stored"
        with store.open("r+b") as file:
            file.write(early)
            file.truncate()
        refused = publish(node, "lost")
        until(lambda: not is_ready(node), "the fault")
        ready = node.ask("GET", "/readyz")[1]["why"]
        (trouble, *_) = node.ask("GET", "/admin/v1/status")[1]["trouble"]
        code, log = node.stop(), node.log()
        is_log_kept = (node.home / "store.sqlite-wal").stat().st_size > 0
        again = run_serve(node.home, {"admin.listen": "127.0.0.1:0"})

    assert (refused, ready, code) == ("internal_error not_stored", "store: overwritten", 5)
    assert "has written over the store" in trouble and "waystation restore" in trouble
    assert is_log_kept and "the file and its log are left as they are" in log and "Traceback" not in log
    assert again.returncode == 5 and "is older than its log" in again.stderr


@pytest.mark.parametrize("suffix", ["-wal", "-shm", ""])
def test_deleted_file_of_an_idle_node_is_noticed(tmp_path, suffix):
    """NODE-GONE: within seconds, also when nobody writes; an orderly end keeps everything that can be kept."""
    with NodeProcess(tmp_path / "home").start() as node:
        assert publish(node, "before") == "stored"
        (node.home / f"store.sqlite{suffix}").unlink()
        until(lambda: not is_ready(node), "the fault")
        ready, refused = node.ask("GET", "/readyz")[1]["why"], publish(node, "no")
        code = node.stop()

    assert (ready, refused, code) == ("store: gone", "internal_error not_stored", 0)


@pytest.fixture
def shims(tmp_path):
    """What makes the disk of a home hang."""
    with Shims(tmp_path / "shims", tmp_path / "home", "io_faults") as made:
        yield made


def hung_node(tmp_path, shims):
    """Return a started node whose disk hangs, as it says itself, with a post under way; its log is on another disk."""
    node = NodeProcess(tmp_path / "home")
    node._log_path = tmp_path / "node.log"
    node.environment = shims.environment
    node.start()
    assert publish(node, "before") == "stored"
    shims[Word.HUNG] = 1
    return node


def events(node):
    return [json.loads(line) for line in node.log().splitlines() if '"event": "store.' in line]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_write_that_does_not_return_is_a_fault_that_ends_by_itself(tmp_path, shims):
    """NODE-HUNG: told, refused by name, Bhumi goes on; what was under way is answered truly when it returns."""
    with hung_node(tmp_path, shims) as node, ThreadPoolExecutor(1) as clients:
        began_s = time.time()
        under_way = clients.submit(publish, node, "under way")
        until(lambda: not is_ready(node), "the fault")
        ready, metrics = node.ask("GET", "/readyz"), node.ask("GET", "/metrics")[1]
        (trouble, *_) = node.ask("GET", "/admin/v1/status")[1]["trouble"]
        refused, goes_on = publish(node, "no"), exchanges(node, 11)
        is_open = not under_way.done()
        shims[Word.HUNG] = 0
        answered = under_way.result(20)
        until(lambda: is_ready(node), "the end of the fault")
        after, said = publish(node, "after"), events(node)

    assert (refused, goes_on, is_open, answered, after) == ("internal_error not_stored", True, True, "stored", "stored")
    assert ready == (503, {"ok": False, "why": "store: hung", "since": pytest.approx(began_s + HUNG_S, abs=15)})
    assert 'waystation_store_fault{kind="hung"} 1.0' in metrics
    assert f"has not returned for {HUNG_S:g} s" in trouble
    assert [(line["event"], line["kind"]) for line in said] == [("store.failed", "hung"), ("store.recovered", "hung")]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not yet told"])
def test_node_ends_although_a_write_does_not_return(tmp_path, shims, is_told):
    """NODE-HUNG: SIGTERM ends it within a bounded time, exit 5 and a sentence; all that was acknowledged is there."""
    with hung_node(tmp_path, shims) as node, ThreadPoolExecutor(1) as clients:
        lost = clients.submit(publish_into_silence, node)
        if is_told:
            until(lambda: not is_ready(node), "the fault")
        node.signal(signal.SIGTERM)
        code = node.process.wait(60)
        lost.result()
        shims[Word.HUNG] = 0
        why = node.log()
        node.wait()
        node.start()
        assert node.stop() == 0
    with closing(sqlite3.connect(node.home / "store.sqlite")) as store:
        kept = [row for (row,) in store.execute("SELECT canonical FROM packets") if b'"before"' in row]

    assert (code, len(kept)) == (5, 1)
    assert "did not take the last writes within" in why and "Traceback" not in why


@pytest.mark.slow
def test_disk_that_fills_is_told_and_goes_on_when_there_is_room(tmp_path):
    """The node stays, refuses by name, serves Bhumi, and takes packets again without help; one line each tells it."""
    with small_disk(tmp_path / "disk", 8) as disk, NodeProcess(disk / "home", store__free_mib_least="0") as node:
        log = tmp_path / "node.log"
        node._log_path = log
        node.start()
        before = publish(node, "before")
        stuffing = fill(disk)
        until(lambda: publish(node, "x" * 20_000) != "stored", "a full disk")
        refused, goes_on, running = publish(node, "no"), exchanges(node, 9), node.running
        ready = node.ask("GET", "/readyz")
        stuffing.unlink()
        until(lambda: is_ready(node), "the end of the fault")
        after = publish(node, "after")
        events = [line for line in log.read_text().splitlines() if '"store.' in line]

    assert (before, refused, goes_on, running, after) == ("stored", "internal_error not_stored", True, True, "stored")
    assert ready == (503, {"ok": False, "why": "store: full", "since": ready[1]["since"]})
    assert ["store.failed" in line for line in events] == [True, False] and "store.recovered" in events[1]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "words"), [("full", "the disk is full"), ("read only", "Read-only file system")])
def test_disk_that_takes_no_write_is_exit_5_in_words(tmp_path, fault, words):
    """A node that could keep nothing does not begin, and says what an operator has to mend."""
    with small_disk(tmp_path / "disk", 8) as disk:
        with NodeProcess(disk / "home", store__free_mib_least="0").start() as node:
            assert node.stop() == 0
        if fault == "full":
            fill(disk)
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ended = run_serve(disk / "home", {"admin.listen": "127.0.0.1:0"})

    assert (ended.returncode, ended.stdout) == (5, "")
    assert words in ended.stderr and "Traceback" not in ended.stderr
