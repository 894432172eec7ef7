"""A group: one separate set of synchronised messages, and its identifier.

All of BSP passes groups around as this value. The identifier is the hash of the application's name (client id) and a
descriptor, so two devices with the same two have the same group. ``Profile.group`` makes it. Spec: seed 2.2.
"""

from typing import NamedTuple

__all__ = ["Group"]


class Group(NamedTuple):
    """One independent scope of synchronisation; ``Profile.group`` makes it and its identifier."""

    group_id: bytes
    """32 bytes."""
    client_id: bytes
    """The application's identifier: 32 bytes; in profile briar its name in UTF-8, 1 to 100 bytes."""
    descriptor: bytes
    """The application's; at most 32 KiB, 16 KiB in profile briar."""
    format: str
    """Name of the ``ClientFormat`` that reads its messages."""
    major: int = 0
    """Profile briar: the application's major version, 0 to 2**31 - 1."""
