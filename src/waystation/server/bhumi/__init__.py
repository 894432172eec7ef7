"""The node's Bhumi support: its configuration table, discovery, outgoing links and ``HOST``."""
