"""Laws of server.verify_worker: its format, its answers, and its end."""

import io
import socket
import subprocess
import sys

from tests.server.test_verifier import answers_to, make_checks
from waystation.server.verify_worker import READY, decode_batch, encode_batch, serve


def test_batch_reads_back():
    """What is written is what is read, whatever the lengths, behind the number of its bytes."""
    checks = make_checks(50)
    batch = encode_batch(checks)

    assert int.from_bytes(batch[:4], "little") == len(batch) - 4
    assert list(decode_batch(batch[4:])) == checks
    assert list(decode_batch(encode_batch([])[4:])) == []


def test_each_batch_gets_its_answers():
    """One byte per check, in order, 255 for none; an unfinished length ends it."""
    first, second = make_checks(20, seed=1), make_checks(5, seed=2)
    said = io.BytesIO()

    serve(io.BytesIO(encode_batch(first) + encode_batch(second) + b"\x01\x00"), said)

    assert said.getvalue() == READY + bytes(answer & 0xFF for answer in answers_to(first + second))


def test_process_ends_with_its_node():
    """When the node's end of the socket is gone the process ends by itself, without a word."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "waystation.server.verify_worker"]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), stderr=subprocess.PIPE)
    with ours:
        ready = ours.recv(1)
        ours.sendall(encode_batch(make_checks(3)))
    code = process.wait(5)
    said = process.stderr.read()
    process.stderr.close()

    assert (ready, code, said) == (READY, 0, b"")


def test_process_imports_little():
    """A worker knows signatures and nothing of the server, of protocols or of the network."""
    strangers = ("asyncio", "structlog", "uvloop", "picows", "waystation.engine")
    code = f"import sys, waystation.server.verify_worker\nprint([name for name in {strangers} if name in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
