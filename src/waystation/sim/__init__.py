"""Whole nodes on a virtual clock, with faults drawn from a seed and invariants that watch.

``schedule`` is the clock and the event queue, ``link`` a connection of two ends, ``datagram`` a path that loses and
reorders, ``world`` one node with everything around it, ``actor`` the client's half of a connection. ``plan`` draws what
one seed does, ``bhumi`` and its companions are the people of a Bhumi world, ``observations`` what they see,
``invariants`` what must hold, ``trace`` the fingerprint of a run, and ``run`` puts it together.

Everything here is pure: one ``random.Random(seed)`` and one integer clock decide all, so a seed is a bug report.
"""
