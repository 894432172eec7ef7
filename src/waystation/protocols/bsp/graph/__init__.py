"""The dependency graph of one group's messages, and the message formats that define dependencies."""
