"""What differs between MicroPython and CPython, in one place."""

import os
import sys
import time

try:
    from micropython import const
except ImportError:  # CPython

    def const(value: int) -> int:
        """Return the value; MicroPython puts it into the code instead."""
        return value


try:
    from gc import collect as make_room
    from time import sleep_ms, ticks_diff, ticks_ms

    NATIVE = True
except ImportError:  # CPython
    import traceback

    NATIVE = False

    def make_room() -> None:
        """Do nothing: only a small heap needs to be swept by hand, and a large one takes a second for it."""

    def ticks_ms() -> int:
        """Return milliseconds since some moment; compare only with ``ticks_diff``."""
        return time.monotonic_ns() // 1_000_000

    def ticks_diff(later: int, earlier: int) -> int:
        """Return how many milliseconds lie between two ``ticks_ms``."""
        return later - earlier

    def sleep_ms(duration_ms: int) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)


__all__ = [
    "NATIVE",
    "SetupError",
    "const",
    "keep",
    "make_room",
    "replace",
    "same",
    "seldom",
    "settle",
    "show",
    "sleep_ms",
    "sweep",
    "ticks_diff",
    "ticks_ms",
    "unix_s",
    "unload",
]

_SELDOM = (
    "authorities",
    "ed25519",
    "ed25519_table",
    "extensions",
    "invitations",
    "manage",
    "names",
    "notices",
    "pairing",
    "reading",
    "rights",
    "sha512",
    "x25519",
)
_EPOCH_2000_S = 946_684_800  # boards count from 2000, everything else from 1970
_SET_S = 1_704_067_200  # 2024; a clock that says less was never set


class SetupError(Exception):
    """Somebody must put a file of the device right before it can run; the text says which, and how."""


def show(error: Exception) -> None:
    """Print an exception with the lines that it came from."""
    if NATIVE:
        sys.print_exception(error)
    else:
        traceback.print_exception(error)


def same(one: bytes, other: bytes) -> bool:
    """Return whether two texts are equal, in a time that does not depend on where they differ."""
    if len(one) != len(other):
        return False
    difference = 0
    for a, b in zip(one, other):
        difference |= a ^ b
    return not difference


def unload(*modules: str) -> None:
    """Forget modules of this package, which come again when they are imported again; only a board is so small."""
    if not NATIVE:
        return
    package = __name__.rpartition(".")[0]
    for name in modules:
        if sys.modules.pop(package + "." + name, None) is not None and hasattr(sys.modules[package], name):
            delattr(sys.modules[package], name)


def seldom(module: str, name: str, *words: object) -> object:
    """Return what a function gives whose module is in memory only meanwhile."""
    whole = __name__.rpartition(".")[0] + "." + module
    try:
        __import__(whole)
        return getattr(sys.modules[whole], name)(*words)
    finally:
        unload(module)


def settle() -> None:
    """Load what sends once, at the start: its names stay in memory for ever, and then lie beside each other."""
    for module in ("outgoing", "notices") if NATIVE else ():
        whole = __name__.rpartition(".")[0] + "." + module
        if whole not in sys.modules:
            __import__(whole)
            unload(module)
    sweep()


def sweep() -> None:
    """Forget every module that is in memory only while it is at work, and make room.

    One whose import or work has failed is there still, and perhaps only half of it.
    """
    unload(*_SELDOM)
    make_room()


def unix_s() -> int:
    """Return the seconds since 1970, or 0 when this machine's clock was never set."""
    now = int(time.time())
    if time.gmtime(0)[0] == 2000:
        now += _EPOCH_2000_S
    return now if now >= _SET_S else 0


def keep(path: str, parts: object) -> None:
    """Write the parts of a file so that it is on the medium, for nobody else to read; raises OSError.

    In MicroPython on a desk the umask says who may read it; a board has nobody else.
    """
    with open(path, "wb") if NATIVE else open(path, "wb", opener=_private) as file:
        for part in parts:
            file.write(part)
        if not NATIVE:  # a board's file systems write everything out when a file is closed
            file.flush()
            os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    os.chmod(path, 0o600)  # it was there already
    return descriptor


def replace(source: str, target: str) -> None:
    """Rename a file over another; raises OSError.

    At once on littlefs and on a desk; FAT removes the target first, so readers must manage with ``source`` alone.
    """
    if NATIVE:
        os.rename(source, target)
    else:
        os.replace(source, target)
