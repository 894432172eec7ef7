"""Laws of a whole node whose store takes no writes (NODE-REFUSED, NODE-FLOOR, NODE-GONE).

``tests/soak/faults/test_table.py`` tries the same with clients of all five protocols.
"""

import asyncio
import signal
import subprocess

import pytest

from tests.disk import fill, small_disk
from tests.server.build import NodeProcess, exchange, key_pair, run_serve, until
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.errors import RequestRefusedError
from waystation.sdk.strata.relay import RelayClient

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
    assert ready == (503, {"ok": False, "why": "store: full"})
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
    assert ready == (503, {"ok": False, "why": "store: gone"})


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
    assert ready == (503, {"ok": False, "why": "store: full"})
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
