"""Byte pipes on asyncio: TCP, TLS, UDP and WebSocket connections, accepted or dialled.

``pipe`` is one connection, ``listen`` accepts, ``dial`` connects, ``tls`` creates and reloads TLS contexts. Nothing
here depends on a relay protocol.
"""
