"""Pairing of events, on one frame for all cases."""

import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryAccepted, DeliveryFinished, PeerIdentified, PeerLeft
from waystation.journal.segment import encode_lines
from waystation.pipeline.tables import SILVER_CONNECTIONS, SILVER_DELIVERIES
from waystation.pipeline.transforms.conform import connections, deliveries
from waystation.pipeline.transforms.ingest import accept, parse_lines

pytestmark = pytest.mark.spark

PEER = b"p" * 16
NOON, NEXT_NOON = datetime.date(2026, 5, 29), datetime.date(2026, 5, 30)
EVENTS = [
    PeerIdentified(NOON_US, "bhumi", b"whole___", PEER),
    PeerLeft(NOON_US + DAY_US, "bhumi", b"whole___", PEER, "replaced", 10, 20),
    PeerIdentified(NOON_US, "bhumi", b"alive___", PEER),
    PeerLeft(NOON_US + DAY_US, "bhumi", b"lost____", PEER, "idle_timeout"),
    DeliveryAccepted(NOON_US, "bhumi", b"answered________", PEER, 100),
    DeliveryFinished(NOON_US + DAY_US, "bhumi", b"answered________", PEER, Outcome.OK, DAY_US, 11, 3),
    DeliveryAccepted(NOON_US, "bhumi", b"waiting_________", PEER, 100),
    DeliveryFinished(NOON_US + DAY_US, "bhumi", b"immediate_______", PEER, Outcome.OFFLINE, None, 0),
    DeliveryFinished(NOON_US + DAY_US, "bhumi", b"told_at_once____", PEER, Outcome.OK, DAY_US, 40),
    DeliveryAccepted(NOON_US, "lprp", b"answered________", PEER, 7),
]
ODD = '{"ts":1,"seq":99,"protocol":"bhumi","kind":"delivery_finished","attrs":{"attempt_ref":"odd"}}'


@pytest.fixture(scope="module")
def events(spark):
    """Give all events of this module as bronze rows."""
    lines = [*encode_lines(EVENTS, 0).decode().splitlines(), ODD]
    rows = [(line, name_at().text) for line in lines]
    return accept(parse_lines(spark.createDataFrame(rows, "value string, segment string"))).cache()


def test_connections_are_paired(events) -> None:
    """Both ends make one row; either end alone makes one with the other null."""
    frame = connections(events).selectExpr("*", "unix_micros(opened_at) as o", "unix_micros(closed_at) as c")
    rows = {bytes(row["conn_ref"]): row for row in frame.collect()}
    found = {
        ref: (row["o"], row["c"], row["close_reason"], row["bytes_in"], row["bytes_out"], row["event_date"])
        for ref, row in rows.items()
    }

    assert found == {
        b"whole___": (NOON_US, NOON_US + DAY_US, "replaced", 10, 20, NOON),
        b"alive___": (NOON_US, None, None, None, None, NOON),
        b"lost____": (None, NOON_US + DAY_US, "idle_timeout", None, None, NEXT_NOON),
    }


def test_deliveries_are_paired(events) -> None:
    """Acceptance and outcome make one row of their protocol, the outcome alone tells both; the unknown stays null."""
    frame = deliveries(events).selectExpr("*", "unix_micros(accepted_at) as a", "unix_micros(finished_at) as f")
    rows = {(row["protocol"], bytes(row["attempt_ref"])): row for row in frame.collect()}
    found = {
        ref: (row["a"], row["f"], row["outcome"], row["latency_us"], row["tries"], row["bytes"], row["event_date"])
        for ref, row in rows.items()
    }

    assert found == {
        ("bhumi", b"answered________"): (NOON_US, NOON_US + DAY_US, "ok", DAY_US, 3, 111, NOON),
        ("bhumi", b"waiting_________"): (NOON_US, None, None, None, None, 100, NOON),
        ("bhumi", b"told_at_once____"): (NOON_US, NOON_US + DAY_US, "ok", DAY_US, 1, 40, NOON),
        ("bhumi", b"immediate_______"): (None, NOON_US + DAY_US, "offline", None, 1, 0, NEXT_NOON),
        ("lprp", b"answered________"): (NOON_US, None, None, None, None, 7, NOON),
    }


def test_rows_have_the_declared_columns(events) -> None:
    """What comes out is the table's columns in their types, and the date."""
    for frame, dataset in ((connections(events), SILVER_CONNECTIONS), (deliveries(events), SILVER_DELIVERIES)):
        types = dict(frame.dtypes)

        assert frame.columns == [*dataset.names(), "event_date"]
        assert all(types[column.name] == column.type for column in dataset.columns)
