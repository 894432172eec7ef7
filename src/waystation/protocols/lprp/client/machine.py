"""The LPRP client: one key that uses one host as a tenant, as a sender, or as both.

``sdk.lprp.connection`` and the simulator drive it. ``connect`` sets the path to the host; each ``Send`` and each
``receive`` is one datagram. Datagrams may be lost, duplicated or delayed. The machine has five modules:

* ``tenancy``: the lease and its heartbeats
* ``inbox``: packets from other keys, reported once and confirmed once the owner has stored them
* ``outgoing``: packets to other keys, and which of them may be sent now
* ``whitelist_sync``: changes the host's whitelist to the one that the owner wants
* ``requests``: requests that wait for an answer or for work, and their retransmission

Lease and whitelist requests are sent one at a time, because the host accepts only a newer change than the last
(LPRP-D14). A signature is verified only for an expected packet that passed the cheap checks.

Spec: specs/lprp.md 3, 5, 6.
"""

import random
from collections.abc import Iterable, Mapping

from waystation.core.effects import Effect, Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import AsksNothing, IgnoresPressure
from waystation.crypto.signing import KeyPair, verify
from waystation.crypto.small_order import is_small_order
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import Event, RequestOutcome
from waystation.protocols.lprp.client.inbox import Inbox
from waystation.protocols.lprp.client.outgoing import Outgoing
from waystation.protocols.lprp.client.requests import Request, Requests
from waystation.protocols.lprp.client.seen_packets import SeenInMemory, SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.client.tenancy import Tenancy
from waystation.protocols.lprp.client.whitelist_sync import WhitelistSync
from waystation.protocols.lprp.client.work_memory import WorkMemory
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, REFERENCE_BYTES, Command, Kind, Packet
from waystation.protocols.lprp.refusals import MalformedError, Refusal
from waystation.protocols.lprp.wire import REQUESTS, Codec, signed_part

__all__ = ["LprpClient"]


