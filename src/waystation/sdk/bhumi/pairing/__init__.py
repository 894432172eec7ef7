"""How Bhumi participants come to know each other: invites, roles, blocks, and the relays of invitations."""
