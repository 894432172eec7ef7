"""Laws of cli.status_lines."""

import pytest

from waystation.cli.status_lines import duration, size, status_lines
from waystation.core.ids import encode_id52

ALICE = b"a" * 32
FOUND = {
    "name": "relay",
    "version": "1",
    "uptime_s": 7_500.0,
    "node": {"id52": "abc"},
    "listeners": {"merk": "ws://127.0.0.1:1/merk"},
    "traffic": {"lprp": {"in": 2_048, "out": 0}},
    "disk": {"free_bytes": 3 << 30, "size_bytes": 10 << 30, "store_bytes": 5, "journal_bytes": 0, "archive_bytes": 0},
    "trouble": [],
}
NOBODY = {"protocols": {}, "connections": [], "hidden": {}}
ROW = {"connections": 2, "identified": 1, "bytes_in": 10, "bytes_out": 1_536}
LIMIT = {"name": "limits.x", "refusal": "x_full", "use": 3, "value": 4, "unit": "rows", "times": 9, "peers": []}
PEER = {
    "protocol": "merk",
    "subject": "address:203.0.113.7",
    "id52": "",
    "direction": "in",
    "age_s": 61,
    "bytes_in": 10,
    "bytes_out": 1_536,
    "waiting_bytes": 0,
}


def test_quiet_node_has_a_short_page():
    """What there is none of has no title."""
    lines = status_lines(FOUND, NOBODY, [])

    assert lines[0] == "relay  waystation 1, up 2 h 5 min"
    assert lines[-1] == "all is well"
    assert "limits met" not in lines and "most traffic" not in lines


def test_protocols_are_counted():
    """One without connections shows its datagrams' bytes."""
    lines = status_lines(FOUND, NOBODY | {"protocols": {"lprp": ROW, "merk": ROW}}, [])

    assert [line.split() for line in lines if line.startswith(("  lprp", "  merk  2", "  merk      2"))] == [
        ["lprp", "datagrams", "2.0", "KiB", "0", "B"],
        ["merk", "2", "1", "10", "B", "1.5", "KiB"],
    ]


def test_peers_have_an_identity_or_an_address():
    """What this node dialled is marked; hidden connections are counted by network, the first few of them."""
    peers = [PEER | {"id52": "alice"}, PEER, PEER | {"subject": "name:other:8443", "direction": "out"}]
    hidden = {f"net:10.0.{number}.0/24": 4 for number in range(4)}
    text = "\n".join(status_lines(FOUND, NOBODY | {"connections": peers, "hidden": hidden}, []))

    assert "merk      alice " in text and "merk      203.0.113.7 " in text and "to other:8443" in text
    assert "without an identity: 4 in 10.0.0.0/24, 4 in 10.0.1.0/24, 4 in 10.0.2.0/24, ..." in text


def test_limits_and_trouble_are_said():
    """A limit shows its use and who met it last, by id52 or network; trouble comes last."""
    met = [
        LIMIT | {"peers": [{"subject": f"id:{ALICE.hex()}", "ago_s": 5}]},
        LIMIT | {"name": "limits.y", "refusal": "y_full", "peers": [{"subject": "net:10.0.0.0/24", "ago_s": 6}]},
        LIMIT | {"name": "limits.z", "refusal": "z_full", "use": None},
    ]
    lines = status_lines(FOUND | {"trouble": ["the disk is full"]}, NOBODY, met)

    assert f"  limits.x  3 of 4 rows  met 9 times  last 5 s ago by {encode_id52(ALICE)}" in lines
    assert "  limits.y  3 of 4 rows  met 9 times  last 6 s ago by 10.0.0.0/24" in lines
    assert "  limits.z  4 rows       met 9 times" in lines
    assert lines[-2:] == ["needs attention", "  - the disk is full"]


def test_limits_with_one_refusal_are_one_row():
    """Limits of a protocol that refuse with the same reason cannot be told apart, so they are named together."""
    shared = [LIMIT | {"name": f"limits.strata.{name}", "refusal": "rate_limited"} for name in ("a", "b", "c", "d")]
    other = LIMIT | {"name": "limits.bhumi.a", "refusal": "rate_limited"}
    own = [LIMIT | {"name": name, "refusal": "tenants_full"} for name in ("limits.lprp.e", "lprp.tenants_max")]
    node = [LIMIT | {"name": f"limits.{name}", "refusal": "full"} for name in ("f", "g")]
    lines = status_lines(FOUND, NOBODY, [*shared[:2], other, *shared[2:], *own, *node])
    rows = lines[lines.index("limits met") + 1 : lines.index("disk") - 1]

    assert [row.partition("met 9")[0].strip() for row in rows] == [
        "strata rate_limited: a, b and 2 more",
        "limits.bhumi.a                        3 of 4 rows",
        "lprp tenants_full: e, tenants_max",
        "node full: f, g",
    ]


def test_certificate_is_one_line_with_its_listeners():
    """Several listeners show the same file."""
    shown = [
        {"cert": "c.pem", "ends": "2027-01-02T00:00:00+00:00", "listener": name} for name in ("bsp.tls", "merk.ws")
    ]

    assert "  c.pem  until 2027-01-02  bsp.tls, merk.ws" in status_lines(FOUND | {"certificates": shown}, NOBODY, [])


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (200 << 20, "200 MiB"), (3 << 50, "3072.0 TiB")],
)
def test_sizes_are_read_at_a_glance(count, text):
    """Steps of 1024, a decimal below 100."""
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.9, "59 s"), (61, "1 min"), (7_500, "2 h 5 min"), (200_000, "2 d 7 h")]
)
def test_durations_are_read_at_a_glance(seconds, text):
    """The largest unit, and the next one where it matters."""
    assert duration(seconds) == text
