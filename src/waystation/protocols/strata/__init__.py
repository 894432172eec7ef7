"""Strata relay transport, RFC-0004 and what it leans on: signed packets, published, kept and subscribed to.

``canonical``, ``packet``, ``keyring`` and ``provenance`` say what a packet is and whether to believe it; ``relay`` is
the node's side of the WebSocket, ``client`` the other side. Strata specification, (c) 2025 Sean Red, CC BY 4.0.
"""
