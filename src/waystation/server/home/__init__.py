"""The node's home: one folder with its key, certificates, store and journal.

``files`` reads and makes what stands there, ``mark`` is what a home remembers of itself, and ``keeper`` keeps that true
while a node runs.
"""

from waystation.server.home.files import (
    REFERENCE_KEY_BYTES,
    Home,
    ReferenceKey,
    TlsFiles,
    certificate_names,
    local_names,
    write_whole,
)

__all__ = [
    "REFERENCE_KEY_BYTES",
    "Home",
    "ReferenceKey",
    "TlsFiles",
    "certificate_names",
    "local_names",
    "write_whole",
]
