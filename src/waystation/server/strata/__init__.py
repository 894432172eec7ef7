"""The node's Strata support: its configuration table, upstream relays, operator keys and ``HOST``."""
