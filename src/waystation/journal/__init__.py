"""What the node writes down: typed events, one contract for their columns, and the segments they are kept in.

``events`` are what the recorder creates on the hot path. ``contract`` says for every kind which columns it fills and
how private each is; the JSON lines of a segment, Spark's schemas and docs/journal.md all derive from it. ``segment``
names, encodes and reads segments. Nothing here touches a disk: ``store.segments`` does.

In an event there is no field for a payload, a preimage, an address or free text, and none that would join a Bhumi
sender to a delivery. ``archive`` is the other thing a node writes: stored packets as they were signed, in segments of
their own.
"""
