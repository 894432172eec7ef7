"""The commands ``waystation pipeline``: run the Spark pipeline."""
