"""The node's HTTP servers: the admin port, and the public pages on web ports."""
