"""Bramble Synchronisation Protocol, version 1 (BSP): groups of messages kept the same on devices that rarely meet.

``messages``, ``profile`` and ``wire`` hold the records and hashes, in the seed's form and in Briar's; ``formats`` is
what applications plug in. ``graph`` orders the messages of one group by their dependencies, ``flags`` and ``offered``
are what a device knows of each peer, ``device`` is a device with all of that, ``ledger`` survives a restart, ``orders``
lets other programs leave word, ``why`` explains what holds a message back. ``handshake``, ``session`` and ``machine``
carry records over streams, ``bundle`` seals them into files and datagrams. ``relay`` is a node's device, ``mailbox``
what it does for others. There is no ``client``: both sides of BSP are devices.
"""
