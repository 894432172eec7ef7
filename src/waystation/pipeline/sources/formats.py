"""Spark settings for Delta and Iceberg tables; the cluster must provide their jars.

No step of ``pipeline.run`` needs it: it is for an operator's own job that copies tables to a cluster.
"""

from typing import Final

__all__ = ["table_conf"]

_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_CONF: Final = {
    "parquet": {},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        _CATALOG: "org.apache.iceberg.spark.SparkSessionCatalog",
        f"{_CATALOG}.type": "hadoop",
    },
}


def table_conf(table_format: str) -> dict[str, str]:
    """Return the settings of a session for ``parquet``, ``delta`` or ``iceberg``."""
    return dict(_CONF[table_format])
