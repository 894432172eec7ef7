"""The node without I/O: connections, admission, bans, what is recorded, and the order of effects.

``node`` routes inputs to the protocols' machines, ``admission`` counts addresses, ``bans`` knows who is not welcome,
and ``recorder`` is the one border at which facts become journal rows.
"""
