"""LPRP (有限报文中继协议): signed datagrams of at most 508 bytes, kept for tenants until they say that they have them.

``messages`` and ``wire`` hold the packet, ``work`` the proof of work, ``whitelist`` its hashed updates. ``relay`` is
the host's side: ``intake`` keeps the order of its checks, ``sources`` what an address has earned, ``tenants`` and
``mailbox`` leases and mail, ``delivery`` when mail leaves, ``leasing``, ``relaying``, ``listing`` and ``working`` do
what the commands ask for, ``challenges``, ``answers`` and ``difficulty`` remember for them, ``ledger`` survives a
restart. ``client`` is the other side; ``sealing`` and ``fragments`` are an upper layer that the protocol leaves open.
There is no ``session``: a datagram belongs to no connection.
"""
