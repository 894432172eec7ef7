"""Strata relay transport (RFC-0004): relays accept, store and distribute signed packets over WebSocket.

``canonical``, ``packet``, ``keys`` and ``provenance`` parse a packet and check its claims. ``relay`` is the node's
side, ``client`` the other side. Strata specification, (c) 2025 Sean Red, CC BY 4.0.
"""
