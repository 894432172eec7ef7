"""Options of Kafka."""

from waystation.pipeline.sources.kafka import KAFKA_LINES, kafka_options


def test_options_name_servers_topic_and_limit() -> None:
    """Everything is read from the beginning, and lost data is an error."""
    options = kafka_options("a:9092,b:9092", "waystation", 500)

    assert options["kafka.bootstrap.servers"] == "a:9092,b:9092"
    assert options["subscribe"] == "waystation"
    assert options["maxOffsetsPerTrigger"] == "500"
    assert (options["startingOffsets"], options["failOnDataLoss"]) == ("earliest", "true")


def test_records_become_lines_of_segments() -> None:
    """A record gives the two columns that parsing takes."""
    assert [text.rpartition(" ")[2] for text in KAFKA_LINES] == ["value", "segment"]
