"""Event sources for Spark: the ``waystation`` data source for segments, and how far it has been read."""
