"""MERK-BREP: end-to-end encrypted frames across a mesh of WebSocket relays.

``messages`` and ``wire`` hold the frames, ``contents``, ``sealing`` and ``salvage`` what clients put inside and prove
about it. ``relay`` is the node's side, with ``lookups``, ``mesh`` and ``forwards`` for what is not here; ``client``
the other side. MERK-BREP, (c) 2025 Alexsandr Kaurcev; facts of the protocol only, no code.
"""
