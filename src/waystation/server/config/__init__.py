"""The node's configuration: tables, sources, checks and the generated reference."""
