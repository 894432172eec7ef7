"""Laws of server.status.connections: the heaviest come first, and nobody's address stands beside an identity."""

from waystation.core.instant import Instant
from waystation.engine.connections import Connection, Traffic
from waystation.server.status.connections import connected, connection_views, hidden_networks

HIDING = frozenset({"bhumi"})
ALICE = b"a" * 32
NOW = Instant(9_000_000)


def connection(peer, protocol="merk", address="203.0.113.7", identity=None, dialled="", carried=0):
    """Return a connection that began after one second."""
    made = Connection(protocol, peer, Traffic(), Instant(1_000_000), address)
    made.identity, made.dialled, made.traffic.bytes_in = identity, dialled, carried
    return made


def views(*connections, count_max=10):
    """Return what is shown of these."""
    return connection_views(connections, HIDING, lambda peer: peer, count_max, NOW)


def test_heaviest_come_first_and_the_rest_is_cut():
    """The bytes of both directions decide."""
    shown = views(connection(1, carried=5), connection(2, carried=50), connection(3, carried=20), count_max=2)

    assert [view.bytes_in for view in shown] == [50, 20]
    assert [view.waiting_bytes for view in shown] == [2, 3]
    assert {view.age_s for view in shown} == {8}


def test_subject_is_an_identity_or_an_address_and_never_both():
    """What proved an identity is that; what was dialled is its name; the others are their address."""
    shown = views(
        connection(1, identity=ALICE, carried=4),
        connection(2, carried=3),
        connection(3, address="", dialled="wss://other/merk", carried=2),
        connection(4, protocol="strata", identity=b"did:web:example.org", carried=1),
    )

    assert [view.subject for view in shown] == [
        f"id:{ALICE.hex()}",
        "address:203.0.113.7",
        "name:wss://other/merk",
        "name:did:web:example.org",
    ]
    assert [view.direction for view in shown] == ["in", "in", "out", "in"]
    assert "203.0.113" not in str(shown[0])


def test_anonymous_sender_is_only_counted_in_its_network():
    """Of a protocol that hides senders only those are shown that proved an identity or were dialled (NODE-VIEW)."""
    all_of_them = [
        connection(1, "bhumi", "203.0.113.7"),
        connection(2, "bhumi", "203.0.113.8"),
        connection(3, "bhumi", "198.51.100.1"),
        connection(4, "bhumi", identity=ALICE),
        connection(5, "bhumi", "", dialled="other:8443"),
        connection(6, "bhumi", ""),
    ]

    assert {view.subject for view in views(*all_of_them)} == {f"id:{ALICE.hex()}", "name:other:8443"}
    assert hidden_networks(all_of_them, HIDING, 2) == {"net:203.0.113.0/24": 2, "net:198.51.100.0/24": 1}
    assert hidden_networks(all_of_them, HIDING, 9)["none"] == 1


def test_protocols_are_counted_also_without_connections():
    """Every protocol of the node has its row."""
    counts = connected([connection(1, identity=ALICE, carried=3), connection(2, carried=4)], ["merk", "lprp"])

    assert counts["merk"] == {"connections": 2, "identified": 1, "bytes_in": 7, "bytes_out": 0}
    assert counts["lprp"] == {"connections": 0, "identified": 0, "bytes_in": 0, "bytes_out": 0}
