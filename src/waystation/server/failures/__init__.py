"""The failures of the node's process, and their few lines in the log."""
