"""Types that every package shares: time, effects, facts, errors, limits, ids, and the store and machine interfaces.

Code here uses the standard library only. It accesses no clock, entropy, socket, thread or database.
"""
