"""A simulated Bhumi network: relays alone or with gossip, moving devices, senders, look-ups, and adversaries."""
