"""Hostile actors of a simulated LPRP network: each repeats one attack, from any source address.

``LprpScenario`` starts them. They can do what anyone on the internet can: sign with their own keys, replay packets that
have arrived, and forge source addresses. One also sends to clients from a host's address. They cannot intercept a
packet and send it on themselves; the protocol cannot distinguish that from a tenant with a new address.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.sim.chance import spread
from waystation.sim.lprp.context import LprpContext, Tapped, host_address
from waystation.sim.lprp.packets import DEMANDS, Seen, make_packet, read_packet, work_bits

__all__ = ["HOSTILES"]

NEXT_US: Final = MICROSECONDS_PER_SECOND // 2
DATAGRAM_MAX: Final = 2_000
SOLVES_MAX: Final = 1 << 14
FILL_COUNT: Final = 24
BEATS_COUNT: Final = 12
_TIMES_MS: Final = (0, 0, 0, 0, -524_000, 524_000, -524_500, 524_500, 1 << 40)


class Hostile:
    """One actor with one trick that it plays again and again."""

    def __init__(self, context: LprpContext, rng: random.Random, number: int, people: Sequence[Address]) -> None:
        """Make it; ``come`` lets it loose.

        Args:
            context: Shared by all actors.
            rng: Source of its malice.
            number: Its number in the network.
            people: Addresses that honest people have, to begin with.
        """
        self.context = context
        self.rng = rng
        self.people = people
        self.address: Address = (f"10.200.{number}.1", 666)
        self.key = KeyPair.from_seed(rng.randbytes(32))
        self._last_ms = 0

    def come(self) -> None:
        """Begin."""
        self.context.network.bind(self.address, self.on_datagram)
        self._go_on()

    def play(self) -> None:
        """Do the trick once."""
        raise AssertionError

    def on_datagram(self, data: bytes, address: Address) -> None:
        """Read an answer; most do not care."""

    def _go_on(self) -> None:
        if self.context.in_fault_phase:
            self.play()
            self.context.schedule.after(1 + spread(self.rng, NEXT_US), self._go_on)

    # What tricks are made of

    def any_host(self) -> int:
        """Return the number of a host."""
        return self.rng.randrange(len(self.context.host_keys))

    def send(self, host: int, data: bytes, source: Address | None = None) -> None:
        """Send a datagram, in its own name or in somebody's."""
        self.context.made(data)
        self.context.network.send(source or self.address, host_address(host), data)

    def seal(self, host: int, command: int, payload: bytes, recipient: bytes | None = None) -> bytes:
        """Return a packet of its own, each with a later time."""
        self._last_ms = max(self._last_ms + 1, self.context.wall_ms())
        return make_packet(self.key, recipient or self.context.host_keys[host], command, payload, self._last_ms)

    def victim(self) -> Address:
        """Return the address of somebody who never spoke to a host."""
        return f"203.0.{self.rng.randrange(4)}.{self.rng.randrange(4)}", 9

    def bend(self, data: bytes) -> bytes:
        """Return a datagram with one careless change."""
        rng, at = self.rng, self.rng.randrange(len(data) or 1)
        return rng.choice(
            (
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data[:at],
                data + rng.randbytes(rng.randrange(1, 40)),
                data[:at] + data[at + 1 :],
                data[:136] + rng.choice((0x100, 0x101, 0x102, 0x202, 0x802, 0x808, 7)).to_bytes(8, "big") + data[144:],
            )
        )


class Replayer(Hostile):
    """Repeats good packets of others, 102s that it got among them, from its own address, here or at another host."""

    def play(self) -> None:
        """Repeat a few, the newest most of the time."""
        tapped = [*self.context.requests, *(each for each in self.context.answers if each.packet.command == 0x102)]
        for _ in range(self.rng.randint(1, 4)):
            if not tapped:
                return
            newest = tapped[-20:] if self.rng.random() < 1 / 2 else tapped
            each = self.rng.choice(newest)
            host = each.host if self.rng.random() < 2 / 3 else self.any_host()
            self.send(host, each.packet.data)


