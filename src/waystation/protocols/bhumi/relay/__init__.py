"""The Bhumi relay: the node's side of the protocol, which connects devices and senders."""
