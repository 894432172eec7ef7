"""Words every room shares: time, effects, facts, errors, limits, ids, and the ports of store and machine.

Standard library only, and pure: no clock, entropy, socket, thread or database.
"""
