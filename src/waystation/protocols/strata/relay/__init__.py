"""The Strata relay: the node's side of the protocol, which stores packets and serves subscribers."""
