"""Bramble Synchronisation Protocol, version 1 (BSP): synchronises groups of messages between devices that rarely meet.

``messages``, ``profile`` and ``wire`` define records and hashes, in the seed's form and in Briar's. ``graph`` orders
the messages of one group by their dependencies, which the application's format, in ``graph/formats.py``, parses.
``device`` is one device: its state, its store, and the records that it receives and sends. ``stream`` and ``session``
transport records over connections; ``bundle`` encrypts them into files and datagrams. ``relay`` is the node's device;
``mailbox`` hosts groups for their owners. There is no ``client``: both sides of BSP are devices.
"""
