"""A simulated mesh of MERK nodes (relays for end-to-end encrypted messages): plan, actors, observations, invariants."""
