"""The node's BSP support: its configuration table, outgoing connections and ``HOST``."""
