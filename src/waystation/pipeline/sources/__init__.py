"""Where events come from: segments by the ``waystation`` data source, or another system by its options."""
