"""Sends hostile datagrams to an LPRP host: malformed, forged, replayed, or signed by keys without permission."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Final

from bench.lprp.driver import CODEC, Line
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, HEADER_BYTES, Command

NETWORKS: Final = tuple(f"127.0.{number}.1" for number in range(66, 70))
STRANGERS: Final = 256
GARBAGE: Final = ("random", "length", "command", "clock", "host")
KINDS: Final = (*GARBAGE, "forged", "replay", "outsider", "stranger")
_SECONDS_PER_LOOK: Final = 0.001


class Hostile:
    """Makes datagrams of any kind, and sends them from networks of its own."""

    def __init__(
        self,
        host: tuple[str, int],
        host_key: bytes,
        tenants: Sequence[bytes],
        replays: Sequence[bytes],
        rng: random.Random,
    ) -> None:
        """Open sockets.

        Args:
            host: Where the host listens.
            host_key: Its public key, 32 bytes.
            tenants: Public keys of tenants, to write to and to imitate.
            replays: Whole packets of honest clients.
            rng: Draws everything.
        """
        self.lines = [Line(host, local) for local in NETWORKS]
        self.sent = self.sent_bytes = self.came = self.came_bytes = 0
        self._host_key = host_key
        self._tenants = tenants
        self._rng = rng
        self._strangers = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(STRANGERS)]
        self._makers: dict[str, Callable[[], bytes]] = {
            "random": lambda: rng.randbytes(rng.randrange(600)),
            "length": lambda: self._forged()[: rng.choice((1, 64, HEADER_BYTES - 1))],
            "command": self._wrong_command,
            "clock": self._stale,
            "host": lambda: self._unsigned(Command.HEARTBEAT, self._any_tenant(), rng.randbytes(32)),
            "forged": self._forged,
            "replay": lambda: rng.choice(replays),
            "outsider": lambda: self._signed(Command.HEARTBEAT, host_key, b""),
            "stranger": lambda: self._signed(Command.RELAY, self._any_tenant(), rng.randbytes(112)),
        }

    def make(self, kinds: Sequence[str], count: int) -> list[bytes]:
        """Return so many datagrams, of the kinds in turn."""
        return [self._makers[kinds[number % len(kinds)]]() for number in range(count)]

    def send(self, datagrams: Iterable[bytes]) -> None:
        """Send from all networks in turn, and take what comes back."""
        for data in datagrams:
            if self.lines[self.sent % len(self.lines)].send(data):
                self.sent_bytes += len(data)
            self.sent += 1
        for line in self.lines:
            for data in line.read():
                self.came += 1
                self.came_bytes += len(data)

    def send_paced(self, datagrams: Sequence[bytes], per_s: float) -> None:
        """Send all, so many a second."""
        began, at = time.perf_counter(), 0
        while at < len(datagrams):
            due = min(len(datagrams), int((time.perf_counter() - began) * per_s) + 1)
            self.send(datagrams[at:due])
            at = due
            time.sleep(_SECONDS_PER_LOOK)

    def close(self) -> None:
        """Close the sockets."""
        for line in self.lines:
            line.close()

    def _wrong_command(self) -> bytes:
        data = bytearray(self._forged())
        data[136:HEADER_BYTES] = self._rng.choice((0, 0x103, 0x202, 0x602, 2**64 - 1)).to_bytes(8, "big")
        return bytes(data)

    def _stale(self) -> bytes:
        shift = self._rng.choice((-1, 1)) * (CLOCK_WINDOW_MS + 60_000)
        return self._unsigned(Command.HEARTBEAT, self._any_tenant(), self._host_key, shift)

    def _forged(self) -> bytes:
        return self._unsigned(Command.RELAY, self._any_tenant(), self._any_tenant(), payload=self._rng.randbytes(112))

    def _any_tenant(self) -> bytes:
        return self._rng.choice(self._tenants)

    def _unsigned(
        self, command: Command, sender: bytes, recipient: bytes, shift_ms: int = 0, payload: bytes = b""
    ) -> bytes:
        time_ms = (_now_ms() + shift_ms).to_bytes(8, "big")
        return self._rng.randbytes(64) + time_ms + sender + recipient + int(command).to_bytes(8, "big") + payload

    def _signed(self, command: Command, recipient: bytes, payload: bytes) -> bytes:
        return CODEC.seal(self._rng.choice(self._strangers), recipient, command, payload, _now_ms()).data


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def attack(
    pipe: Connection,
    host: tuple[str, int],
    host_key: bytes,
    tenants: Sequence[bytes],
    replays: Sequence[bytes],
    per_s: float,
    seconds: float,
) -> None:
    """Sign datagrams of all kinds, say so, send them at a rate after the word, and report what was sent and came."""
    hostile = Hostile(host, host_key, tenants, replays, random.Random(1))
    datagrams = hostile.make(KINDS, int(per_s * seconds))
    pipe.send("ready")
    pipe.recv()
    hostile.send_paced(datagrams, per_s)
    pipe.send((hostile.sent, hostile.sent_bytes, hostile.came_bytes))
    hostile.close()
