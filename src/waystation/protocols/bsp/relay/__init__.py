"""The BSP relay: the node's own device, with its connections, groups and mailbox."""
