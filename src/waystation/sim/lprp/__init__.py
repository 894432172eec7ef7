"""A simulated network of LPRP (signed UDP mail kept for absent tenants): plan, actors, observations and invariants."""
