"""Byte pipes over asyncio: TCP and TLS, listening and dialling.

``pipe`` is one connection, whoever opened it; ``listen`` accepts, ``dial`` connects, ``tls`` makes and reloads
contexts. No file here knows a protocol.
"""
