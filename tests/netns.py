"""Two network namespaces with one wire between them, which loses, delays and reorders packets on command.

Each namespace has a TUN device, and a thread of this process carries the packets from one to the other, since a kernel
need not have ``netem``. Namespaces and devices have no name outside: they end with the process, whatever ends it.
Linux, and root; nothing of the machine's own network is touched.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from pathlib import Path

NEAR, FAR = "10.77.0.1", "10.77.0.2"
"""Addresses of the two namespaces; each has a loopback of its own, too."""

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SET_INTERFACE = 0x400454CA  # TUNSETIFF
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
_PACKET_BYTES_MAX = 65_535
_LOOK_S = 0.2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Place:
    """One namespace; use it with ``with``: what the thread opens and starts inside belongs to it."""

    def __init__(self, address, other):
        """Make a namespace whose wire has an address, with ``other`` at its end."""
        self.address = address
        self._failure = None
        making = threading.Thread(target=self._make, args=(address, other))
        making.start()
        making.join()
        if self._failure is not None:
            raise self._failure

    def _make(self, address, other):
        try:
            _check(_libc.unshare(_NEW_NETWORK))  # of this thread alone
            self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            self.wire = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.wire, _SET_INTERFACE, struct.pack("16sH22x", b"wire", _TUN_WITHOUT_HEADER))
            for words in ("link set lo up", f"addr add {address} peer {other} dev wire", "link set wire up"):
                subprocess.run(["ip", *words.split()], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self._failure = error

    def __enter__(self):
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _check(_libc.setns(self._namespace, _NEW_NETWORK))
        return self

    def __exit__(self, *_):
        _check(_libc.setns(self._before, _NEW_NETWORK))
        os.close(self._before)

    def close(self):
        """Let it go; it ends with the last process inside."""
        os.close(self.wire)
        os.close(self._namespace)


class Wire:
    """The wire between two places; use it in ``with``."""

    def __init__(self):
        self.near, self.far = Place(NEAR, FAR), Place(FAR, NEAR)
        self.is_cut = False
        """Whether every packet is lost."""
        self.loss = 0.0
        """Share of packets that is lost."""
        self.delay_s = (0.0, 0.0)
        """Least and most time that a packet takes; later ones overtake it."""
        self._rng = random.Random(1)
        self._under_way = []
        self._number = itertools.count()
        self._ends = False
        self._carrier = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self):
        self._carrier.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        self._carrier.join()
        self.near.close()
        self.far.close()

    @contextlib.contextmanager
    def cut(self):
        """Lose every packet meanwhile."""
        self.is_cut = True
        try:
            yield
        finally:
            self.is_cut = False

    def _carry(self):
        ends = {self.near.wire: self.far.wire, self.far.wire: self.near.wire}
        while not self._ends:
            wait_s = min(_LOOK_S, max(0.0, self._under_way[0][0] - time.monotonic())) if self._under_way else _LOOK_S
            for source in select.select(list(ends), [], [], wait_s)[0]:
                self._take(source, ends[source])
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._under_way)
                _put(target, packet)

    def _take(self, source, target):
        """Carry all packets that wait at one end."""
        while True:
            try:
                packet = os.read(source, _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            if self.is_cut or self._rng.random() < self.loss:
                continue
            due = time.monotonic() + self._rng.uniform(*self.delay_s)
            heapq.heappush(self._under_way, (due, next(self._number), target, packet))


def _put(target, packet):
    with contextlib.suppress(BlockingIOError):  # its queue is full: that loses packets, as everywhere
        os.write(target, packet)


def is_possible():
    """Return whether namespaces and TUN devices may be made here."""
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()
