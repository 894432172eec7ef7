"""Journal of a node: typed events, the contract of their columns, and the format of segment files.

``events`` derives from the declarations in ``core.facts``; the recorder creates the events. ``contract`` lists the
columns of each kind and their privacy classes. The segment lines, Spark's schemas and docs/journal.md derive from it.
``segment`` names, encodes and reads segments. This package does no file I/O; ``store.segments`` does.

Events have no field for a payload, an address, free text, or the secret that permits one request. No field joins a
Bhumi sender to a delivery. ``archive`` is the format of the packet archive, which has its own segments.
"""
