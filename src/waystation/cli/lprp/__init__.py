"""The commands ``waystation lprp``: send and receive messages through an LPRP host."""
