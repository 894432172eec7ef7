"""Development tools that the Makefile runs on this repository."""
