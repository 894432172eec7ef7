"""Clients over asyncio: state that survives a crash, connections that come back, errors in plain sentences.

``bhumi``, ``lprp``, ``merk`` and ``strata`` are what programs import. ``link`` drives any one-connection machine over
a pipe; ``bhumi_state`` is the durable side of a Bhumi participant, ``bhumi_device`` and ``bhumi_sender`` the two things
it can do; ``lprp_state``, ``lprp_tenant`` and ``lprp_sender`` are the same for LPRP.
"""
