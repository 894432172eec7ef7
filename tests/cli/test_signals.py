"""Laws of cli.signals, tried on programs that are sent a signal."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys, threading, typer
from waystation.cli.signals import until_signal

async def waits():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("closed", flush=True)

async def hangs():
    print("ready", flush=True)
    await asyncio.to_thread(threading.Event().wait)

async def fails():
    raise ValueError("the work's own")

async def is_done():
    return "its result"

try:
    print(asyncio.run(until_signal({work}(), ended_exit_code=7)))
except KeyboardInterrupt:
    sys.exit(130)
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


def program(work):
    """Start a program that does one of these works."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work=work)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended_by(number, work):
    """Return what a program prints and exits with that gets a signal while it works."""
    running = program(work)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    out, _ = running.communicate(timeout=60)
    return out, running.returncode


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 7)])
def test_signal_ends_the_work(number, exit_code):
    """A signal lets the work close what it has open, and becomes an exit code."""
    assert ended_by(number, "waits") == ("closed\n", exit_code)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 7)])
def test_signal_ends_a_program_whose_thread_hangs(number, exit_code):
    """A thread that nobody can cancel does not keep a program, and the exit code is the same."""
    assert ended_by(number, "hangs") == ("", exit_code)


def test_work_that_ends_by_itself():
    """Without a signal the work's result is the result, and its error the error."""
    done, failing = program("is_done"), program("fails")
    out, _ = done.communicate(timeout=60)
    _, error = failing.communicate(timeout=60)

    assert (out, done.returncode) == ("its result\n", 0)
    assert failing.returncode == 1 and error.endswith("ValueError: the work's own\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_without_a_loop_is_told(number):
    """What asks now and then hears of a signal that came, and ends by itself."""
    program = (
        "import threading\n"
        "from waystation.cli.signals import stopped_by_signal\n"
        "stopped = stopped_by_signal()\n"
        "print(stopped(), flush=True)\n"
        "pause = threading.Event()\n"
        "while not stopped():\n"
        "    pause.wait(0.01)\n"
        "print(stopped())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)

    assert (first, rest, process.returncode) == ("False\n", "True\n", 0)
