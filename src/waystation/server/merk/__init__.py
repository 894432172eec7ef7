"""The node's MERK support: its configuration table, outgoing links, the log of links, and ``HOST``."""
