"""Event sources for Spark: the ``waystation`` data source for segments, and options for Kafka and table formats."""
