"""Selects well-formed relay observations from events, so that the state replay can rely on their values.

``jobs.qos`` calls it: ``bronze.events`` go in, rows of ``silver.probes`` come out.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_PROBES
from waystation.pipeline.transforms.attributes import attribute
from waystation.rules.relay_observation import OUTCOMES, Probe
from waystation.rules.relay_state import Incident

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["AMOUNT_MAX", "KIND", "TIMES_MAX", "probes"]

KIND: Final = "relay_observed"
"""Events that observations come from."""
AMOUNT_MAX: Final = 2**40
"""Largest latency, duration (both 12 days, in microseconds) and size (1 TiB) that is believed; more counts as this."""
TIMES_MAX: Final = 1_000_000
"""Most occurrences that one event can stand for. With ``AMOUNT_MAX`` it keeps every sum inside 64 bits."""

_RELAY_ID: Final = "^[0-9a-f]{16}$"


def probes(events: "DataFrame") -> "DataFrame":
    """Keep the observations of relays that say something.

    Takes ``bronze.events``. Rows of kind ``relay_observed`` stay when their relay is an identifier, their probe and
    outcome are known words, and their incident, for ``validity``, is a violation. Amounts and counts are cut to what
    can be believed. Gives the columns of ``silver.probes`` and ``event_date: date``, the date of ``ts``.
    """
    probe = attribute("probe")
    is_validity = probe == Probe.VALIDITY.value
    violations = [each.value for each in Incident if each.is_violation]
    known = F.col("relay_id").rlike(_RELAY_ID) & probe.isin([each.value for each in Probe])
    known &= F.col("outcome").isin(list(OUTCOMES)) & (~is_validity | F.coalesce("reason", F.lit("")).isin(violations))
    rows = events.where((F.col("kind") == KIND) & known).select(
        "event_id",
        "node_id",
        "protocol",
        "relay_id",
        probe.alias("probe_kind"),
        "ts",
        "outcome",
        F.when(is_validity, F.col("reason")).alias("incident"),
        _amount(F.col("latency_us")).alias("latency_us"),
        _amount(F.col("bytes")).alias("bytes"),
        _amount(attribute("duration_us").try_cast("bigint")).alias("duration_us"),
        _between(F.coalesce(attribute("n").try_cast("bigint"), F.lit(1)), 1, TIMES_MAX).alias("n"),
    )
    return rows.select(*SILVER_PROBES.names(), F.to_date("ts").alias("event_date"))


def _amount(value: "Column") -> "Column":
    return F.when(value.isNotNull(), _between(value, 0, AMOUNT_MAX))


def _between(value: "Column", least: int, most: int) -> "Column":
    return F.greatest(F.least(value, F.lit(most)), F.lit(least)).cast("bigint")
