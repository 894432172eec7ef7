"""Benchmark: the memory and steady-state CPU that one Bhumi relay needs to gossip many presence records.

Usage: python -m bench.bhumi.gossip [--records 100000] [--json FILE]

One relay has eight gossip peers. First it receives all records; its memory growth is the size of its tables. Then every
device renews its presence every 240 simulated seconds. Each record arrives from several peers, as in a mesh where a
relay sends to three peers at once and to three more one sweep later. The result is the relay's CPU share of one core,
signature checks included. It covers two renewal cycles, because gossip passes on only every second renewal of a device
(BHUMI-RENEWAL). The benchmark's own work, mostly signing, is excluded.
"""

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.report import Bench, Figures
from waystation.core.effects import Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_presence

CONTACTS = 8
RELAYS = 50
RENEWED_EVERY_S = 240
MEASURED_S = 2 * RENEWED_EVERY_S
TTL_S = 600
COPIES = 6  # of each record: three peers send it at once, three with their next sweep
PER_FRAME = 400
MEMORY_MIB_MAX = 64
SHARE_MAX = 0.02
_SECOND = 1_000_000
_WALL_S = 1_700_000_000


class Relay:
    """A relay with gossip peers, and a clock that counts what it spends."""

    def __init__(self) -> None:
        """Link it with its peers."""
        self.now = Instant(0)
        self.spent_s = 0.0
        self.bytes_out = 0
        key_pair = KeyPair.from_seed(bytes([1]) * 32)
        self.machine = BhumiRelay(BhumiSettings(), random.Random(1), key_pair=key_pair, rate_limits=False)
        self.machine.set_wall(self.now, _WALL_S * _SECOND)
        self.peers = [Peer(number) for number in range(1, CONTACTS + 1)]
        for peer in self.peers:
            self._introduce(peer)

    def _introduce(self, peer: Peer) -> None:
        key_pair = KeyPair.from_seed(bytes([100 + peer]) * 32)
        self.machine.connect(peer, self.now)
        (hello,) = (effect for effect in self.machine.take() if isinstance(effect, Send))
        nonce = wire.decode_hello(hello.data[wire.FRAME_HEADER_BYTES :]).relay_nonce
        identity = messages.IAm(key_pair.public, sign(key_pair, wire.signed_bytes(nonce, key_pair.public)))
        opening: tuple[messages.Message, ...] = (messages.Options(Feature.PRESENCE), identity)
        self.machine.receive(
            peer, b"".join([wire.encode(message) for message in opening]) + extension_wire.encode_gossip([]), self.now
        )
        self.machine.take()

    def receive(self, peer: Peer, tagged: Sequence[bytes]) -> None:
        """Let a peer send records, and count what that costs."""
        for start in range(0, len(tagged), PER_FRAME):
            frame = extension_wire.encode_gossip(tagged[start : start + PER_FRAME])
            with self._counted():
                self.machine.receive(peer, frame, self.now)

    def pass_second(self) -> None:
        """Let a second pass, and count what that costs; peers keep their connections alive."""
        until = Instant(self.now + _SECOND)
        with self._counted():
            while (deadline := self.machine.deadline()) is not None and deadline <= until:
                self.now = max(self.now, deadline)
                self.machine.wake(self.now)
        self.now = until
        if until // _SECOND % 45 == 0:
            for peer in self.peers:
                self.machine.receive(peer, wire.encode(messages.Keepalive()), self.now)
            self.machine.take()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the time of some work and of its effects, and the bytes of those."""
        began = time.process_time()
        yield
        effects = self.machine.take()
        self.spent_s += time.process_time() - began
        self.bytes_out += sum(len(effect.data) for effect in effects if isinstance(effect, Send))


class Devices:
    """Keys, and what they sign."""

    def __init__(self, count: int) -> None:
        """Make keys, each at some relay."""
        rng = random.Random(2)
        self._keys = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(count)]
        self._relays = [KeyPair.from_seed(bytes([number]) * 32).public for number in range(150, 150 + RELAYS)]

    def __len__(self) -> int:
        return len(self._keys)

    def presence(self, number: int, issued_at_s: int) -> bytes:
        """Return the tagged presence of one device."""
        record = sign_presence(self._keys[number], self._relays[number % RELAYS], issued_at_s, TTL_S)
        return extension_wire.encode_tagged(record)

    def renewing(self, second: int) -> range:
        """Return the devices that renew in this second."""
        return range(second % RENEWED_EVERY_S, len(self._keys), RENEWED_EVERY_S)


def fill(relay: Relay, devices: Devices) -> float:
    """Let the relay learn every device as it was in the last 240 s; return the MiB that it has grown by."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for second in range(-RENEWED_EVERY_S, 0):
        tagged = [devices.presence(number, _WALL_S + second) for number in devices.renewing(second)]
        relay.receive(relay.peers[second % CONTACTS], tagged)
    for _ in range(2):  # what came in this sweep is sent again in the next, and then let go
        for _ in range(35):
            relay.pass_second()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / (1 << 20)


def steady(relay: Relay, devices: Devices) -> float:
    """Let devices renew for two cycles and for two more; return the share of a core in the latter."""
    first = relay.now // _SECOND
    measured_from = first + MEASURED_S
    late: dict[int, list[bytes]] = {}
    for second in range(first, measured_from + MEASURED_S):
        if second == measured_from:
            relay.spent_s, relay.bytes_out = 0.0, 0
        tagged = [devices.presence(number, _WALL_S + second) for number in devices.renewing(second)]
        if second // RENEWED_EVERY_S % 2 == 0:  # no news to any relay, so that only the relays of the devices send it
            tagged = tagged[: len(tagged) // RELAYS]
        late[second + 30] = tagged
        for copy in range(COPIES // 2):
            relay.receive(relay.peers[(second + copy) % CONTACTS], tagged)
            relay.receive(relay.peers[(second + copy + 3) % CONTACTS], late.get(second, []))
        late.pop(second, None)
        relay.pass_second()
    return relay.spent_s / MEASURED_S


def measure(options: Any) -> Figures:
    """Fill and run; return numbers."""
    relay, devices = Relay(), Devices(options.records)
    mib = fill(relay, devices)
    share = steady(relay, devices)
    assert relay.machine.sizes()["presences"] == len(devices)
    return {
        "records": len(devices),
        "memory MiB": mib,
        "bytes per record": mib * (1 << 20) / len(devices),
        "share of a core": share,
        "KiB/s out": relay.bytes_out / MEASURED_S / 1_024,
    }


AIMS: dict[str, Callable[[Figures], float]] = {
    "memory over what is allowed (at most 1)": lambda m: m["memory MiB"] / (MEMORY_MIB_MAX * m["records"] / 100_000),
    "CPU over what is allowed (at most 1)": lambda m: m["share of a core"] / (SHARE_MAX * m["records"] / 100_000),
}


if __name__ == "__main__":
    bench = Bench(__doc__, {"gossip": measure}, records=100_000)
    bench.run(f"Bhumi gossip, {bench.options.records:,} devices, {CONTACTS} gossip peers", AIMS)
