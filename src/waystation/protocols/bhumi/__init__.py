"""Bhumi v2: request and response to small devices through an untrusted relay.

``messages`` and ``wire`` hold the frames, ``session`` one connection at the relay, ``relay`` the relay, ``client``
both kinds of client. ``payloads`` and ``envelope`` are what two clients say inside the opaque payload, which no relay
reads.
"""
