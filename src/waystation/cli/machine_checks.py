"""Checks of ``waystation doctor`` on this machine: disk, clock, and the addresses at which clients reach the node.

A configuration and a home go in. ``Finding`` is what every check of the doctor returns.
"""

import datetime
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from waystation.core.errors import HostError
from waystation.transport.own_addresses import own_addresses, resolved

if TYPE_CHECKING:
    from waystation.server.config.settings import Address
    from waystation.server.config.values import Config
    from waystation.server.home import Home

__all__ = ["Finding", "check_clock", "check_reachable", "check_space", "public_names"]

_MIB: Final = 1_048_576
_PUBLIC: Final = ("public_url", "advertise")
"""Settings that name the address that clients and other relays use."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    good: bool
    says: str
    note: bool = False
    """Whether a good finding is worth a look all the same."""


def check_space(config: "Config", home: "Home") -> Finding:
    """Look whether the disk of the home has room now, and for all that retention may keep."""
    from waystation.server.status.disk import (  # noqa: PLC0415 - only this check needs it
        FREE_BYTES_LEAST,
        free_bytes,
        retention_bytes,
    )

    place = next((path for path in (home.path, *home.path.absolute().parents) if path.exists()), home.path)
    try:
        free, _ = free_bytes(place)
    except HostError as error:
        return Finding("disk", good=False, says=str(error))
    kept = retention_bytes(config)
    may_take, names = sum(kept.values()), ", ".join(kept)
    says = f"{free // _MIB} MiB are free"
    if free < FREE_BYTES_LEAST:
        return Finding("disk", good=False, says=f"only {says} for {home.path}; make room, or lower {names}")
    if free < may_take:
        says += f", and what is kept may take {may_take // _MIB} MiB; lower {names}, or take a larger disk"
        return Finding("disk", good=True, says=says, note=True)
    return Finding("disk", good=True, says=f"{says}; what is kept takes {may_take // _MIB} MiB at most")


def check_clock(home: "Home", now: datetime.datetime) -> Finding:
    """Look whether the clock (``now``, aware) can be right, and whether a time service keeps it."""
    from waystation.server.status.wall_clock import clock_trouble, is_kept  # noqa: PLC0415 - only this check needs it

    if trouble := clock_trouble(home, now):
        return Finding("clock", good=False, says=f"{trouble[0]}; set the clock, or switch a time service on")
    says = f"{now:%Y-%m-%d %H:%M} UTC"
    kept = is_kept()
    if kept is False:
        says += "; the kernel knows of no time service that keeps it, such as chrony or systemd-timesyncd"
    elif kept:
        says += ", kept by a time service"
    return Finding("clock", good=True, says=says, note=kept is False)


def check_reachable(
    config: "Config", listeners: "Mapping[str, Address]", addresses: Iterable[str] | None = None
) -> Iterator[Finding]:
    """Look from where the listeners can be reached, and whether public names lead to this machine.

    Args:
        config: Has the public names.
        listeners: Every listener that is on, by setting.
        addresses: Of this machine; None looks for them.
    """
    own = list(own_addresses() if addresses is None else addresses)
    open_to_others = [name for name, address in listeners.items() if not address.is_loopback]
    says = f"this machine has {', '.join(own) or 'no address but its loopback'}"
    if not open_to_others:
        says = "every listener is on the loopback address, so only programs on this machine reach the node"
    elif not any(ipaddress.ip_address(each).is_global for each in own):
        ports = ", ".join(f"{name} {listeners[name].port}" for name in open_to_others if not name.startswith("admin."))
        says += f", none of them public; from the internet a router has to pass these ports on: {ports}"
    else:
        yield Finding("address", good=True, says=says)
        says = ""
    if says:
        yield Finding("address", good=True, says=says, note=True)
    for name, url in public_names(config).items():
        yield _check_name(name, url, own)


def public_names(config: "Config") -> dict[str, str]:
    """Return the addresses that the node advertises, by setting."""
    from waystation.server.registry import protocol_tables  # noqa: PLC0415 - only this check needs it

    found: dict[str, str] = {}
    for table in protocol_tables():
        if config.of(table.listen).enabled:
            settings = config.of(table.settings)
            found |= {f"{table.name}.{key}": getattr(settings, key, "") for key in _PUBLIC}
    return {name: url for name, url in found.items() if url}


def _check_name(name: str, url: str, own: list[str]) -> Finding:
    host = urlsplit(url).hostname or ""
    try:
        places = resolved(host)
    except HostError as error:
        return Finding("address", good=False, says=f"{name} = {url}: {error}")
    says = f"{name} = {url} leads to {', '.join(places)}"
    if set(places) & set(own):
        return Finding("address", good=True, says=f"{says}, this machine")
    return Finding("address", good=True, says=f"{says}, which is none of this machine; right behind a proxy", note=True)
