"""Writes and parses a group as one text line: ``FORMAT:CLIENT_ID`` or ``FORMAT:CLIENT_ID:DESCRIPTOR``, in hexadecimal.

``waystation bsp`` and the chat print and read them. BSP itself never announces groups (seed 2.2), so users pass on this
line. An invitation is a peer address and the line: ``bsp+tls://KEY@host:port#FORMAT:CLIENT_ID``. The inviter's name may
follow as ``;NAME``, percent-encoded. A client identifier is random and long enough to be a secret. A holder of the line
can still read only what a member shares.
"""

from typing import NamedTuple
from urllib.parse import quote, unquote

from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.url import BspUrl

__all__ = ["Invitation", "format_group", "format_invitation", "parse_group", "parse_invitation"]

_EXPECTED = "expected FORMAT:CLIENT_ID or FORMAT:CLIENT_ID:DESCRIPTOR, identifiers in hexadecimal"


class Invitation(NamedTuple):
    """The address of a peer, and the group that it shares there."""

    url: BspUrl
    group: Group
    name: str = ""
    """What they call themselves; empty when they do not say."""


def format_group(group: Group) -> str:
    """Return the line that ``parse_group`` makes the group of again; major versions of profile briar are not in it."""
    line = f"{group.format}:{group.client_id.hex()}"
    return f"{line}:{group.descriptor.hex()}" if group.descriptor else line


def parse_group(text: str, profile: Profile) -> Group:
    """Return the group that a line names.

    Raises:
        LocalError: It is no such line, or breaks the profile's bounds.
    """
    parts = text.strip().split(":")
    try:
        name, client_id, descriptor = (*parts, "") if len(parts) == 2 else parts
        return profile.group(bytes.fromhex(client_id), bytes.fromhex(descriptor), name)
    except ValueError as error:
        raise LocalError(f"not a group: {text!r}; {_EXPECTED}") from error


def format_invitation(url: str, group: Group, name: str = "") -> str:
    """Return the line that ``parse_invitation`` reads: an address with its key, a group, and who invites."""
    line = f"{url}#{format_group(group)}"
    return f"{line};{quote(name, safe='')}" if name else line


def parse_invitation(text: str, profile: Profile) -> Invitation:
    """Return what an address with a group after it names.

    Raises:
        LocalError: One of them is not of its form, or there is no key in the address.
    """
    place, sharp, rest = text.strip().partition("#")
    group, _, name = rest.partition(";")
    url = BspUrl.parse(place)
    if url.key is None or not sharp:
        raise LocalError(f"not an invitation: {text!r}; expected bsp+tls://KEY@host:port#FORMAT:CLIENT_ID")
    return Invitation(url, parse_group(group, profile), unquote(name))