class Spoofer(Hostile):
    """Lets hosts answer somebody who never asked: its own packets and those of others, in a victim's name."""

    def play(self) -> None:
        """Send one of each kind, or a replay, with a forged source."""
        rng, host = self.rng, self.any_host()
        recipient = rng.choice(self.context.tenants)[0] if self.context.tenants else self.key.public
        source = self.victim() if rng.random() < 1 / 2 else rng.choice(self.people)
        packets = [
            self.seal(host, 0x100, b""),
            self.seal(host, 0x102, rng.randbytes(rng.choice((0, 10, 64, 364))), recipient),
            self.seal(host, 0x104, bytes(64)),
            self.seal(host, 0x108, bytes(64)),
            self.seal(host, 0x808, bytes(64)),
        ]
        if self.context.requests:
            packets.append(rng.choice(self.context.requests).packet.data)
        self.send(host, rng.choice(packets[:5]), source)
        self.send(host, packets[-1], self.victim())


class Farmer(Hostile):
    """Has many keys and networks: gathers demands for work, answers some of them, with too little work too."""

    def play(self) -> None:
        """Ask for a few leases and for the relay of a few packets, each time from elsewhere."""
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            self.key = KeyPair.from_seed(rng.randbytes(32)) if rng.random() < 1 / 2 else self.key
            self.address = (f"10.{220 + rng.randrange(8)}.{rng.randrange(4)}.{rng.randrange(250)}", 666)
            self.context.network.bind(self.address, self.on_datagram)
            host = self.any_host()
            if rng.random() < 1 / 2 or not self.context.tenants:
                self.send(host, self.seal(host, 0x104, rng.randbytes(64)))
            else:
                recipient, host = rng.choice(self.context.tenants)
                self.send(host, self.seal(host, 0x102, rng.randbytes(64), recipient))

    def on_datagram(self, data: bytes, address: Address) -> None:
        """Answer a demand, with good work or without."""
        packet = read_packet(data)
        if packet is None or packet.command not in DEMANDS or packet.recipient != self.key.public:
            return
        host = next(number for number in range(len(self.context.host_keys)) if host_address(number) == address)
        solution = self.solve(packet) if self.rng.random() < 1 / 2 else self.rng.randbytes(self.rng.choice((0, 8, 300)))
        self.send(host, self.seal(host, 0x101, packet.signature + solution))

    def solve(self, demand: Seen) -> bytes:
        """Return work of a few bits more than the least that is ever demanded."""
        bits = self.context.plan.base_bits + self.rng.choice((0, 2, 4))
        for counter in range(SOLVES_MAX):
            solution = counter.to_bytes(8, "big")
            if work_bits(demand.data, solution) >= bits:
                return solution
        return b""


class BadTenant(Farmer):
    """Gets itself a lease, fills its own queue, and has it sent to somebody else: heartbeats with a forged source."""

    def __init__(self, context: LprpContext, rng: random.Random, number: int, people: Sequence[Address]) -> None:
        """Choose a host and a victim."""
        super().__init__(context, rng, number, people)
        self._host = self.any_host()
        self._has_lease = False
        self._victim = self.victim() if rng.random() < 2 / 3 else rng.choice(people)

    def play(self) -> None:
        """Ask for a lease, or fill the queue, or forge heartbeats."""
        rng, host = self.rng, self._host
        if not self._has_lease or rng.random() < 1 / 8:
            # From both addresses, so that the victim may seem to answer what only we have read.
            ask = self.seal(host, 0x104, rng.randbytes(64))
            first, then = rng.sample((self._victim, self.address), 2)
            self.send(host, ask, first)
            self.context.schedule.after(NEXT_US, partial(self.send, host, ask, then))
        if not self._has_lease:
            return
        if rng.random() < 1 / 4:
            for _ in range(FILL_COUNT):
                self.send(host, self.seal(host, 0x102, rng.randbytes(364), self.key.public))
        for _ in range(rng.randint(1, BEATS_COUNT)):
            self.send(host, self.seal(host, 0x100, b""), self._victim)

    def on_datagram(self, data: bytes, address: Address) -> None:  # noqa: ARG002 - the shape of Receive
        """Work for the lease."""
        packet = read_packet(data)
        self._has_lease |= packet is not None and packet.command == 0x204
        if packet is not None and packet.command == 0x604 and packet.recipient == self.key.public:
            source = self._victim if self._has_lease and self.rng.random() < 1 / 2 else self.address
            self.send(self._host, self.seal(self._host, 0x101, packet.signature + self.solve(packet)), source)


