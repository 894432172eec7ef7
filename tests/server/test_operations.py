"""Laws of server.operations; tests/server/test_node.py and http/test_admin.py try the rest over a whole node."""

import asyncio
import hashlib
import time

import pytest

from tests.server.build import Client, key_pair
from tests.server.build_node import configured, serving
from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.ids import encode_id52
from waystation.server.box.store import BoxStore, add_owner
from waystation.server.home import Home


def asked(home, story, **settings):
    """Return what a story gets from the operations of a serving node."""

    async def main():
        async with serving(home, configured(home, **settings)) as (server, _):
            return story(server.operations)

    return asyncio.run(main())


def test_status_has_every_part_whatever_is_enabled(tmp_path):
    """A reader of the status need not ask which protocols a node has."""
    off = {f"{name}__enabled": "false" for name in ("bsp", "lprp", "merk", "strata")}

    def story(operations):
        return operations.status()

    whole, small = asked(tmp_path / "whole", story), asked(tmp_path / "small", story, **off)

    assert list(whole) == list(small)
    assert (small["upstreams"], small["mesh"], small["turned_away"]) == ({}, {}, [])
    assert whole["mesh"]["node"] == whole["node"]["public_key"]


def test_box_counts_with_the_store(tmp_path):
    """The disk that an operator sees has what owners and contacts keep in the box."""
    box = Home(tmp_path).path / "box"
    token = add_owner(box, "alice")
    store = BoxStore(box)
    contact = store.add_contact(store.find(token).owner)
    data = bytes(1_000_000)
    store.put(contact.to_owner, hashlib.sha256(data).hexdigest(), data)

    def story(operations):
        return operations.stored_beside(), operations.status()["disk"]["store_bytes"]

    beside, shown = asked(tmp_path, story, bsp__box="127.0.0.1:0")

    assert beside == 1_000_000 < shown


def test_counts_look_at_no_file_and_no_connection(tmp_path):
    """Whoever asks for metrics without a token gets numbers that the node has at hand, each as in the status."""

    def story(operations):
        return operations.counts(), operations.limit_uses(), operations.status(), operations.limits()

    counts, uses, status, limits = asked(tmp_path, story)
    changing = {"uptime_s"}

    assert counts.keys() < status.keys()
    assert counts.keys().isdisjoint({"connected", "disk", "trouble", "upstreams", "mesh", "turned_away"})
    assert {name: counts[name] for name in counts.keys() - changing} == {
        name: status[name] for name in counts.keys() - changing
    }
    assert uses == [{name: limit[name] for name in ("name", "value", "use")} for limit in limits]


def test_views_are_those_of_enabled_protocols(tmp_path):
    """A protocol that is off has the name of its view, and no view."""

    def story(operations):
        return operations.viewed(), operations.view("bhumi"), operations.view("bsp")

    names, bhumi, bsp = asked(tmp_path, story, bsp__enabled="false")

    assert names == ["bhumi", "bsp"]
    assert bhumi["contacts"] == []
    assert bsp is None


def test_node_that_serves_is_ready_until_it_drains(tmp_path):
    """A drain ends it, and a store in fault does as long as that lasts."""

    def story(operations):
        states = [operations.not_ready().get("why")]
        operations.commits.health.begin(StoreFault("full", StoreFaultKind.FULL))
        states.append(operations.not_ready().get("why"))
        since = operations.not_ready()["since"]
        operations.commits.health.end()
        states.append(operations.not_ready().get("why"))
        operations.draining = True
        return [*states, operations.not_ready().get("why")], since

    states, since = asked(tmp_path, story)

    assert states == [None, "store: full", None, "draining"]
    assert since == pytest.approx(time.time(), abs=60)


def test_connections_show_who_and_how_much(tmp_path):
    """A device is named by its identity, never with its address; a Bhumi sender is one of its network (NODE-VIEW)."""
    pair = key_pair(3)

    async def main():
        async with serving(tmp_path) as (server, _):
            url = server.operations.status()["listeners"]["bhumi_plain"]
            device, sender = await asyncio.to_thread(Client, url), await asyncio.to_thread(Client, url)
            await asyncio.to_thread(device.identify, pair, b"p" * 32)
            try:
                return server.operations.connections(10), server.operations.status()["connected"]
            finally:
                device.close()
                sender.close()

    shown, counts = asyncio.run(main())
    (view,) = shown["connections"]

    assert (view["subject"], view["id52"]) == (f"id:{pair.public.hex()}", encode_id52(pair.public))
    assert (view["protocol"], view["direction"]) == ("bhumi", "in")
    assert view["bytes_in"] > 0 < view["bytes_out"]
    assert shown["hidden"] == {"net:127.0.0.0/24": 1}
    assert "127.0.0.1" not in str(shown)
    assert counts == shown["protocols"]
    assert (counts["bhumi"]["connections"], counts["bhumi"]["identified"]) == (2, 1)


def test_status_of_a_sound_node_has_no_trouble(tmp_path):
    """A node that drains says so in words, one that serves says nothing."""

    def story(operations):
        before = operations.status()
        operations.draining = True
        after = operations.status()["trouble"]
        operations.draining = False
        return before, after

    before, after = asked(tmp_path, story)

    assert before["trouble"] == []
    assert before["disk"]["free_bytes"] > 0 < before["disk"]["store_bytes"]
    assert after == ["the node is draining: it takes no new connection and ends soon"]
