"""What a peer may send, and what it is given to send more; small, because it comes into memory with many a request.

Spec: BHUMI-MCU.
"""

import os

from . import payloads

__all__ = ["denial", "spares"]

_SPARES_MAX = 8


def spares(arguments: object) -> list:
    """Return the preimages that a peer gets beyond the next one, as many as it asks for up to a limit."""
    wanted = arguments.get("n") if isinstance(arguments, dict) else None
    count = max(0, min(wanted, _SPARES_MAX)) if isinstance(wanted, int) else 0
    return [os.urandom(32) for _ in range(count)]


def denial(allowed: object, request: object) -> str:
    """Return why a peer may not send a request, or empty; a role permits what it names and nothing else."""
    name = "binary" if request.content_type == payloads.BINARY else "text"
    if request.content_type == payloads.COMMAND:
        try:
            name = request.command()[0]
        except ValueError:
            return "this peer may send certain commands only, and this is none"
    return "" if name in allowed else "this peer may not send '%s'" % name
