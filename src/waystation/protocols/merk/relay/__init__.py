"""The MERK relay: the node's side of the protocol, which routes frames between clients and other nodes."""