class LprpClient(AsksNothing, IgnoresPressure):
    """A client of one host."""

    def __init__(
        self,
        key_pair: KeyPair,
        host: PublicKey,
        rng: random.Random,
        *,
        settings: ClientSettings | None = None,
        clock: PacketClock | None = None,
        seen: SeenPackets | None = None,
        bits: Mapping[Kind, int] | None = None,
        known_whitelist: Iterable[bytes] | None = None,
    ) -> None:
        """Describe a client; call ``set_wall`` before anything else.

        Args:
            key_pair: Our identity.
            host: The host's key; packets of other keys are no answers.
            rng: Source of the bytes that fill short requests; they are not secret.
            settings: Settings for this host.
            clock: Times of our packets; share one between all clients of a key, and keep it over restarts.
            seen: Packets that the application has; keep it over restarts. None begins anew, in memory.
            bits: ``bits`` of an earlier client of this host.
            known_whitelist: The list that this host agreed to last, None when it is unknown.
        """
        settings = settings or ClientSettings()
        known = None if known_whitelist is None else frozenset(PublicKey(key) for key in known_whitelist)
        self._codec = Codec(settings.byte_order)
        self._context = ClientContext(key_pair, host, self._codec, clock or PacketClock())
        self._rng = rng
        self._memory = WorkMemory(settings, bits)
        self._requests = Requests(self._context, settings, self._memory, self._on_finished)
        self._outgoing = Outgoing(self._context, settings, self._requests)
        self._inbox = Inbox(self._context, settings, seen if seen is not None else SeenInMemory())
        self._tenancy = Tenancy(self._context, settings)
        self._whitelist = WhitelistSync(self._context, rng, known)
        self._change: Request | None = None
        """The one 104, 108 or 808 under way."""
        self.public_key = key_pair.public

    @property
    def bits(self) -> dict[Kind, int]:
        """Bits that the host accepted last, for each kind of work."""
        return self._memory.bits

    @property
    def is_doubted(self) -> bool:
        """Whether our lease may be gone."""
        return self._tenancy.is_doubted

    @property
    def lease_until_ms(self) -> int | None:
        """Earliest end of our lease, Unix milliseconds, or None."""
        return self._tenancy.until_ms

    @property
    def whitelist(self) -> frozenset[PublicKey] | None:
        """The whitelist that the host agreed to last; None when it may have changed since."""
        return self._whitelist.agreed

    def sizes(self) -> dict[str, int]:
        """Return the length of each queue."""
        return {
            "waiting": self._outgoing.waiting_count,
            "in_flight": self._outgoing.under_way_count,
            "searching": self._requests.searching_count,
            "unconfirmed": self._inbox.unconfirmed_count,
        }

    # Inputs

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._context.set_wall(now, wall_us)

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """Take a path to the host, perhaps another one than before."""
        self._context.peer = peer
        self._tenancy.hurry(now)
        self._pump(now)

    def disconnect(self, peer: Peer, _now: Instant) -> None:
        """Take the loss of the path to the host; queued packets go on waiting."""
        if peer == self._context.peer:
            self._context.peer = None

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take one datagram."""
        if peer != self._context.peer:
            return
        try:
            packet = self._codec.read(data)
        except MalformedError as error:
            self._context.drop(error.refusal, None)
            return
        refusal = self._form_refusal(packet)
        if refusal is not None:
            self._context.drop(refusal, packet.sender)
        elif packet.command is Command.RELAY:
            self._inbox.receive(packet, now)
        else:
            self._on_answer(packet, now)
            self._pump(now)

    def wake(self, now: Instant) -> None:
        """Act on all timers that are due."""
        self._requests.wake(now)
        self._tenancy.wake(now)
        self._pump(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        due = [at for at in (self._requests.deadline(), self._tenancy.deadline()) if at is not None]
        return min(due, default=None)

    def take(self) -> list[Effect]:
        """Return and forget the datagrams to send, in order."""
        return self._context.take()

    def take_events(self) -> list[Event]:
        """Return and forget the events since the last call, in order."""
        return self._context.take_events()

    # Commands

    def ask_lease(self, now: Instant) -> None:
        """Become a tenant and stay one until ``let_go``: ask, renew in time, send heartbeats."""
        self._tenancy.ask(now)
        self._pump(now)

    def hold_lease(self, now: Instant, until_ms: int | None = None) -> None:
        """Go on with a lease of an earlier client, known to last until ``until_ms`` (Unix milliseconds)."""
        self._tenancy.hold(now, until_ms)
        self._pump(now)

    def let_go(self, now: Instant) -> None:
        """Stop being a tenant: no heartbeats, no renewal. The lease ends by itself."""
        self._tenancy.let_go()
        self._withdraw_lease_request()
        self._pump(now)

    def send(self, payload: bytes, recipient: bytes, now: Instant) -> bytes:
        """Send a packet and return its signature, which one ``RelayFinished`` will name.

        Args:
            payload: 0 to 364 bytes, seen by the host; under 64 bytes the host may answer only when it is sent again.
            recipient: 32-byte key of a tenant of this host.
            now: The current instant.

        Raises:
            LocalError: The payload is too long, or the key has another length.
        """
        signature = self._outgoing.send(payload, recipient, now)
        self._pump(now)
        return signature

    def confirm(self, signature: bytes, now: Instant) -> None:
        """Confirm that the application has the packet of a ``PacketArrived`` and will have it after a crash."""
        self._inbox.confirm(signature, now)

    def hand_back(self, signature: bytes, now: Instant) -> None:  # noqa: ARG002 - commands know the time
        """Return a packet that the application could not keep: the host's next repeat is reported again."""
        self._inbox.hand_back(signature)

    def want_whitelist(self, keys: Iterable[bytes], now: Instant) -> None:
        """Allow just these keys to send to us without work; ``WhitelistAgreed`` or ``WhitelistFailed`` answers.

        Args:
            keys: At most 256 keys of 32 bytes.
            now: The current instant.

        Raises:
            LocalError: Too many keys, the zero key, or one of another length.
        """
        self._whitelist.want(keys)
        self._pump(now)

    def clear_whitelist(self, now: Instant) -> None:
        """Empty the host's whitelist, whatever it holds; answered as ``want_whitelist`` of nothing is."""
        self._whitelist.clear()
        self._pump(now)

    def compare_whitelist(self, now: Instant) -> None:
        """Ask whether the host has the keys wanted last, and change nothing.

        ``WhitelistAgreed``, ``WhitelistDiffers`` or ``WhitelistFailed`` answers. Where none were wanted yet, those
        known from earlier are meant, else none at all.
        """
        self._whitelist.compare()
        self._pump(now)

    def work_found(self, challenge_signature: bytes, counter: int, now: Instant) -> None:
        """Take the answer to a ``WorkWanted``: the first counter that is enough. Ignored when it comes too late."""
        self._requests.work_found(challenge_signature, counter, now)

    def work_stopped(self, challenge_signature: bytes, now: Instant) -> None:
        """Give a search up; the request that needed it ends with ``WORK_FAILED``."""
        self._requests.work_stopped(challenge_signature, now)
        self._pump(now)

    # Answers

    def _form_refusal(self, packet: Packet) -> Refusal | None:
        # Spec 2: the recipient is named in every packet; one for another key reached us by mistake.
        if packet.recipient != self.public_key:
            return Refusal.NOT_FOR_US
        if packet.command is Command.RELAY:
            # LPRP-D15: signatures of such a key prove nothing.
            return Refusal.SMALL_ORDER_KEY if is_small_order(packet.sender) else None
        if packet.command in REQUESTS:
            return Refusal.WRONG_DIRECTION
        # Spec 3: all other commands are the host's own answers.
        return None if packet.sender == self._context.host else Refusal.WRONG_HOST

    def _on_answer(self, packet: Packet, now: Instant) -> None:
        refusal = self._answer_refusal(packet, now)
        if refusal is not None:
            self._context.drop(refusal, packet.sender)
        elif packet.command is Command.HEARTBEAT_ANSWER:
            if self._tenancy.take(packet, now):
                self._withdraw_lease_request()
        elif packet.command is not Command.RELAY_DEMANDS_WORK or self._admits_demand(packet):
            self._requests.take(packet, now)

    def _answer_refusal(self, packet: Packet, now: Instant) -> Refusal | None:
        # Spec 10: an answer has a time within 2^19 ms.
        if abs(packet.time_ms - self._context.wall_ms(now)) > CLOCK_WINDOW_MS:
            return Refusal.CLOCK
        # Spec 10: an answer must name a request under way; all else is dropped before its signature is checked.
        is_heartbeat = packet.command is Command.HEARTBEAT_ANSWER
        refusal = self._tenancy.expects(packet) if is_heartbeat else self._requests.expects(packet)
        if refusal is not None:
            return refusal
        if not verify(packet.sender, signed_part(packet.data), packet.signature):
            return Refusal.BAD_SIGNATURE
        return None

    def _admits_demand(self, packet: Packet) -> bool:
        request = self._requests.find(packet)
        assert request is not None
        return self._outgoing.admits_demand(request)

    def _on_finished(self, request: Request, outcome: RequestOutcome, now: Instant) -> None:
        # Each packet of ``send`` gets exactly one outcome.
        if request.packet.command is Command.RELAY:
            self._outgoing.finished(request, outcome)
            return
        self._change = None
        if request.packet.command is not Command.ASK_LEASE:
            self._whitelist.finished(outcome)
        elif outcome is RequestOutcome.ACCEPTED:
            assert request.answer is not None
            for_work = request.demands_count > 0
            self._tenancy.granted(request.packet.time_ms, request.answer.time_ms, now, for_work=for_work)
            # Spec 5: a lease that was over for 2^25 ms took its whitelist along.
            self._whitelist.lease_began()
        else:
            self._tenancy.refused(outcome, now)

    def _withdraw_lease_request(self) -> None:
        request = self._change
        if request is not None and request.packet.command is Command.ASK_LEASE:
            self._requests.withdraw(request)
            self._tenancy.withdrawn()
            self._change = None

    # Sending

    def _pump(self, now: Instant) -> None:
        self._outgoing.pump(now)
        is_certain = self._tenancy.is_certain(now)
        # Spec 4: a host drops 108 and 808 of a key without a lease.
        if self._tenancy.wants_lease and not is_certain:
            self._interrupt_whitelist()
        # LPRP-D14: 104, 108 and 808 must each be newer than the last accepted one, so they go one at a time.
        if self._change is not None:
            return
        if self._tenancy.wants_lease:
            self._tenancy.asked()
            # Spec 3: a 104 has 64 bytes at least, so that it is no shorter than its answer; the host ignores them.
            self._begin_change(Command.ASK_LEASE, self._rng.randbytes(REFERENCE_BYTES), now)
        elif is_certain:
            step = self._whitelist.next_step()
            if step is not None:
                self._begin_change(step.command, step.payload, now)

    def _interrupt_whitelist(self) -> None:
        """Withdraw a change of the whitelist: a host drops it in silence once the lease is over."""
        request = self._change
        if request is not None and request.packet.command is not Command.ASK_LEASE:
            self._requests.withdraw(request)
            self._whitelist.interrupted()
            self._change = None

    def _begin_change(self, command: Command, payload: bytes, now: Instant) -> None:
        self._change = self._requests.begin(self._context.seal(command, payload, now), now)
