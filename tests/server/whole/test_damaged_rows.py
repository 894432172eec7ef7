"""NODE-ROT, the whole node: rotten rows cost their rows, readers and protocols go on, and the operator is told."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.server.build import PATIENCE_S, NodeProcess
from tests.store.build_rot import flip_column, flip_in_file
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.events import Violation
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk.strata.relay import RelayClient

COUNT, ROTTEN = 60, range(4, 60, 6)
ME = Identity.of(KeyPair.from_seed(b"r" * 32))


@pytest.fixture
def node(tmp_path):
    """A node that a test stops and starts."""
    node = NodeProcess(tmp_path / "home", limits__enabled=False).start()
    yield node
    if node.process.poll() is None:
        assert node.stop() == 0


def run(story):
    """Run a coroutine, not for ever."""
    return asyncio.run(asyncio.wait_for(story, PATIENCE_S))


async def publish(url, count):
    """Publish posts; return them in order."""
    async with RelayClient(url, identity=ME) as client:
        return [(await client.post({"type": "POST", "text": f"packet {number:03}"})).packet for number in range(count)]


async def read(url, events, text="live"):
    """Return what a new reader gets of history and, behind it, of one packet that is published then."""
    async with (
        RelayClient(url, on_event=events.append) as reader,
        RelayClient(url, identity=ME) as writer,
        reader.subscribe() as subscription,
    ):
        found = []
        while not subscription.history_ended.is_set() or subscription.waiting:
            following = asyncio.ensure_future(anext(subscription))
            ended = asyncio.ensure_future(subscription.history_ended.wait())
            await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if following.done():
                found.append(following.result().packet)
            else:
                following.cancel()
            await asyncio.gather(ended, following, return_exceptions=True)
        live = (await writer.post({"type": "POST", "text": text})).packet
        return found, live.packet_id == (await anext(subscription)).packet.packet_id


def test_ten_rotten_packets_of_sixty_cost_ten(node):
    """Readers get the other 50 and what is new, blame nobody, and the node says 10; what is sent again is there."""
    packets = run(publish(node.url("strata"), COUNT))
    assert node.stop() == 0
    for seq in ROTTEN:  # half of them by SQLite, half in the bytes of the file
        text = packets[seq - 1].body["content"]["text"]
        if seq % 4:
            flip_in_file(node.home / "store.sqlite", text.encode())
        else:
            flip_column(node.home / "store.sqlite", "packets", seq, "received_at")
    node.start()
    events = []
    found, live = run(read(node.url("strata"), events))
    metrics = node.ask("GET", "/metrics")[1].splitlines()
    trouble = node.ask("GET", "/admin/v1/status")[1]["trouble"]
    log = node.log()

    assert [each.packet_id for each in found] == [
        each.packet_id for seq, each in enumerate(packets, 1) if seq not in ROTTEN
    ]
    assert live
    assert not [event for event in events if isinstance(event, Violation)]
    assert [line for line in metrics if line.startswith("waystation_store_rows_damaged_total")] == [
        'waystation_store_rows_damaged_total{table="packets"} 10.0'
    ]
    assert [sentence for sentence in trouble if "10 of packets" in sentence]
    assert log.count("store.row_damaged") == 10

    async def send_again():
        async with RelayClient(node.url("strata"), identity=ME) as client:
            again = [await client.publish(packets[seq - 1]) for seq in ROTTEN]
            assert [receipt.duplicate for receipt in again] == [False] * len(again)

    run(send_again())
    assert len(run(read(node.url("strata"), events, "later"))[0]) == COUNT + 1
    assert not [each for each in node.ask("GET", "/admin/v1/status")[1]["trouble"] if "packets" in each]


def test_ban_whose_row_rotted_still_holds(node):
    """Its reason and end are lost, so it holds until it is lifted; everything else of the node goes on."""
    for subject in ("192.0.2.9", "192.0.2.10"):
        assert node.ask("POST", "/admin/v1/bans", {"subject": subject, "reason": "spam", "expires_s": 60})[0] < 300
    assert node.stop() == 0
    with closing(sqlite3.connect(node.home / "store.sqlite")) as connection:
        [(rowid,)] = connection.execute(
            "SELECT rowid FROM records WHERE tbl = 'bans' AND key = ?", (b"address:192.0.2.9",)
        )
    flip_column(node.home / "store.sqlite", "records", rowid, "value")
    node.start()
    bans = {ban["subject"]: ban for ban in node.ask("GET", "/admin/v1/bans")[1]["bans"]}

    assert bans["address:192.0.2.9"]["reason"] == "damaged on the disk: the reason and the end are lost"
    assert bans["address:192.0.2.10"]["reason"] == "spam"
    assert [each for each in node.ask("GET", "/admin/v1/status")[1]["trouble"] if "1 of bans" in each]
