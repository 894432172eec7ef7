"""Creates and checks the folder of a microcontroller device: the files of ``waystation mcu new``, and its lock.

::

    NAME/             0700
      main.py         what the device answers; the only file to edit
      settings.py     its relays and, on a board, its Wi-Fi
      relay-1.der     the one authority that the first relay's certificate must come from
      bhumi/          the client, compiled
      bhumi.state     identity, invites, peers: secrets
      lock            held while the folder is in use on a computer, with the process that uses it; no board needs it
"""

import ast
import fcntl
import hashlib
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.cli.mcu.package import PACKAGE, copy_package, device_module
from waystation.cli.program import own_program
from waystation.core.errors import HostError, LocalError

__all__ = [
    "STATE_FILE",
    "Relay",
    "check_folder",
    "check_new",
    "check_state",
    "invite_into",
    "relays_of",
    "take_lock",
    "write_folder",
]

STATE_FILE: Final = "bhumi.state"
_LOCK_FILE: Final = "lock"
_PID_BYTES_MAX: Final = 20

_SETTINGS: Final = '''\
"""Where this device finds its relays; the next one is tried when one fails."""

RELAYS = [
{relays}
]

# On a board: ("name of the network", "password").
WIFI = None
'''

MAIN: Final = '''\
"""What this device answers. The same file runs on a computer (waystation mcu run) and on a board."""

import settings
from bhumi.device import Device, SetupError
from bhumi.state import State


def answer(request):
    """Return text or bytes; for a command, anything that JSON can say.

    When it raises, the peer learns why; the error with its line is printed here.
    """
    if request.content_type == 2:
        name, arguments = request.command()
        return {"did": name, "with": arguments}
    return "hello " + request.alias + ", you said: " + request.text


network = feed = None
if settings.WIFI:
    from bhumi.wifi import Wifi

    # Connects again by itself, and has a watchdog of 30 s. Everything feeds it once a second, but for a name look-up,
    # which takes up to 14 s without an answer, and answer() above.
    network = Wifi(*settings.WIFI)
    feed = network.feed

try:
    device = Device(State("bhumi.state", feed), settings.RELAYS, answer, network=network)
except SetupError as error:
    print(error)
    raise SystemExit(1)
device.run()
'''


class Relay(NamedTuple):
    """Where a relay is, and whom its certificate must come from."""

    url: str
    authority: bytes
    """The certificate in DER; empty for a relay without TLS."""


def write_folder(
    folder: Path,
    relays: Sequence[Relay],
    *,
    alias: str,
    main: str = MAIN,
    sources: bool = False,
    expires_s: int = 0,
    legacy: bool = False,
) -> tuple[bool, str]:
    """Write the folder, whole or not at all.

    Args:
        folder: Must not exist.
        relays: At least one.
        alias: How the device calls whoever uses its first invite.
        main: Text of ``main.py``.
        sources: Whether the package is put there as ``.py``.
        expires_s: When the first invite ends, in Unix seconds; 0 for never.
        legacy: Whether it has no pairing secret.

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
        return compiled, invite_into(folder, alias, expires_s=expires_s, legacy=legacy)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise HostError(f"cannot write {folder}: {error}") from error
        raise


def invite_into(folder: Path, alias: str, *, expires_s: int = 0, legacy: bool = False) -> str:
    """Make an invite in the folder's state and return its token; the folder must not be in use.

    Args:
        folder: Of the device; its settings.py says which relays the invitation names.
        alias: How the device calls whoever uses the invite.
        expires_s: When it ends, in Unix seconds; 0 for never.
        legacy: Without a pairing secret: a relay that sees it used can use it itself.

    Raises:
        LocalError: The alias is too long, too many invites wait, or settings.py names no relay.
        HostError: The state cannot be read or kept.
    """
    state_module, invitations = device_module("state"), device_module("invitations")
    path = folder / STATE_FILE
    places = relays_of(folder)
    try:
        state: Any = state_module.State(str(path))
        preimage, secret = state.add_invite(alias, expires_s, legacy)
        path.chmod(0o600)
        if legacy:
            token: str = invitations.invite_token(state.identity, preimage)
        else:
            authority, urls = _vouched_for(places)
            fingerprint = hashlib.sha256(authority).digest() if authority else b""
            token = invitations.invitation(state.identity, preimage, secret, urls, fingerprint, expires_s)
    except ValueError as error:
        raise LocalError(str(error)) from error
    except (OSError, device_module("port").SetupError) as error:
        raise HostError(f"cannot use {path}: {error}") from error
    return token


def check_new(folder: Path) -> None:
    """Raise LocalError when there is something at ``folder``."""
    if folder.exists() or folder.is_symlink():
        raise LocalError(f"{folder} exists already; take another name, or remove it")


def check_folder(folder: Path) -> None:
    """Raise LocalError when a folder is not one of ours."""
    if not folder.is_dir():
        program = shlex.join(own_program())
        raise LocalError(f"there is no folder {folder}; `{program} mcu new {shlex.quote(str(folder))}` makes it")
    missing = [name for name in ("main.py", "settings.py") if not (folder / name).is_file()]
    missing += [] if (folder / PACKAGE).is_dir() else [f"{PACKAGE}/"]
    if missing:
        raise LocalError(f"{folder} is no microcontroller's folder, or not a whole one: it lacks {', '.join(missing)}")


def check_state(folder: Path) -> bool:
    """Return whether a folder has an identity already; raises HostError when its state cannot be read."""
    path = folder / STATE_FILE
    if not path.exists():
        return path.with_name(f"{STATE_FILE}.new").exists()
    state_module = device_module("state")
    try:
        state_module.State(str(path))
    except (OSError, state_module.StateError) as error:
        raise HostError(f"cannot use {path}: {error}") from error
    return True


def relays_of(folder: Path) -> list[tuple[str, Path | None]]:
    """Return the addresses of a folder's relays and the files of their authorities, None without TLS.

    Raises:
        LocalError: settings.py does not say.
    """
    path, names = folder / "settings.py", device_module("names")
    try:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RELAYS":
                found = []
                for text, authority in ast.literal_eval(node.value):
                    scheme, host, port = names.split_relay(text)
                    found.append(
                        (names.join_relay(scheme, host, port), folder / authority if scheme == "tls" else None)
                    )
                if found:
                    return found
    except (OSError, ValueError, TypeError, AttributeError, IndexError, SyntaxError) as error:
        raise LocalError(f"cannot read the relays from {path}: {error}") from error
    raise LocalError(f"{path} has no line RELAYS = [...] that names a relay")


def _vouched_for(places: Sequence[tuple[str, Path | None]]) -> tuple[bytes, list[str]]:
    """Return the authority of the first relay in DER, or nothing, and the addresses that it vouches for."""
    authorities = device_module("authorities").authorities
    known = [(url, b"" if path is None else bytes(authorities(str(path))[0])) for url, path in places]
    first = known[0][1]
    return first, [url for url, authority in known if authority == first]


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
        holder = os.read(descriptor, _PID_BYTES_MAX).decode("ascii", "replace").strip()
        os.close(descriptor)
        who = f" (process {holder})" if holder.isdigit() else ""
        raise HostError(f"{folder} is running already{who}; stop it first") from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
