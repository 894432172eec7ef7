"""Hostile datagrams for an LPRP host: what is malformed, forged, replayed, or signed by somebody without any right.

Usage: python -m bench.lprp_hostile, which reads one JSON line: ``host`` and ``port``, ``host_key``, ``tenants`` and
``replays`` as hexadecimal text, ``per_s``, ``seconds``, ``seed``. It answers with a line when everything is signed,
begins with the next line it reads, and tells in the end what it sent and what came back.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from bench.lprp_driver import CODEC, Line
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, HEADER_BYTES, Command

__all__ = ["GARBAGE", "KINDS", "Hostile"]

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
            replays: Whole packets of honest people.
            rng: Draws everything.
        """
        self.lines = [Line(host, local) for local in NETWORKS]
        self.sent = self.sent_bytes = self.came = self.came_bytes = 0
        self._host_key = host_key
        self._tenants = tenants
        self._replays = replays
        self._rng = rng
        self._strangers = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(STRANGERS)]
        self._makers: dict[str, Callable[[], bytes]] = {
            "random": self._random,
            "length": self._wrong_length,
            "command": self._wrong_command,
            "clock": self._stale,
            "host": self._wrong_host,
            "forged": self._forged,
            "replay": self._replayed,
            "outsider": self._outsider,
            "stranger": self._stranger,
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

    def _random(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(600))

    def _wrong_length(self) -> bytes:
        return self._forged()[: self._rng.choice((1, 64, HEADER_BYTES - 1))]

    def _wrong_command(self) -> bytes:
        data = bytearray(self._forged())
        data[136:HEADER_BYTES] = self._rng.choice((0, 0x103, 0x202, 0x602, 2**64 - 1)).to_bytes(8, "big")
        return bytes(data)

    def _stale(self) -> bytes:
        shift = self._rng.choice((-1, 1)) * (CLOCK_WINDOW_MS + 60_000)
        return self._unsigned(Command.HEARTBEAT, self._any_tenant(), self._host_key, shift)

    def _wrong_host(self) -> bytes:
        return self._unsigned(Command.HEARTBEAT, self._any_tenant(), self._rng.randbytes(32))

    def _forged(self) -> bytes:
        return self._unsigned(Command.RELAY, self._any_tenant(), self._any_tenant(), payload=self._rng.randbytes(112))

    def _replayed(self) -> bytes:
        return self._rng.choice(self._replays)

    def _outsider(self) -> bytes:
        return self._signed(Command.HEARTBEAT, self._host_key, b"")

    def _stranger(self) -> bytes:
        return self._signed(Command.RELAY, self._any_tenant(), self._rng.randbytes(112))

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


def main() -> None:
    """Do what the first line asks for."""
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    hostile = Hostile(
        (asked["host"], asked["port"]),
        bytes.fromhex(asked["host_key"]),
        [bytes.fromhex(key) for key in asked["tenants"]],
        [bytes.fromhex(data) for data in asked["replays"]],
        random.Random(asked["seed"]),
    )
    datagrams = hostile.make(KINDS, int(asked["per_s"] * asked["seconds"]))
    print("ready", flush=True)
    sys.stdin.readline()
    hostile.send_paced(datagrams, asked["per_s"])
    told = {"sent": hostile.sent, "sent_bytes": hostile.sent_bytes, "came": hostile.came}
    print(json.dumps(told | {"came_bytes": hostile.came_bytes}), flush=True)
    hostile.close()


if __name__ == "__main__":
    main()
