"""MERK-BREP: end-to-end encrypted frames across a mesh of WebSocket relays.

``messages``, ``infos`` and ``wire`` define the frames; ``session`` is one connection. ``payload`` has what passes
between clients: ``contents``, ``sealing`` (signs and encrypts), ``recovery`` (best-effort decode) and ``transfers``.
``relay`` is the node's side, ``client`` the other side. MERK-BREP, (c) 2025 Alexsandr Kaurcev; facts of the
protocol only, no code.
"""
