"""The node's LPRP support: its configuration table and ``HOST``."""
