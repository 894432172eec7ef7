"""The payload that two Bhumi clients exchange: encodings, encryption and invites. Relays cannot read it."""
