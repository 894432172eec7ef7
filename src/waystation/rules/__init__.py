"""Pure decision functions that the node, the SDKs and the Spark pipeline share."""
