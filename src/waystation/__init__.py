"""waystation: one relay node for five relay protocols, clients for each, and a Spark pipeline.

The rooms, from the inside out, and who may import whom (tests/test_architecture.py proves it):

- ``core``: words every room shares. ``crypto``: one function per primitive. ``rules``: pure decisions.
- ``protocols``: one folder per protocol, all of one shape; they never import each other.
- ``journal``: what the node records. ``engine``: the node without I/O.
- ``store``, ``transport``, ``server``: disks, sockets and the process around the engine.
- ``sdk``: asyncio clients. ``sim``: a whole network in one thread on a virtual clock.
- ``pipeline``: PySpark over the journal. ``cli``: puts everything together.

Importing this package computes nothing and needs no extra.
"""

from waystation.version import __version__

__all__ = ["__version__"]
