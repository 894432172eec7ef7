"""Example programs that the command line starts: the demonstration and the chat."""
