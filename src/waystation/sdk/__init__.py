"""The asyncio clients of all protocols: ``bhumi``, ``bsp``, ``lprp``, ``merk`` and ``strata``.

Programs import them as ``waystation.<name>``. Each has an ``open`` that returns a client with ``public_key``,
``messages`` (Bhumi: ``requests``) and ``send``. Client state survives a crash, and lost connections are opened again.
Shared by all: ``outcome`` (the result of a message), ``errors`` (all exceptions), ``life`` (checks for misuse).
"""
