"""A simulated network of Strata (signed publish-and-subscribe) relays: plan, actors, observations and invariants."""
