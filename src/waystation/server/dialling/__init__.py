"""Opens the outgoing connections that protocol machines request."""
