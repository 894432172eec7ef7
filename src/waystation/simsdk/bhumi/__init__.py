"""Senders and devices of the Bhumi SDK, a relay that does anything to what passes through it, and what must hold."""
