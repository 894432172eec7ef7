"""Clients over asyncio: state that survives a crash, connections that come back, errors in plain sentences.

``bhumi`` is what programs import. ``link`` drives any one-connection machine over a pipe; ``bhumi_state`` is the
durable side of a Bhumi participant, ``bhumi_device`` and ``bhumi_sender`` the two things it can do.
"""
