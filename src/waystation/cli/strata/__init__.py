"""The commands ``waystation strata``: publish and read signed packets, and manage relays and keys."""
