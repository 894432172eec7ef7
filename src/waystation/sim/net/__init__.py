"""The simulated network: byte streams, datagram paths, and the node's end of each stream."""
