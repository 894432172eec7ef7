"""Settings of table formats."""

from waystation.pipeline.sources.formats import table_conf


def test_parquet_needs_nothing() -> None:
    """The format that works everywhere has no settings."""
    assert table_conf("parquet") == {}


def test_others_name_extension_and_catalog() -> None:
    """Delta and Iceberg get a session extension and a catalog."""
    for name in ("delta", "iceberg"):
        conf = table_conf(name)
        assert {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"} <= conf.keys()
        assert name in conf["spark.sql.extensions"].lower()
