"""A Bhumi device: it stays registered at a relay, answers the requests of its peers, and can move to another relay.

It uses one relay until that relay fails or ``move`` is called. A move registers at the new relay first, with the recent
answers (6.6), and asserts presence there. Then it asserts the new presence at the old relay and disconnects once open
requests are answered. An answer whose connection has ended is sent over the next one (BHUMI-MOVE).
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client.base import AuthorityShown, Greeted
from waystation.protocols.bhumi.client.device import (
    Delivered,
    ProbeAsked,
    Registered,
)
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.sdk.backoff import STABLE_S, Backoff
from waystation.sdk.bhumi.answers import Answers
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.events import (
    DeviceEvent,
    Disconnected,
    Handler,
    Listening,
    Moved,
    PresenceAsserted,
    Probed,
    ProbeRefused,
    Trouble,
)
from waystation.sdk.bhumi.listener import Listener
from waystation.sdk.bhumi.moves import PRESENCE_TTL_S, Presences, RelayChoice
from waystation.sdk.bhumi.pairing.inviting import authority_of, invitation
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, RelayAuthorities
from waystation.sdk.bhumi.probe import Prober
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.bhumi.state import BhumiState
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.home_lock import hold
from waystation.sdk.store_news import StoreFailed, StoreRecovered, StoreWatch
from waystation.transport.dial import RelayUrl
from waystation.transport.silence import SILENCE_S, SilencePolicy
from waystation.transport.tls import TlsContext

__all__ = ["LEAVE_S", "Device"]

LEAVE_S: Final = 10.0
"""How long a relay that the device has left is kept for the requests under way there."""
_LOCK_TIMEOUT_S: Final = 0.2  # a listener that is just ending
_NEXT_RELAY_S: Final = 1.0  # ours: no reason to wait long for one relay because another failed


class Device:
    """Keeps one identity reachable; run it with ``run`` until cancelled."""

    def __init__(
        self,
        state: BhumiState,
        relays: str | Sequence[str],
        handler: Handler,
        *,
        book: RelayBook | None = None,
        quality: RelayQuality | None = None,
        findable: bool = True,
        probes: bool = True,
        tls: TlsContext | None = None,
        dialect: Dialect = Dialect.E2E,
        original_relay: bool = False,
        admit: Callable[[PublicKey, str], bool] | None = None,
        on_event: Callable[[DeviceEvent], None] | None = None,
        rng: random.Random | None = None,
        backoff: Backoff | None = None,
        gives_up: bool = False,
        poll_s: float = 0.5,
        clock: Callable[[], float] = time.time,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe a device.

        Args:
            state: Its folder.
            relays: Address or addresses, the preferred one first; may be empty with a book.
            handler: Answers requests; several may run at once. When it raises, the peer gets an error.
            book: Further relays, taken when the named ones fail.
            quality: Where to keep what is observed of relays; it decides on the order within the book.
            findable: Let the relays answer questions where this identity is (BHUMI-FINDABLE).
            probes: Try other relays when ours asks for it; refused in any case without book and quality.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            dialect: What the peers speak; bhumi-v1 understands the suites, too, and a suite insists on itself.
            original_relay: The relay is the original one, which puts the preimage into every DELIVER unasked.
            admit: Called with key and alias of a peer that uses an invite; None admits every peer.
            on_event: Gets what happens.
            rng: Source of secrets; the system's by default.
            backoff: Delays between connections; those of ``sdk.backoff`` by default.
            gives_up: End when the only relay refuses this identity before any has taken it.
            poll_s: How soon an invite made by another program can be used.
            clock: Unix seconds, for what is signed with a date.
            silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.

        Raises:
            LocalError: An address cannot be read, or there is neither an address nor a book.
        """
        if not relays and book is None:
            raise LocalError("a device needs the address of a relay, or a book of relays")
        self._state = state
        self._findable = findable
        self._tls = tls
        self._silence = SilencePolicy.of_seconds(silence_s)
        self._original_relay = original_relay
        self._on_event = on_event or (lambda _: None)
        self._clock = clock
        self._disk = StoreWatch(self._on_store)
        self._trust = HomeTrust(tls, RelayAuthorities(state), on_event=self._on_event, attempt=self._disk.attempt)
        source = rng or random.SystemRandom()
        self._answers = Answers(state, handler, dialect, source, admit, self._on_event)
        self._choice = RelayChoice(relays, book, quality, source, self._report)
        self._presences = Presences(state.key_pair, clock)
        self._prober = None
        if probes and book is not None and quality is not None:
            self._prober = Prober(self._choice, quality, self._trust, source, findable=findable)
        self._backoff = backoff or Backoff(source)
        self._poll_s = poll_s
        self._connection: Listener | None = None
        self._runs = False
        self._failure: Exception | None = None
        self._is_crowd_reported = False
        self._gives_up = gives_up
        self._was_refused = False
        self._placing = asyncio.Lock()
        self._placed = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        """Listen and answer, reconnecting for ever.

        Raises:
            HomeBusyError: Another program listens for this identity.
            RelayUnreachableError: The relay refuses this identity, and the device ``gives_up``.
            Exception: What ``on_event`` raised, or a fault of ours; the device has left its relay.
        """
        busy = f"another program listens for the identity in {self._state.home}; stop it first"
        async with hold(self._state.home / "device.lock", busy, _LOCK_TIMEOUT_S):
            self._runs = True
            try:
                while True:
                    relay, reason = await self._stay_connected()
                    if self._gives_up and self._was_refused and not self._choice.has_others:
                        raise RelayUnreachableError(reason)
                    await self._pause(relay, reason)
            finally:
                self._runs = False
                await self._stop()

    def invite(self, alias: str = "", *, expires_s: int | None = None, allow: Iterable[str] | None = None) -> str:
        """Return an invitation: with it one peer can pair with this device, once, while it listens.

        The text names the relays of this device and their authority, so that its holder needs nothing else.

        Args:
            alias: How to call that peer.
            expires_s: For how many seconds it is good; 0 for ever, None for 7 days.
            allow: What that peer may send: names of commands, ``text`` and ``binary``; None for everything.

        Raises:
            LocalError: Too many invites wait to be used, or an argument is out of its range.
        """
        place, _ = self._state.own_place()
        relays = [str(url) for url in self._choice.named]
        ordered = [place, *relays] if place in relays or not relays else relays
        authority = authority_of(self._tls)
        return invitation(
            *(self._state, alias, [each for each in ordered if each], authority), expires_s=expires_s, allow=allow
        )

    def reconnect(self) -> None:
        """Connect now, if no relay has us; pauses begin with the shortest again. A connection that stands stays."""
        if self._connection is None:
            self._backoff.reset()
            self._placed.set()

    async def move(self, address: str) -> None:
        """Go to another relay without a gap; a move to where the device is does nothing.

        Returns when the device is registered there and has asserted presence at both relays, as far as they take such
        things. Requests under way at the old relay go on, for up to ``LEAVE_S`` seconds by its connection.

        Raises:
            LocalError: The text is no address, or the device does not run.
            HostError: The relay cannot be reached or does not take us; the device stays where it is.
        """
        relay = RelayUrl.parse(address)
        if not self._runs:
            raise LocalError("the device does not run; only a running one can move")
        async with self._placing:
            old = self._connection
            if old is not None and old.relay == relay and not old.has_ended:
                return
            new = await self._connect(relay, waits=True)
            self._adopt(new)
            self._on_event(Moved(str(old.relay) if old is not None else "", str(relay)))
            try:
                presence = await self._assert_presence(new)
                if old is not None and presence is not None and not old.has_ended:
                    old.assert_presence(presence)
            finally:  # the caller may give up: we are at the new relay all the same
                if old is not None and not old.has_ended:
                    self._start(old.leave(LEAVE_S))

    async def _stay_connected(self) -> tuple[str, str]:
        """Connect where it seems best, serve until no connection is left, and return the last relay and its reason."""
        async with self._placing:
            if self._connection is None:
                relay = self._choice.next()
                if relay is None:
                    return "", "no relay is known"
                try:
                    self._adopt(await self._connect(relay, only_public=self._choice.by_gossip(relay)))
                except HostError as error:
                    return str(relay), str(error)
        return await self._serve()

    async def _connect(self, relay: RelayUrl, *, only_public: bool = False, waits: bool = False) -> Listener:
        """Return a connection, by which the relay has taken us if this ``waits`` for it; raises HostError."""
        connection = Listener(
            self._state,
            relay,
            original_relay=self._original_relay,
            relay_id=self._choice.advertised_id(relay),
            on_event=self._on_connection_event,
            clock=self._clock,
            silence=self._silence,
        )
        try:
            await connection.dial(self._trust, only_public=only_public)
            if waits:
                await connection.wait_registered()
        except BaseException as error:
            if isinstance(error, HostError):  # a caller that gives up says nothing about the relay
                self._choice.reached(relay, None)
            await connection.aclose()
            raise
        return connection

    async def _serve(self) -> tuple[str, str]:
        """Look after the connection, whichever it is at the moment, until it has ended."""
        while (connection := self._connection) is not None and not connection.has_ended:
            await asyncio.wait([connection.ended], timeout=self._poll_s)
            if self._failure is not None:
                raise self._failure
            current = self._connection
            if current is not None and current.is_open:
                self._disk.attempt(current.register_new)
                self._report_crowd(current)
                current.flush()
                self._renew_presence(current)
        assert connection is not None
        self._connection = None
        self._was_refused = connection.is_refused
        await connection.wait_closed()
        self._note_end(connection)
        return str(connection.relay), connection.reason()

    async def _pause(self, relay: str, reason: str) -> None:
        """Wait before the next try, until a move has found a place at the latest."""
        retry_s = self._backoff.next_s()
        if self._choice.has_others:
            retry_s = min(retry_s, _NEXT_RELAY_S)
        self._on_event(Disconnected(relay, reason, retry_s))
        self._placed.clear()
        if self._connection is None:
            try:
                async with asyncio.timeout(retry_s):
                    await self._placed.wait()
            except TimeoutError:
                return

    def _adopt(self, connection: Listener) -> None:
        self._connection = connection
        self._answers.relay = str(connection.relay)
        if connection.is_open:
            self._answers.payload_bytes_max = connection.machine.max_payload_bytes
        connection.register_new()
        connection.flush()
        self._placed.set()

    async def _stop(self) -> None:
        connection, self._connection = self._connection, None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if connection is not None:
            await connection.aclose()
        await self._answers.stop()

    # Events of a connection.

    def _on_connection_event(self, connection: Listener, event: Any) -> None:
        if isinstance(event, Greeted):
            if connection is self._connection:
                self._answers.payload_bytes_max = event.max_payload_bytes
        elif isinstance(event, Registered):
            self._on_registered(connection, event)
        elif isinstance(event, Delivered):
            task = self._start(self._handle(connection, event))
            connection.handling.add(task)
            task.add_done_callback(connection.handling.discard)
        elif isinstance(event, AuthorityShown):
            self._trust.learn(connection.relay, event.der)
        elif isinstance(event, ProbeAsked):
            self._on_probe_asked(connection, event)

    def _on_registered(self, connection: Listener, event: Registered) -> None:
        self._gives_up = False
        self._on_event(Listening(str(connection.relay), event.confirmed))
        self._remember(connection.relay)
        if connection is self._connection:  # while moving, ``move`` does it in its own order
            self._start(self._assert_presence(connection))
        self._choice.reached(connection.relay, connection.handshake_s)

    def _remember(self, relay: RelayUrl) -> None:
        """Keep where we listen, for whom we invite; a disk that fails stops no device."""
        authority = authority_of(self._tls) if relay.scheme == "tls" else b""
        with contextlib.suppress(HostError):
            self._state.remember_own_place(str(relay), authority)

    async def _handle(self, connection: Listener, delivered: Delivered) -> None:
        event: DeviceEvent | None
        try:
            done = await self._answers.answer_to(delivered)
            event = done.event
            self._acknowledge(connection, delivered.message_id, done.answer)
            if done.again is not None:
                connection.register_again(done.again)
        except HostError as error:  # without the promise on disk there is no answer: the sender sees a timeout
            event = Trouble(str(error))
        except Exception as error:  # noqa: BLE001 - a task that is not awaited must not end unseen; the peer gets an error
            connection.machine.answer(delivered.message_id, b"")
            connection.flush()
            event = Trouble(f"a request could not be answered: {error!r}")
        if event is not None:
            self._on_event(event)

    def _acknowledge(self, connection: Listener, message_id: int, answer: bytes) -> None:
        """Answer where the request came from; where that is over, or left, hand the answer to the relay of now."""
        if connection.is_open:
            unsent = connection.acknowledge(message_id, answer)
            if unsent is not None:
                self._on_event(Trouble(f"an answer could not leave: {unsent.value}"))
        current = self._connection
        if current is not connection and current is not None and current.is_open:
            current.refresh()
            current.flush()

    # Where we are.

    async def _assert_presence(self, connection: Listener) -> Presence | None:
        """Assert presence where we are, and return it; None when it is not to be known, or the relay has no name."""
        if not self._findable:
            return None
        known = self._choice.entry(str(connection.relay))
        presence = await connection.find_and_assert(self._presences, None if known is None else known.relay_id)
        if presence is not None:
            self._on_event(PresenceAsserted(str(connection.relay), presence.ttl_s))
        return presence

    def _report_crowd(self, connection: Listener) -> None:
        """Report once that more peers and invites may reach us than a relay takes commits of."""
        if not connection.is_crowded or self._is_crowd_reported:
            return
        invites_count, peers_count = self._state.reach()
        left_out = invites_count + peers_count - wire.COMMITS_MAX
        if left_out > 0:
            self._is_crowd_reported = True
            self._on_event(
                Trouble(
                    f"{left_out} of {peers_count} peers cannot reach this device now: a relay takes {wire.COMMITS_MAX} "
                    f"commits, and {invites_count} are of open invites; peers that asked lately come first"
                )
            )

    def _renew_presence(self, connection: Listener) -> None:
        if asyncio.get_running_loop().time() < connection.presence_due_s:
            return
        if connection.renew_presence(self._presences) is not None:
            self._on_event(PresenceAsserted(str(connection.relay), PRESENCE_TTL_S))

    # What we are asked to try.

    def _on_probe_asked(self, connection: Listener, asked: ProbeAsked) -> None:
        reason = "this device makes no probes" if self._prober is None else self._prober.admit(asked.address)
        if self._prober is None or reason is not None:
            connection.refuse_probe(asked.probe_id)
            self._on_event(ProbeRefused(str(connection.relay), asked.address, reason or ""))
            return
        self._start(self._probe(self._prober, asked))

    async def _probe(self, prober: Prober, asked: ProbeAsked) -> None:
        verdict, latency_s = await prober.probe(asked.address, asked.deadline_s)
        self._on_event(Probed(asked.address, verdict, latency_s))

    def _note_end(self, connection: Listener) -> None:
        if connection.stood_s() >= STABLE_S:
            self._backoff.reset()
        if not connection.registered.done():
            self._choice.reached(connection.relay, None)
        else:
            self._choice.dropped(connection.relay)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Let work go on by itself; what the disk or the network refuses there is reported, nothing else is hidden."""
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except HostError as error:
            self._report(error)
        except Exception as error:  # noqa: BLE001 - `run` raises it: nobody waits for this task
            self._failure = error

    def _on_store(self, news: StoreFailed | StoreRecovered) -> None:
        self._on_event(Trouble(news.reason if isinstance(news, StoreFailed) else "our disk can be used again"))

    def _report(self, error: HostError) -> None:
        self._on_event(Trouble(str(error)))
