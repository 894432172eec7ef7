"""The deterministic simulator: whole nodes run on a virtual clock with seeded faults, and invariants check every run.

``schedule`` is the clock and event queue. ``net`` simulates streams and datagrams. ``world`` runs one node, and
``driver`` runs one client machine. ``plan`` draws the choices of a seed. Each protocol's package has actors,
observations and invariants. ``trace`` hashes a run, and ``run`` executes one seed.

All randomness comes from one ``random.Random(seed)``, so a seed reproduces a failure exactly.
"""
