"""A Bhumi device: it stays connected to a relay, answers what its peers ask, and tells them what it has to tell.

    device = Device(State("bhumi.state"), [("tls://relay.example:8443", "relay.der")], answer)
    device.run()

An answer is kept in the state before anything leaves; then the commits of the preimages it gives out go to the relay,
then the answer. A request that is delivered again gets the same bytes and does not reach the handler. Nothing here
waits for longer than a second without calling ``feed``, except the system's look-up of a host name. ``bhumi.aio`` has
the same device for programs of asyncio.
"""

import os
import select

from . import frames, keys
from .answers import Answers, Request, reason_of
from .payloads import BINARY, COMMAND, TEXT
from .port import SetupError, const, make_room, seldom, settle, sleep_ms, ticks_diff, ticks_ms, unix_s
from .relays import Relays, whole_relay
from .telling import Telling
from .tls import UnreachableError

__all__ = ["BINARY", "COMMAND", "TEXT", "Device", "Request", "SetupError"]

_HELLO_MS = 10_000
_KEEPALIVE_MS = 45_000  # twice within the 120 s after which a relay drops an idle device
_SILENCE_MS = 90_000
_RETRY_MS = 500
_RETRY_MAX_MS = 30_000
_TURN_MS = 1000
_COMMITS_MAX = 4000  # a relay keeps 4,096; before that a second I_AM sweeps away those that died
_AGAIN_MAX = const(16)  # how often a commit that was used up by nobody's request is registered again on one connection
_AUTHORITIES_MAX = const(8)  # of one connection; a relay has two, and seldom a new one
_PRESENCE_TTL_S = const(600)
_PRESENCE_MS = const(240_000)
_NO_MEMORY = "out of memory (on a desk: try a larger --heap)"


