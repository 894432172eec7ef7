"""Core of the node without I/O: connections, admission, bans, policy, recording, and the order of effects.

``node`` routes inputs to protocol machines, ``admission`` limits connections per address, and ``bans`` lists banned
peers. ``recorder`` converts facts to journal rows; facts leave this package in no other way.
"""
