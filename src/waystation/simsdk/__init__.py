"""The real SDK on a virtual clock: its clients and a relay that lies share one event loop, whose streams are in memory.

``loop`` has the clock, ``streams`` what stands in the place of TCP. ``bhumi`` has the participants and what must hold.
The simulator of ``sim`` runs protocol machines; here the code above them runs, too: retries, folders, pairings. All
randomness comes from one seed, so a seed repeats a run exactly.
"""
