"""A simulated network of BSP (Bramble Sync Protocol) devices: plan, actors, observations and invariants."""
