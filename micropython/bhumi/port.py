"""What differs between MicroPython and CPython, in one place."""

import os
import time

try:
    from time import sleep_ms, ticks_diff, ticks_ms

    NATIVE = True
except ImportError:  # CPython
    NATIVE = False

    def ticks_ms() -> int:
        """Return milliseconds since some moment; compare only with ``ticks_diff``."""
        return time.monotonic_ns() // 1_000_000

    def ticks_diff(later: int, earlier: int) -> int:
        """Return how many milliseconds lie between two ``ticks_ms``."""
        return later - earlier

    def sleep_ms(duration_ms: int) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)


__all__ = ["NATIVE", "keep", "replace", "sleep_ms", "ticks_diff", "ticks_ms", "unix_s"]

_EPOCH_2000_S = 946_684_800  # boards count from 2000, everything else from 1970
_SET_S = 1_704_067_200  # 2024; a clock that says less was never set


def unix_s() -> int:
    """Return the seconds since 1970, or 0 when this machine's clock was never set."""
    now = int(time.time())
    if time.gmtime(0)[0] == 2000:
        now += _EPOCH_2000_S
    return now if now >= _SET_S else 0


def keep(path: str, data: bytes) -> None:
    """Write a file so that it is on the medium when this returns; raises OSError."""
    with open(path, "wb") as file:
        file.write(data)
        if not NATIVE:  # a board's file systems write everything out when a file is closed
            file.flush()
            os.fsync(file.fileno())


def replace(source: str, target: str) -> None:
    """Rename a file over another; raises OSError.

    At once on littlefs and on a desk; FAT removes the target first, so readers must manage with ``source`` alone.
    """
    if NATIVE:
        os.rename(source, target)
    else:
        os.replace(source, target)
