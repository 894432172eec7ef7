"""Bhumi v2: requests to small devices, and their responses, through a relay that need not be trusted.

``messages`` and ``wire`` define the frames. ``session`` is one connection at the relay, ``relay`` the relay itself,
``client`` the device, sender and guide clients. ``payload`` encodes and encrypts the payload between two clients, which
the relay cannot read.
"""
