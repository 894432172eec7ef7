"""The folder of a microcontroller: what ``waystation mcu new`` writes, and who may use it when.

::

    NAME/             0700
      main.py         what the device answers; the only file to edit
      settings.py     its relays and, on a board, its Wi-Fi
      relay-1.der     the one authority that the first relay's certificate must come from
      bhumi/          the client, compiled
      bhumi.state     identity, invites, peers: secrets
      lock            held while the folder is in use on a desk; no board needs it
"""

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.cli.mcu_package import PACKAGE, copy_package, device_module
from waystation.core.errors import HostError, LocalError

__all__ = ["STATE_FILE", "Relay", "check_folder", "check_new", "invite_into", "take_lock", "write_folder"]

STATE_FILE: Final = "bhumi.state"
_LOCK_FILE: Final = "lock"

_SETTINGS: Final = '''\
"""Where this device finds its relays; the next one is tried when one fails."""

RELAYS = [
{relays}
]

# On a board: ("name of the network", "password").
WIFI = None
'''

MAIN: Final = '''\
"""What this device answers. The same file runs on a desk (waystation mcu run) and on a board."""

import settings
from bhumi.device import Device
from bhumi.state import State


def answer(request):
    """Return text or bytes; for a command, anything that JSON can say. What is raised here the peer is told."""
    if request.content_type == 2:
        name, arguments = request.command()
        return {"did": name, "with": arguments}
    return "hello " + request.alias + ", you said: " + request.text


feed = None
if settings.WIFI:
    import machine
    import network

    # A name look-up that gets no answer takes up to 14 s on an ESP32; everything else feeds once a second.
    feed = machine.WDT(timeout=30000).feed
    wifi = network.WLAN(network.STA_IF)
    wifi.active(True)
    wifi.connect(*settings.WIFI)
    while not wifi.isconnected():
        machine.idle()

Device(State("bhumi.state", feed), settings.RELAYS, answer, feed=feed).run()
'''


class Relay(NamedTuple):
    """Where a relay is, and whom its certificate must come from."""

    url: str
    authority: bytes
    """The certificate in DER; empty for a relay without TLS."""


def write_folder(
    folder: Path, relays: Sequence[Relay], *, alias: str, main: str = MAIN, sources: bool = False
) -> tuple[bool, str]:
    """Write the folder, whole or not at all.

    Args:
        folder: Must not exist.
        relays: At least one.
        alias: How the device calls whoever uses its first invite.
        main: Text of ``main.py``.
        sources: Whether the package is put there as ``.py``.

    Returns:
        Whether the package is compiled, and the token of the first invite.

    Raises:
        LocalError: The folder exists, or the alias is too long.
        HostError: The disk refuses.
    """
    check_new(folder)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise HostError(f"cannot make {folder}: {error.strerror}") from error
    try:
        compiled = copy_package(folder / PACKAGE, sources=sources)
        lines = []
        for number, relay in enumerate(relays, 1):
            name = f"relay-{number}.der" if relay.authority else ""
            lines.append(f'    ("{relay.url}", "{name}"),')
            if name:
                (folder / name).write_bytes(relay.authority)
        (folder / "settings.py").write_text(_SETTINGS.format(relays="\n".join(lines)), encoding="utf-8")
        (folder / "main.py").write_text(main, encoding="utf-8")
        return compiled, invite_into(folder, alias)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise HostError(f"cannot write {folder}: {error}") from error
        raise


def invite_into(folder: Path, alias: str) -> str:
    """Make an invite in the folder's state and return its token; the folder must not be in use.

    Raises:
        LocalError: The alias is too long, or too many invites wait.
        HostError: The state cannot be read or kept.
    """
    state_module, names = device_module("state"), device_module("names")
    path = folder / STATE_FILE
    try:
        state: Any = state_module.State(str(path))
        token: str = names.invite_token(state.identity, state.add_invite(alias))
        path.chmod(0o600)
    except ValueError as error:
        raise LocalError(str(error)) from error
    except (OSError, state_module.StateError) as error:
        raise HostError(f"cannot use {path}: {error}") from error
    return token


def check_new(folder: Path) -> None:
    """Raise LocalError when there is something at ``folder``."""
    if folder.exists() or folder.is_symlink():
        raise LocalError(f"{folder} exists already; take another name, or remove it")


def check_folder(folder: Path) -> None:
    """Raise LocalError when a folder is not one of ours."""
    if not (folder / "main.py").is_file() or not (folder / "settings.py").is_file():
        raise LocalError(f"{folder} is no microcontroller's folder; `waystation mcu new {folder}` makes one")


def take_lock(folder: Path) -> int:
    """Return a descriptor that keeps others out of the folder as long as it, or a child's copy of it, is open.

    Raises:
        HostError: Somebody else has the folder, or the file cannot be made.
    """
    try:
        descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise HostError(f"cannot use {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise HostError(f"{folder} is running already; stop it first") from error
    return descriptor
