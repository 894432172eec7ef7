"""Options for Spark's Kafka source; the cluster must provide its jar, and this module reads nothing itself.

No step of ``pipeline.run`` needs it: it is for an operator whose journals arrive through Kafka.
"""

from typing import Final

__all__ = ["KAFKA_LINES", "kafka_options"]

KAFKA_LINES: Final = ("CAST(value AS string) AS value", "CAST(key AS string) AS segment")
"""What to select: a record's value is one line of a segment, its key the segment's name (PIPE-KAFKA)."""


def kafka_options(servers: str, topic: str, rows_max: int) -> dict[str, str]:
    """Return the options for ``readStream.format("kafka")``."""
    return {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows_max),
        "failOnDataLoss": "true",
    }
