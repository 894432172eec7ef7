"""What LPRP costs at least: signatures with bare PyNaCl, datagrams with bare sockets, and a loop that only counts them.

Usage: python -m bench.lprp_floor costs, which prints microseconds; or python -m bench.lprp_floor count, a loop that
prints where it listens, and in the end how many came.
"""

import asyncio
import json
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

import uvloop
from nacl import bindings

__all__ = ["crypto_us", "datagrams_us"]

SIGNED_BYTES: Final = 192
"""What the signature of a packet of 256 bytes covers."""
PACKET_BYTES: Final = 256
ROUNDS: Final = 20
TIMES: Final = 100
READS_MAX: Final = 256


def crypto_us() -> float:
    """Return the CPU microseconds of two verifications and one signature."""
    public, secret = bindings.crypto_sign_seed_keypair(bytes(32))
    message = bytes(SIGNED_BYTES)
    signed = bindings.crypto_sign(message, secret)

    def work() -> None:
        bindings.crypto_sign_open(signed, public)
        bindings.crypto_sign_open(signed, public)
        bindings.crypto_sign(message, secret)

    return _median_us(work)


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

        return _median_us(work)


def _median_us(work: Callable[[], None]) -> float:
    """Return the CPU microseconds of one call."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(TIMES):
            work()
        taken.append((time.process_time() - began) / TIMES * 1e6)
    return statistics.median(taken)


async def count() -> None:
    """Count datagrams until told to stop."""
    taken, buffer = 0, bytearray(2_048)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        here.bind(("127.0.0.1", 0))
        here.setblocking(False)

        def read() -> None:
            nonlocal taken
            try:
                for _ in range(READS_MAX):
                    here.recvfrom_into(buffer)
                    taken += 1
            except BlockingIOError:
                return

        loop.add_reader(here.fileno(), read)
        loop.add_signal_handler(signal.SIGTERM, over.set)
        _tell({"listeners": {"lprp": f"udp://127.0.0.1:{here.getsockname()[1]}"}})
        await over.wait()
        loop.remove_reader(here.fileno())
    _tell({"taken": taken})


def _tell(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["costs"]:
        _tell({"crypto us": crypto_us(), "datagrams us": datagrams_us()})
    else:
        uvloop.run(count())
