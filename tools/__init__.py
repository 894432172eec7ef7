"""What the Makefile runs on the repository itself."""
