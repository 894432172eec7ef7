"""The LPRP host: the node's side of the protocol, which queues packets for tenants."""
