"""Pure decisions that the node, the SDKs and Spark share."""
