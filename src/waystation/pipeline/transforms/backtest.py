"""Replays policy rules over the accepted packets, work and deliveries, and counts those each rule would have refused.

``jobs.backtest`` calls it. Each rule is applied by itself. Inputs are ``bronze.events`` and the rules; nothing is
written.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.backtest import Item
from waystation.pipeline.transforms.attributes import attribute, number_or_none
from waystation.rules.policy import Action, Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BASE_BITS", "RULES_DDL", "accepted_items", "tried"]

RULES_DDL: Final = "number int, subject_kind string, subject_ref binary, action string, amount bigint"
"""The rules as a frame: ``number`` identifies each."""

BASE_BITS: Final = {"relay": 16, "lease": 20, "whitelist": 16}
"""Bits that LPRP demands when nothing else asks for more (lprp 8), where an operator has not changed them."""

_REF: Final = "^[0-9a-f]{32}$"


def accepted_items(events: "DataFrame", base_bits: Mapping[str, int]) -> "DataFrame":
    """Return the accepted items of known actors: packets, work and deliveries.

    Takes ``bronze.events``. Gives ``event_id: binary``, ``ts: timestamp``, ``ref: binary``, ``item: string``,
    ``n: bigint`` (an event may stand for several) and ``bits_above: int``, how many more bits than ``base_bits`` were
    demanded of work, null for anything else.
    """
    author = attribute("author_ref")
    packet = (F.col("kind") == "packet_judged") & (F.col("outcome") == "accepted") & author.rlike(_REF)
    work = (F.col("kind") == "work_judged") & (F.col("outcome") == "accepted")
    delivery = (F.col("kind") == "delivery_finished") & F.col("outcome").isin("ok", "cached")
    item = F.when(packet, Item.PACKET.value).when(work, Item.WORK.value).when(delivery, Item.DELIVERY.value)
    tries = F.when(F.col("latency_us").isNull(), number_or_none("tries"))
    times = F.coalesce(F.when(delivery, tries).otherwise(number_or_none("n")), F.lit(1))
    base = F.coalesce(*(F.when(attribute("work") == what, bits) for what, bits in base_bits.items()), F.lit(0))
    above = F.coalesce(attribute("bits").try_cast("int"), F.lit(0)) - base
    reported = events.where(item.isNotNull()).select(
        *("event_id", "ts"),
        F.when(packet, F.unhex(author)).otherwise(F.col("peer_ref")).alias("ref"),
        item.alias("item"),
        times.alias("n"),
        F.when(work, above).alias("bits_above"),
    )
    return reported.where(F.col("ref").isNotNull() & (F.col("n") > 0))


def tried(items: "DataFrame", rules: "DataFrame") -> "DataFrame":
    """Return every accepted item of every rule's subject, and how much of it the rule would have refused.

    ``block`` refuses all; ``rate`` what goes beyond the amount in a minute of the clock, the first ones pass; ``pow``
    work for which fewer bits were demanded than the base and the amount.

    Takes what ``accepted_items`` gives and a frame of ``RULES_DDL``. Gives ``number: int``, ``item: string``,
    ``event_id: binary``, ``ts: timestamp``, ``n`` and ``refused: bigint``.
    """
    of_peers = rules.where(F.col("subject_kind") == Subject.PEER.value)
    joined = items.join(F.broadcast(of_peers), F.col("ref") == F.col("subject_ref"))
    minute = F.date_trunc("minute", "ts")
    so_far = (
        Window.partitionBy("number", "minute")
        .orderBy("ts", "event_id")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    beyond = F.greatest(F.lit(0), F.least(F.col("n"), F.sum("n").over(so_far) - F.col("amount")))
    weak = F.col("bits_above") < F.col("amount")
    refused = (
        F.when(F.col("action") == Action.BLOCK.value, F.col("n"))
        .when(F.col("action") == Action.RATE.value, beyond)
        .otherwise(F.when(weak, F.col("n")).otherwise(0))
    )
    rows = joined.withColumn("minute", minute)
    return rows.select("number", "item", "event_id", "ts", "n", refused.alias("refused"))
