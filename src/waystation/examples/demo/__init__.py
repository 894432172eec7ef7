"""The demonstration: one node, clients of every protocol, and the pipeline over the node's journal."""