class Device(Telling):
    """Keeps one identity reachable."""

    def __init__(
        self,
        state: object,
        relays: list,
        handler: object,
        *,
        on_event: object = print,
        feed: object = None,
        network: object = None,
        admit: object = None,
        roles: dict = None,
        payload_bytes_max: int = 2048,
        answer_bytes_max: int = 1024,
        relay_ids: dict = None,
    ) -> None:
        """Describe a device; raises SetupError when the relays or their certificates cannot be used.

        Args:
            state: A ``State``.
            relays: Pairs of an address and the file of its authority's certificate in DER, which is empty for tcp://;
                ``names.split_relay`` says what an address may leave out.
                The next one is taken when one fails.
            handler: Called with a ``Request``; returns text or bytes, for a command anything that JSON can say. When it
                raises, the peer is told why, and the traceback is printed. One that takes longer than a second calls
                the watchdog itself.
            on_event: Called with a kind and a text: connecting, listening, disconnected, joined, answered, notified,
                trusted, trouble.
            feed: Called at least every second; a watchdog's.
            network: A ``wifi.Wifi``, which must be connected before relays are; it feeds its own watchdog.
            admit: Called with identity and alias of whoever uses an invite; False refuses.
            roles: What peers may send, by alias: names of commands, with ``text`` and ``binary`` for what is none. The
                handler gets nothing else from them. A peer whose alias is not in it may send everything.
            payload_bytes_max: Larger requests are refused; as much memory is set aside.
            answer_bytes_max: Larger contents of answers are refused, because the last one to each peer is kept.
            relay_ids: 32-byte keys of relays by address. Such a relay must prove to have its key when it names one, and
                presence is asserted to it, which costs a signature every four minutes when the clock is set.
        """
        settle()
        self._state = state
        self.relays = Relays(relays)
        self._handler = handler
        self._on_event = on_event
        self._watchdog = feed
        self._network = network
        self._answers = Answers(self, state, admit, answer_bytes_max, self._feed, roles or {})
        self._outgoing = self._quiet_from = None
        self._relay_ids = {whole_relay(relay): key for relay, key in (relay_ids or {}).items()}
        self._poll = select.poll()
        self._link = None
        self._reader = frames.Reader(payload_bytes_max)
        self._turn, self._number = -1, 0
        self._delay_ms = _RETRY_MS // 2
        self._relay = ""
        self._retry_ms = 0
        self._retry_from = ticks_ms()
        self._is_open = self._listening = False
        self._heard_at = self._asked_at = self._presence_at = self._presence_date = 0
        self._nonce = b""
        self._features = self._echoes_count = self._told = self._shown = 0
        self._again = {}

    @property
    def listening(self) -> bool:
        """Whether a relay has taken the registration and the connection stands."""
        return self._listening

    def run(self) -> None:
        """Listen and answer for ever."""
        while True:
            self.step()

    def step(self, wait_ms: int = _TURN_MS) -> None:
        """Do what is due, and wait at most ``wait_ms`` (and at most a second) for something to do."""
        self._feed()
        if self._network is not None and not self._network.ready():
            self._offline(min(wait_ms, _TURN_MS))
            return
        self._wait(min(wait_ms, _TURN_MS))
        outgoing = self._outgoing_if_needed()
        if outgoing is not None and (outgoing.is_active or self._may_tell()):
            outgoing.home = self._number
            outgoing.step()
        if outgoing is None or not outgoing.lacks_memory:
            self._step()
        elif outgoing.is_active or outgoing.is_due():
            self.close()  # there is no room for two connections: this one makes way until everything is told
        else:
            outgoing.lacks_memory = False

    def add_authority(self, relay: str, ca: bytes) -> bool:
        """Trust one more authority for a relay, whose present one stays trusted; return whether it is new.

        Raises:
            ValueError: There is no such relay.
            SetupError: It is no certificate in DER.
            OSError: The file system fails.
        """
        return self.relays.add_authority(self.relays.urls.index(whole_relay(relay)), ca)

    def register(self, preimage: bytes) -> None:
        """Have the relay know one more preimage: of an invite that was made while the device runs."""
        if self._link is not None and self._nonce:
            self._told += 1
            self._link.write(frames.update_commits([frames.commit_of(preimage)]))

    def revoke(self, preimages: list) -> None:
        """Have the relay forget preimages of a peer that was unpaired."""
        if self._link is not None and self._nonce and preimages:
            self._link.write(seldom("extensions", "revoke_commits", [frames.commit_of(each) for each in preimages]))

    def close(self) -> None:
        """End the connection, before deep sleep; everything is in the state's file already."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self._listening = self._is_open = False
        self._retry_ms = 0
        self._answers.forget_deliveries()

    def _feed(self) -> None:
        if self._watchdog is not None:
            self._watchdog()
        if self._network is not None:
            self._network.feed()

    def _offline(self, wait_ms: int) -> None:
        if self._link is not None:
            self._end("the network is gone")
        if self._outgoing is not None:
            self._outgoing.close()
        sleep_ms(min(wait_ms, 200))

    def _wait(self, wait_ms: int) -> None:
        """Wait until something can be done."""
        outgoing = self._outgoing
        if (self._link is not None and self._link.is_ready) or (outgoing is not None and outgoing.is_ready):
            return
        if self._link is None:
            wait_ms = max(0, min(wait_ms, self._retry_ms - ticks_diff(ticks_ms(), self._retry_from)))
        if outgoing is not None and (outgoing.is_active or outgoing.is_due()):
            wait_ms = min(wait_ms, 20)
        if self._link is None and (outgoing is None or not outgoing.is_active):
            sleep_ms(wait_ms)  # a poll of nothing would not wait everywhere
        else:
            self._poll.poll(wait_ms)

    # The connection

    def _step(self) -> None:
        if self._link is None:
            if ticks_diff(ticks_ms(), self._retry_from) >= self._retry_ms:
                self._connect()
            return
        try:
            if not self._is_open:
                self._is_open = self._link.open()
                self._heard_at = self._asked_at = ticks_ms()
                return
            self._receive()
            self._on_time()
        except UnreachableError as error:
            self._end(str(error), error)
        except frames.MalformedError as error:
            self._end("the relay sent nonsense: %s%s" % (error, self._hint()))
        except OSError as error:
            self._end("the connection broke: %s" % error)
        except MemoryError:
            self._end(_NO_MEMORY)

    def _connect(self) -> None:
        self._turn += 1
        self._number = self._turn % len(self.relays.urls)
        self._relay = self.relays.urls[self._number]
        self._listening = self._is_open = False
        self._nonce = b""
        self._features = self._echoes_count = self._shown = 0
        self._again = {}
        self._reader.begin()
        if self._outgoing is not None and not self._outgoing.is_active:
            self._unload_outgoing()  # the signatures need as much
        make_room()
        self._on_event("connecting", "to " + self._relay)
        try:
            if not self._state.whole:
                self._state.reload()
            self._link = self.relays.connect(self._number, self._feed, self._poll)
        except (UnreachableError, SetupError, OSError) as error:
            self._end(str(error), error)
        except MemoryError:
            self._end(_NO_MEMORY)

    def _end(self, reason: str, error: Exception = None) -> None:
        self.close()
        if reason == _NO_MEMORY:  # the next one begins with a clean heap, and alone
            self._sweep()
        self._delay_ms = min(2 * self._delay_ms, _RETRY_MAX_MS)
        self._retry_ms = self._delay_ms // 2 + os.urandom(1)[0] * self._delay_ms // 512
        self._retry_from = ticks_ms()
        if error is not None and self.relays.failed(self._number, error):
            self._turn -= 1
            self._retry_ms = 0
            reason += "; there is a second authority to try"
        self._on_event("disconnected", "%s; next try in %.1f s" % (reason, self._retry_ms / 1000))

    def _receive(self) -> None:
        link, reader = self._link, self._reader
        while self._link is link:
            count = link.read_into(reader.room())
            if not count:
                return
            if count < 0:
                raise UnreachableError("%s ended the connection%s" % (self._relay, self._hint()))
            reader.took(count)
            self._feed()
            self._heard_at = ticks_ms()
            if self._network is not None and self._listening:
                self._network.works()
            while self._link is link:
                found = reader.next()
                if found is None:
                    break
                self._on_frame(*found)
                self._feed()

    def _on_frame(self, kind: int, length: int, payload: bytes) -> None:
        if kind == frames.DELIVER:
            self._on_deliver(payload, length)
        elif kind == frames.KEEPALIVE:
            self._echoes_count -= 1
            if self._echoes_count <= 0 and not self._features & frames.WITH_I_AM_OK:
                self._registered()
        elif kind == frames.I_AM_OK:
            frames.i_am_ok_of(payload)
            self._registered()
        elif kind == frames.OPTIONS:
            self._features = frames.options_of(payload) & self._wanted()
        elif kind == frames.BIND:
            words = (self._relay_ids.get(self._relay), self._sign)
            self._link.write(seldom("extensions", "proof", self._state.identity, payload, self._relay, *words))
            self._link.write(frames.frame(frames.KEEPALIVE))
            self._echoes_count += 1
        elif kind == frames.AUTHORITY:
            self._on_authority(payload)
        elif kind == frames.HELLO:
            self._nonce, self._answers.relay_bytes_max = frames.hello_of(payload)
            self._answers.relay = self._relay
            self._asked_at = ticks_ms()
            self.relays.works(self._number)
            self._link.write(frames.options(self._wanted()))
            self._introduce()

    def _wanted(self) -> int:
        wanted = frames.WITH_PREIMAGE | frames.WITH_I_AM_OK | frames.WITH_BINDING
        if self._relay.startswith("tls:"):
            wanted |= frames.WITH_AUTHORITY
        return wanted | frames.WITH_PRESENCE if self._relay in self._relay_ids else wanted

    def _sign(self, message: bytes) -> bytes:
        return keys.sign(self._state.seed, self._state.identity, message, self._feed)

    def _introduce(self) -> None:
        """Send I_AM with everything that is valid now, and KEEPALIVE, whose echo proves that it was taken."""
        state = self._state
        signature = self._sign(self._nonce + state.identity)
        self._told = count = state.count_preimages()
        self._again = {}
        for part in frames.i_am(state.identity, signature, count, state.preimages(), state.responses()):
            self._link.write(part)
        self._link.write(frames.frame(frames.KEEPALIVE))
        self._echoes_count += 1
        make_room()

    def _on_authority(self, payload: bytes) -> None:
        """Trust what a relay shows, for this relay alone: an authority that is trusted vouches for the connection."""
        if self._features & frames.WITH_AUTHORITY and self._shown < _AUTHORITIES_MAX:
            self._shown += 1
            event = seldom("extensions", "learn", self.relays, self._number, payload)
            if event is not None:
                self._on_event(*event)

    def _registered(self) -> None:
        if self._listening or not self._nonce:
            return
        self._listening = True
        self._delay_ms = _RETRY_MS // 2
        self._presence_at = ticks_ms() - _PRESENCE_MS
        if self._network is not None:
            self._network.works()
        self._on_event("listening", "on %s as %s" % (self._relay, seldom("names", "id52", self._state.identity)))

    def _on_time(self) -> None:
        if self._link is None:
            return
        now = ticks_ms()
        if not self._nonce:
            if ticks_diff(now, self._heard_at) > _HELLO_MS:
                self._end("%s does not greet%s" % (self._relay, self._hint()))
            return
        if ticks_diff(now, self._heard_at) > _SILENCE_MS:
            self._end("%s has become silent" % self._relay)
        elif ticks_diff(now, self._asked_at) > _KEEPALIVE_MS:
            self._asked_at = now
            self._link.write(frames.frame(frames.KEEPALIVE))
        elif self._is_presence_due(now):
            self._presence_at = now
            # Of two within one second the relays would keep the first (BHUMI-FINDABLE).
            self._presence_date = max(unix_s(), self._presence_date + 1)
            words = (self._relay_ids[self._relay], self._presence_date, _PRESENCE_TTL_S, self._sign)
            self._link.write(seldom("extensions", "presence", self._state.identity, *words))

    def _is_presence_due(self, now: int) -> bool:
        is_agreed = self._features & frames.WITH_PRESENCE and self._listening
        return bool(is_agreed and unix_s() and ticks_diff(now, self._presence_at) >= _PRESENCE_MS)

    def _hint(self) -> str:
        return "" if self._listening else seldom("extensions", "hint", self._relay, bool(self._nonce))

    # Answering

    def _on_deliver(self, payload: bytes, length: int) -> None:
        found = frames.deliver_of(payload, length, self._features & frames.WITH_PREIMAGE)
        whole = len(payload) == length
        self._registered()
        try:
            try:
                self._carry_on(self._answers.take(*found, whole))
            except MemoryError:
                if not self._has_swept(found[1]):
                    raise
                self._carry_on(self._answers.take(*found, whole))
        except (OSError, MemoryError) as error:
            self._not_kept(error)

    def _has_swept(self, preimage: bytes) -> bool:
        """Return whether a request may be taken once more, with all the memory that can be had, on this connection.

        Not when its answer is kept already: only a new connection tells the relay of the permissions in it.
        """
        self._sweep()
        self._state.reload()
        return preimage is not None and self._state.response_to(preimage) is None

    def _carry_on(self, found: object) -> None:
        """Send an answer, or have the program work on what it is to answer; then what has waited for that."""
        while found is not False:
            if found is not None and not hasattr(found, "answer"):
                found = self._work(found)
            if found is not None:
                self._acknowledge(found)
            found = self._answers.next()

    def _work(self, work: object) -> object:
        """Return the program's answer to a request."""
        given = error = None
        try:
            given = self._handler(work.request)
        except Exception as raised:  # noqa: BLE001 - a program's own mistakes must not end the device
            error = raised
        return self._answers.finish(work, given, error)

    def _not_kept(self, error: Exception) -> None:
        """Begin again with what the medium has, the old state or the new one, over a new connection.

        Without the promise on the medium there is no answer; the sender asks again. The relay takes the commit anew on
        another connection only (BHUMI-C9), which begins with a clean heap; a connection that sends makes way as well.
        """
        self._sweep()
        self._state.reload()
        self._on_event("trouble", "the state cannot be kept: %s" % reason_of(error))
        if self._link is not None:
            self._end("the state could not be kept")

    def _acknowledge(self, done: object) -> None:
        """Send the new commits and the answer in one write; then the commit that nobody's request has used up."""
        if self._link is not None and self._nonce:
            self._told += len(done.issued)
            data = done.frames(self._answers.relay_bytes_max)
            used_count = self._again.get(done.again, 0)
            if done.again and used_count < _AGAIN_MAX:
                self._again[done.again] = used_count + 1
                data += frames.update_commits([frames.commit_of(done.again)])
            try:
                if self._told > _COMMITS_MAX:
                    self._introduce()
                self._link.write(data)
            except OSError as error:  # the answer is kept, and will be carried by the next connection
                self._end("the connection broke: %s" % error)
        if done.kind:
            self._on_event(done.kind, done.text)
