"""Baselines of LPRP's cost: signatures with bare PyNaCl, datagrams on bare sockets, and a loop that counts datagrams.

Usage: python -m bench.lprp.floor, for the loop: it prints its address, then at the end the number of datagrams.
"""

import json
import os
import signal
import socket
import statistics
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

from nacl import bindings

from bench.report import cpu_us

SIGNED_BYTES: Final = 192
"""What the signature of a packet of 256 bytes covers."""
PACKET_BYTES: Final = 256
ROUNDS: Final = 20
TIMES: Final = 100


def costs(pipe: Connection, core: int) -> None:
    """Send what a cycle costs at least on a core."""
    os.sched_setaffinity(0, {core})
    pipe.send({"crypto us": crypto_us(), "datagrams us": datagrams_us()})


def crypto_us() -> float:
    """Return the CPU microseconds of two verifications and one signature."""
    public, secret = bindings.crypto_sign_seed_keypair(bytes(32))
    message = bytes(SIGNED_BYTES)
    signed = bindings.crypto_sign(message, secret)

    def work() -> None:
        bindings.crypto_sign_open(signed, public)
        bindings.crypto_sign_open(signed, public)
        bindings.crypto_sign(message, secret)

    return statistics.median(cpu_us(work, TIMES, ROUNDS))


def datagrams_us() -> float:
    """Return the CPU microseconds of two datagrams in and two out."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        here.bind(("127.0.0.1", 0))
        there.bind(("127.0.0.1", 0))
        address, data, buffer = there.getsockname(), bytes(PACKET_BYTES), bytearray(2_048)

        def work() -> None:
            here.sendto(data, address)
            here.sendto(data, address)
            there.recvfrom_into(buffer)
            there.recvfrom_into(buffer)

        return statistics.median(cpu_us(work, TIMES, ROUNDS))


def count() -> int:
    """Return how many datagrams came until the process was asked to end."""

    def stop(*_: object) -> None:
        raise InterruptedError

    taken, buffer = 0, bytearray(2_048)
    signal.signal(signal.SIGTERM, stop)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here, suppress(InterruptedError):
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        here.bind(("127.0.0.1", 0))
        print(json.dumps({"listeners": {"lprp": f"udp://127.0.0.1:{here.getsockname()[1]}"}}), flush=True)
        while True:
            here.recvfrom_into(buffer)
            taken += 1
    return taken


if __name__ == "__main__":
    print(count())