class Garbage(Hostile):
    """Sends noise of any length, and good packets corrupted somewhere."""

    def play(self) -> None:
        """Send a handful, each from somewhere."""
        rng = self.rng
        for _ in range(rng.randint(1, 8)):
            tapped = [*self.context.requests, *self.context.answers]
            noise = rng.randbytes(rng.randrange(DATAGRAM_MAX + 1))
            data = self.bend(rng.choice(tapped).packet.data) if tapped and rng.random() < 2 / 3 else noise
            self.send(self.any_host(), data, self.victim() if rng.random() < 1 / 2 else rng.choice(self.people))


class Forger(Hostile):
    """Signs in its own name what only others may say, with odd times, wrong recipients, and in the name of tenants."""

    def play(self) -> None:
        """Send a few packets that are each wrong in one way."""
        rng, host = self.rng, self.any_host()
        keys = [key for key, _ in self.context.tenants] or [self.key.public]
        for _ in range(rng.randint(1, 6)):
            command = rng.choice((0x100, 0x101, 0x102, 0x802, 0x104, 0x108, 0x808, 0x202, 0x204, 0x208))
            sizes = {0x100: (0,), 0x108: (64, 352), 0x802: (64,), 0x202: (64,), 0x204: (64,), 0x208: (64,)}
            reference = rng.choice(self.context.requests).packet.signature if self.context.requests else bytes(64)
            payload = (reference + rng.randbytes(300))[: rng.choice(sizes.get(command, (64, 200, 364)))]
            recipient = rng.choice([self.context.host_keys[host], rng.choice(self.context.host_keys), *keys])
            time_ms = self.context.wall_ms(rng.choice(_TIMES_MS))
            data = make_packet(self.key, recipient, command, payload, time_ms)
            if rng.random() < 1 / 2:  # in a tenant's name, with a signature that is not his
                data = data[:72] + rng.choice(keys) + data[104:]
            self.send(host, data, self.victim() if rng.random() < 1 / 2 else None)


class FalseHost(Hostile):
    """Speaks to clients from the address of a host: answers that were not asked, replayed ones, corrupted ones.

    It has the host's key, as a host that lies would; what it never does is to answer a request that is under way, since
    that is a host's right.
    """

    def play(self) -> None:
        """Say a few things to somebody."""
        rng = self.rng
        answers = list(self.context.answers)
        for _ in range(rng.randint(1, 6)):
            if not answers:
                return
            received = rng.choice(answers)
            data = rng.choice((lambda each: each.packet.data, lambda each: self.bend(each.packet.data), self._unasked))(
                received
            )
            to = received.address if rng.random() < 2 / 3 else rng.choice(self.people)
            if self.context.requests and rng.random() < 1 / 2:
                self._forge()
            self.context.network.send(
                host_address(self.any_host() if rng.random() < 1 / 4 else received.host), to, data
            )

    def _unasked(self, received: Tapped) -> bytes:
        """Return an answer to a request that nobody made."""
        command = self.rng.choice((0x202, 0x402, 0x602, 0x204, 0x404, 0x604, 0x208, 0x408, 0x608, 0x401))
        pair, recipient = self.context.host_pairs[received.host], received.packet.recipient
        return make_packet(pair, recipient, command, self.rng.randbytes(64), self.context.wall_ms())

    def _forge(self) -> None:
        """Answer a request that is under way, in the host's name and without its signature."""
        asked = self.context.requests[-1]
        command = self.rng.choice((0x202, 0x402, 0x204, 0x208, 0x408))
        data = make_packet(self.key, asked.packet.sender, command, asked.packet.signature, self.context.wall_ms())
        data = data[:72] + self.context.host_pairs[asked.host].public + data[104:]
        self.context.network.send(host_address(asked.host), asked.address, data)


HOSTILES: Final[dict[str, type[Hostile]]] = {
    "replayer": Replayer,
    "spoofer": Spoofer,
    "farmer": Farmer,
    "bad_tenant": BadTenant,
    "garbage": Garbage,
    "forger": Forger,
    "false_host": FalseHost,
}
"""What makes an actor of each of ``HOSTILE_KINDS``."""
