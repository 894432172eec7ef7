"""LPRP (有限报文中继协议): signed UDP packets of at most 508 bytes, queued for tenants until they confirm them.

``messages`` and ``wire`` define the packet, ``work`` the proof of work, ``whitelist`` the hashed updates. ``relay`` is
the host's side: ``intake`` checks datagrams, ``sources`` accounts addresses, ``tenants`` and ``mailbox`` keep leases
and mail. ``delivery`` sends mail, ``commands`` executes commands, ``ledger`` stores what survives a restart. ``client``
is the other side; ``payload`` is an optional upper layer. There is no ``session``, because a datagram belongs to no
connection.
"""
