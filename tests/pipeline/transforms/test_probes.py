"""Observations of relays: what says nothing falls away, and nothing is believed without bounds."""

import datetime

import pytest

from tests.journal.build import NOON_US
from waystation.pipeline.tables import BRONZE_EVENTS, SILVER_PROBES
from waystation.pipeline.transforms.probes import AMOUNT_MAX, KIND, TIMES_MAX, probes

pytestmark = pytest.mark.spark

RELAY = "00aa11bb22cc33dd"
AT = datetime.datetime.fromtimestamp(NOON_US // 1_000_000, datetime.UTC).replace(microsecond=123_456)
VALIDITY = {"probe": "validity"}

TAKEN = {
    "rtt": ((RELAY, "ok", None, 5_000, None, {"probe": "rtt"}), ("rtt", "ok", None, 5_000, None, None, 1)),
    "blob": (
        (RELAY, "ok", None, None, 70_000, {"probe": "blob", "duration_us": "9", "n": "1"}),
        ("blob", "ok", None, None, 70_000, 9, 1),
    ),
    "missing": (
        (RELAY, "missing", None, None, None, {"probe": "known_hash"}),
        ("known_hash", "missing", None, None, None, None, 1),
    ),
    "forged": (
        (RELAY, "failed", "bad_signature", None, None, VALIDITY | {"n": "3"}),
        ("validity", "failed", "bad_signature", None, None, None, 3),
    ),
    "needless reason": (
        (RELAY, "failed", "bad_signature", None, None, {"probe": "rtt"}),
        ("rtt", "failed", None, None, None, None, 1),
    ),
    "huge": (
        (RELAY, "ok", None, 2**62, 2**62, {"probe": "span", "duration_us": str(2**62), "n": str(2**62)}),
        ("span", "ok", None, AMOUNT_MAX, AMOUNT_MAX, AMOUNT_MAX, TIMES_MAX),
    ),
    "too small": (
        (RELAY, "ok", None, 0, 0, {"probe": "span", "duration_us": "-5", "n": "-7"}),
        ("span", "ok", None, 0, 0, 0, 1),
    ),
    "no numbers": (
        (RELAY, "ok", None, None, None, {"probe": "span", "duration_us": "long", "n": str(2**70)}),
        ("span", "ok", None, None, None, None, 1),
    ),
}
LEFT_OUT = (
    (None, "ok", None, None, None, {"probe": "rtt"}),
    ("relay.example", "ok", None, None, None, {"probe": "rtt"}),
    (RELAY, "fine", None, None, None, {"probe": "rtt"}),
    (RELAY, None, None, None, None, {"probe": "rtt"}),
    (RELAY, "ok", None, None, None, {"probe": "weather"}),
    (RELAY, "ok", None, None, None, {}),
    (RELAY, "ok", None, None, None, None),
    (RELAY, "failed", None, None, None, VALIDITY),
    (RELAY, "failed", "missing_packet", None, None, VALIDITY),
    (RELAY, "failed", "nonsense", None, None, VALIDITY),
)


def test_rows_are_checked_and_cut(spark) -> None:
    """Known words stay with their amounts, cut to what can be believed; everything else falls away."""
    given = [row for row, _ in TAKEN.values()] + [*LEFT_OUT]
    rows = [_event(number, KIND, *row) for number, row in enumerate(given)]
    rows.append(_event(99, "packet_judged", *TAKEN["rtt"][0]))
    found = probes(spark.createDataFrame(rows, BRONZE_EVENTS.row_ddl()))
    kept = {bytes(row["event_id"]): row for row in found.selectExpr("*", "unix_micros(ts) as ts_us").collect()}

    assert {key[0]: _plain(row) for key, row in kept.items()} == dict(enumerate(row for _, row in TAKEN.values()))
    assert {(row["relay_id"], row["node_id"], row["protocol"], row["ts_us"]) for row in kept.values()} == {
        (RELAY, "0" * 16, "strata", NOON_US + 123_456)
    }
    assert {row["event_date"] for row in kept.values()} == {AT.date()}
    assert found.columns == [*SILVER_PROBES.names(), "event_date"]
    assert [kind for _, kind in found.dtypes[:-1]] == [column.type for column in SILVER_PROBES.columns]


def _event(number, kind, relay_id, outcome, reason, latency_us, size, attrs):
    known = {
        "event_id": bytes([number]) * 16,
        "node_id": "0" * 16,
        "segment": "s",
        "ts": AT,
        "seq": number,
        "protocol": "strata",
        "kind": kind,
        "relay_id": relay_id,
        "outcome": outcome,
        "reason": reason,
        "latency_us": latency_us,
        "bytes": size,
        "attrs": attrs,
    }
    return tuple(known.get(name) for name in BRONZE_EVENTS.names())


def _plain(row):
    names = ("probe_kind", "outcome", "incident", "latency_us", "bytes", "duration_us", "n")
    return tuple(row[name] for name in names)
