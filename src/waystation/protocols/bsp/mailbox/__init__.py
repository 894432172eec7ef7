"""A BSP mailbox: groups that a node hosts for owners that are rarely online together."""
