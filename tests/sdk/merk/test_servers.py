"""Laws of sdk.merk_servers."""

import pytest

from tests.protocols.merk.build import NODE, OTHER_NODE
from waystation.core.errors import HostError, LocalError
from waystation.protocols.merk.messages import ServerEntry
from waystation.sdk.merk.servers import SERVERS_MAX, Server, Servers

FAR = "wss://far.example/merk"


def addresses(servers):
    """Return the addresses in the order in which they are tried."""
    return [server.address for server in servers.in_order()]


def named(*addresses):
    """Return addresses with the key that was named with each."""
    return [ServerEntry(NODE.public, address) for address in addresses]


def test_told_one_is_pinned_to_the_key_that_was_named_with_it():
    """It must prove that key from the first use on; a later proof of another key changes nothing."""
    servers = Servers()
    servers.learn(named("wss://told.example"), learnt_from=FAR)
    servers.pin("wss://told.example", OTHER_NODE.public)

    assert servers.get("wss://told.example") == Server("wss://told.example", added=False, key=NODE.public)


def test_added_ones_go_first_and_the_selected_one_before_them():
    """The order of trying: selected, added in their order, told."""
    servers = Servers()
    servers.add("ws://one.example")
    servers.learn(named("wss://told.example"), learnt_from="ws://one.example")
    servers.add("ws://two.example")
    before = addresses(servers)
    servers.select("wss://told.example")

    assert before == ["ws://one.example", "ws://two.example", "wss://told.example"]
    assert addresses(servers)[0] == "wss://told.example"


def test_told_ones_are_taken_while_there_is_room():
    """At most 64 of all; a relay that tells thousands fills the rest and no more."""
    servers = Servers()
    servers.add(FAR)
    fresh = servers.learn(named(*(f"wss://host{number}.example" for number in range(1_000))), learnt_from=FAR)

    assert len(fresh) == SERVERS_MAX - 1
    assert len(servers.in_order()) == SERVERS_MAX


def test_added_one_pushes_a_told_one_out():
    """The user's choice needs no room; only a list full of the user's own is full."""
    servers = Servers()
    servers.learn(named(*(f"wss://host{number}.example" for number in range(SERVERS_MAX))), learnt_from=FAR)
    for number in range(SERVERS_MAX):
        servers.add(f"ws://own{number}.example")

    assert all(server.added for server in servers.in_order())
    with pytest.raises(LocalError, match="remove one first"):
        servers.add("ws://more.example")


def test_telling_again_changes_nothing():
    """A known address is not new, and stays the user's."""
    servers = Servers()
    servers.add("wss://a.example")
    servers.learn(named("wss://b.example", "wss://b.example"), learnt_from=FAR)

    assert servers.learn(named("wss://a.example", "wss://b.example"), learnt_from=FAR) == []
    assert servers.get("wss://a.example").added


def test_first_proved_key_is_pinned_until_the_server_is_removed(tmp_path):
    """A later key does not replace it; removing and adding does."""
    servers = Servers(tmp_path / "servers.json")
    servers.add(FAR)
    servers.pin(FAR, NODE.public)
    servers.pin(FAR, OTHER_NODE.public)
    servers.add(FAR)
    pinned = servers.get(FAR)
    servers.remove(FAR)
    servers.add(FAR)

    assert pinned == Server(FAR, added=True, key=NODE.public)
    assert servers.get(FAR).key is None


def test_unlisted_address_is_not_pinned():
    """Pins live in the list."""
    servers = Servers()
    servers.pin(FAR, NODE.public)

    assert servers.get(FAR) is None


def test_list_survives_and_is_shared(tmp_path):
    """Two programs see each other's changes; the selection of a removed one is gone."""
    path = tmp_path / "servers.json"
    one, two = Servers(path), Servers(path)
    one.select(FAR)
    two.add("ws://two.example")
    seen = addresses(one), Servers(path).selected
    two.remove(FAR)

    assert seen == ([FAR, "ws://two.example"], FAR)
    assert Servers(path).selected is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_absent_server_cannot_be_removed():
    """That is the caller's mistake."""
    with pytest.raises(LocalError, match="not in the list"):
        Servers().remove(FAR)


@pytest.mark.parametrize(
    "content", ['{"servers": [{}]}', '{"servers": [{"address": "x", "added": true, "key": null}]}']
)
def test_damaged_file_is_named(tmp_path, content):
    """A file that was changed by hand is not half read."""
    path = tmp_path / "servers.json"
    path.write_text(content)

    with pytest.raises(HostError, match=r"servers\.json"):
        Servers(path)


def test_telling_the_same_again_touches_no_file(tmp_path):
    """A relay that repeats itself, or tells a full list, costs nothing."""
    path = tmp_path / "servers.json"
    servers = Servers(path)
    servers.learn(named("wss://a.example"), learnt_from=FAR)
    path.unlink()
    servers.learn(named("wss://a.example", "nonsense"), learnt_from=FAR)

    assert not path.exists()
    assert servers.get("wss://a.example") is not None
