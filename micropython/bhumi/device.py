"""A Bhumi device: it stays connected to a relay and answers what its peers ask, one request after another.

    device = Device(State("bhumi.state"), [("tls://relay.example:8443", "relay.der")], answer)
    device.run()

An answer is kept in the state before anything leaves; then the commits of the preimages it gives out go to the relay,
then the answer. A request that is delivered again gets the same bytes and does not reach the handler. Nothing here
waits for longer than a second without calling ``feed``, except the system's look-up of a host name.
"""

import errno
import os

from . import ed25519, frames, names, payloads, suites
from .port import SetupError, make_room, show, sleep_ms, ticks_diff, ticks_ms, unix_s
from .state import PEERS_MAX, Peer
from .tls import Link, UnreachableError, is_authority

__all__ = ["Device", "Request", "SetupError"]

_HELLO_MS = 10_000
_KEEPALIVE_MS = 45_000  # twice within the 120 s after which a relay drops an idle device
_SILENCE_MS = 90_000
_RETRY_MS = 500
_RETRY_MAX_MS = 30_000
_TURN_MS = 1000
_COMMITS_MAX = 4000  # a relay keeps 4,096; before that a second I_AM sweeps away those that died
_SPARES_MAX = 8
_REASON_CHARS_MAX = 256
_PRESENCE_TTL_S = 600
_PRESENCE_MS = 240_000
_NO_MEMORY = "out of memory (on a desk: try a larger --heap)"
_ANSWER_BYTES = 77  # envelope and MESSAGE_RESPONSE around address and content


class Request:
    """What a peer asks."""

    def __init__(self, peer: bytes, alias: str, content_type: int, content: bytes) -> None:
        """Hold what came: identity, how we call it, ``payloads.TEXT``, ``BINARY`` or ``COMMAND``, and the bytes."""
        self.peer = peer
        self.alias = alias
        self.content_type = content_type
        self.content = content

    @property
    def text(self) -> str:
        """The content as text; raises UnicodeError when it is none."""
        return self.content.decode()

    def command(self) -> tuple:
        """Return name and arguments of a command; raises ValueError when it is none."""
        return payloads.command_of(self.content)


class Device:
    """Keeps one identity reachable."""

    def __init__(
        self,
        state: object,
        relays: list,
        handler: object,
        *,
        on_event: object = print,
        feed: object = None,
        admit: object = None,
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
                raises, the peer is told that the request could not be handled, and the traceback is printed. One that
                takes longer than a second calls the watchdog itself.
            on_event: Called with a kind and a text: connecting, listening, disconnected, joined, answered, trouble.
            feed: Called at least every second; a watchdog's.
            admit: Called with identity and alias of whoever uses an invite; False refuses.
            payload_bytes_max: Larger requests are refused; as much memory is set aside.
            answer_bytes_max: Larger contents of answers are refused, because the last one to each peer is kept.
            relay_ids: For relays to which presence is asserted, by address: their 32-byte keys. Costs a signature every
                four minutes, and the clock must be set.
        """
        self._state = state
        self._relays = _usable(relays)
        self._handler = handler
        self._on_event = on_event
        self._watchdog = feed
        self._admit = admit
        self._payload_bytes_max = payload_bytes_max
        self._answer_bytes_max = answer_bytes_max
        self._relay_ids = {_whole(relay): key for relay, key in (relay_ids or {}).items()}
        self._link = None
        self._reader = frames.Reader(payload_bytes_max)
        self._turn = 0
        self._delay_ms = _RETRY_MS // 2
        self._relay = ""
        self._retry_ms = 0
        self._retry_from = ticks_ms()
        self._listening = False
        self._heard_at = self._asked_at = self._presence_at = 0
        self._presence_date = 0
        self._nonce = b""
        self._features = 0
        self._relay_bytes_max = 0
        self._told = 0

    @property
    def listening(self) -> bool:
        """Whether a relay has taken the registration and the connection stands."""
        return self._listening

    def run(self) -> None:
        """Listen and answer for ever."""
        while True:
            self.step()

    def step(self, wait_ms: int = _TURN_MS) -> None:
        """Do what is due, and wait at most ``wait_ms`` (and at most a second) for something to do.

        Connecting takes longer than that, up to twenty seconds in the worst case; ``feed`` is called meanwhile.
        """
        self._feed()
        wait_ms = min(wait_ms, _TURN_MS)
        if self._link is None:
            left = self._retry_ms - ticks_diff(ticks_ms(), self._retry_from)
            if left > 0:
                sleep_ms(min(left, wait_ms))
            else:
                self._connect()
            return
        try:
            if self._link.poll(wait_ms):
                self._receive()
            self._on_time()
        except UnreachableError as error:
            self._end(str(error))
        except frames.MalformedError as error:
            self._end("the relay sent nonsense: %s%s" % (error, self._hint()))
        except OSError as error:
            self._end("the connection broke: %s" % error)
        except MemoryError:  # a new connection begins with a clean heap
            self._end(_NO_MEMORY)

    def close(self) -> None:
        """End the connection, before deep sleep; everything is in the state's file already."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self._listening = False
        self._retry_ms = 0

    # Connecting

    def _feed(self) -> None:
        if self._watchdog is not None:
            self._watchdog()

    def _connect(self) -> None:
        relay, (scheme, host, port), ca = self._relays[self._turn % len(self._relays)]
        self._relay = relay
        self._listening = False
        self._nonce = b""
        self._features = 0
        self._reader = None  # its buffer goes before the next one comes, so that they can be the same place
        make_room()
        self._on_event("connecting", "to " + relay)
        try:
            self._reader = frames.Reader(self._payload_bytes_max)
            if not self._state.whole:
                self._state.reload()
            self._link = Link(relay, host, port, _authority(ca) if scheme == "tls" else None, self._feed)
        except (UnreachableError, SetupError, OSError) as error:
            self._end(str(error))
            return
        except MemoryError:
            self._end(_NO_MEMORY)
            return
        self._heard_at = self._asked_at = ticks_ms()

    def _end(self, reason: str) -> None:
        self.close()
        self._turn += 1
        self._delay_ms = min(2 * self._delay_ms, _RETRY_MAX_MS)
        self._retry_ms = self._delay_ms // 2 + os.urandom(1)[0] * self._delay_ms // 512
        self._retry_from = ticks_ms()
        self._on_event("disconnected", "%s; next try in %.1f s" % (reason, self._retry_ms / 1000))

    def _receive(self) -> None:
        link, reader = self._link, self._reader
        while True:
            count = link.read_into(reader.room())
            if not count:
                return
            if count < 0:
                raise UnreachableError("%s ended the connection%s" % (self._relay, self._hint()))
            reader.took(count)
            self._feed()
            self._heard_at = ticks_ms()
            while True:
                found = reader.next()
                if found is None:
                    break
                self._on_frame(*found)
                self._feed()

    def _on_frame(self, kind: int, length: int, payload: bytes) -> None:
        if kind == frames.DELIVER:
            self._on_deliver(payload, length)
        elif kind == frames.KEEPALIVE:
            self._registered()
        elif kind == frames.I_AM_OK:
            frames.i_am_ok_of(payload)
            self._registered()
        elif kind == frames.OPTIONS:
            self._features = frames.options_of(payload) & self._wanted()
        elif kind == frames.HELLO:
            self._nonce, taken = frames.hello_of(payload)
            self._relay_bytes_max = taken
            self._asked_at = ticks_ms()
            self._link.write(frames.options(self._wanted()))
            self._introduce()

    def _wanted(self) -> int:
        wanted = frames.WITH_PREIMAGE | frames.WITH_I_AM_OK
        return wanted | frames.WITH_PRESENCE if self._relay in self._relay_ids else wanted

    def _sign(self, message: bytes) -> bytes:
        return ed25519.sign(self._state.seed, self._state.identity, message, self._feed)

    def _introduce(self) -> None:
        """Send I_AM with everything that is valid now, and KEEPALIVE, whose echo proves that it was taken."""
        state = self._state
        signature = self._sign(self._nonce + state.identity)
        preimages = state.preimages()
        self._told = len(preimages)
        for part in frames.i_am(state.identity, signature, preimages, state.responses()):
            self._link.write(part)
        self._link.write(frames.frame(frames.KEEPALIVE))
        make_room()

    def _registered(self) -> None:
        if self._listening or not self._nonce:
            return
        self._listening = True
        self._delay_ms = _RETRY_MS // 2
        self._presence_at = ticks_ms() - _PRESENCE_MS
        self._on_event("listening", "on %s as %s" % (self._relay, names.id52(self._state.identity)))

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
        elif self._features & frames.WITH_PRESENCE and self._listening:
            self._assert_presence(now)

    def _assert_presence(self, now: int) -> None:
        clock = unix_s()
        if not clock or ticks_diff(now, self._presence_at) < _PRESENCE_MS:
            return
        self._presence_at = now
        # Of two within one second the relays would keep the first (BHUMI-FINDABLE).
        self._presence_date = issued_at = max(clock, self._presence_date + 1)
        relay_id = self._relay_ids[self._relay]
        self._link.write(frames.presence(self._state.identity, relay_id, issued_at, _PRESENCE_TTL_S, self._sign))

    def _hint(self) -> str:
        """Return what may be wrong with a listener that has not greeted; nothing about one that has."""
        if self._nonce:
            return ""
        return "; is this a TLS port?" if self._relay.startswith("tcp:") else "; is it a Bhumi relay?"

    # Answering

    def _on_deliver(self, payload: bytes, length: int) -> None:
        named = self._features & frames.WITH_PREIMAGE
        message_id, preimage, sealed = frames.deliver_of(payload, length, named)
        self._registered()
        if preimage is None and sealed is not None:
            preimage = self._state.find(sealed[:8])
        stored = None if preimage is None else self._state.response_to(preimage)
        if stored is not None:
            self._acknowledge(message_id, stored, ())
            return
        try:
            answer, issued, kind, text = self._answer_to(preimage, sealed)
        except (OSError, MemoryError) as error:
            # Without the promise on the medium there is no answer: the sender sees a timeout and asks again. What is on
            # the medium may be the old state or the new one, so that the relay is told the commits again.
            make_room()
            self._state.reload()
            self._on_event("trouble", "the state cannot be kept: %s" % _reason(error))
            self._introduce()
            return
        self._acknowledge(message_id, answer, issued)
        self._on_event(kind, text)

    def _acknowledge(self, message_id: int, answer: bytes, issued: list) -> None:
        """Send the new commits and the answer in one write."""
        if len(answer) > self._relay_bytes_max:
            answer = b""
        data = frames.ack(message_id, answer)
        if issued:
            self._told += len(issued)
            data = frames.update_commits([frames.commit_of(each) for each in issued]) + data
        if self._told > _COMMITS_MAX:
            self._introduce()
        self._link.write(data)

    def _answer_to(self, preimage: bytes, sealed: bytes) -> tuple:
        """Return an answer, which is kept by then, the preimages it gives out, and an event's kind and text."""
        state = self._state
        peer = None if preimage is None else state.peer_of(preimage)
        if peer is not None:
            return self._respond(peer, preimage, sealed)
        alias = None if preimage is None else state.take_invite(preimage)
        if alias is None:
            return b"", (), "trouble", "a request came with a preimage that was not given out, or is spent"
        return self._welcome(preimage, alias, sealed)

    def _welcome(self, preimage: bytes, alias: str, sealed: bytes) -> tuple:
        """Answer whoever uses an invite; the invite is spent, whatever comes of it."""
        state = self._state
        plain = None if sealed is None else suites.open_handshake(state.seed, preimage, sealed, self._feed)
        request = None if plain is None else payloads.request_of(plain)
        if request is None or request[0] != "init" or request[1] == state.identity:
            state.save()
            return b"", (), "trouble", "an invite was wasted: the other side must accept it with --e2e suite-2"
        key = request[1]
        peer = state.peer(key)
        room = peer is not None or len(state.peers) < PEERS_MAX
        admitted = room and (self._admit is None or self._admit(key, alias))
        suite = sealed[8] & 0x7F
        root = peer.root if peer is not None else suites.root_with(state.seed, key, self._feed)
        if root is None or not admitted:
            state.save()
            answer = b""
            if root is not None:
                answer = suites.seal(root, suite, preimage, os.urandom(12), payloads.handshake_answer(b"", ""))
            return answer, (), "trouble", "somebody was not admitted" if room else "no room for another peer"
        if peer is None:
            peer = Peer(key, root, suite, alias)
            state.peers.append(peer)
        peer.alias = alias or peer.alias
        peer.suite = suite
        given = os.urandom(32)
        answer = self._keep(peer, preimage, payloads.handshake_answer(given, self._relay), [given])
        return answer, [given], "joined", "%s (%s)" % (_name(peer), names.id52(key))

    def _respond(self, peer: Peer, preimage: bytes, sealed: bytes) -> tuple:
        """Answer a peer; its right to ask is renewed, whatever it sent."""
        plain = None if sealed is None else suites.open_sealed(peer.root, preimage, sealed)
        request = None if plain is None else payloads.request_of(plain)
        given = os.urandom(32)
        issued = [given]
        if request is None or request[0] != "message":
            too_large = sealed is None
            content = payloads.command_error("the request is too large" if too_large else "the request makes no sense")
            kind, text = "trouble", "%s sent something too large" if too_large else "%s sent something senseless"
            text = text % _name(peer)
            refused = True
        else:
            peer.suite = sealed[8]
            spares = _spares_asked(request)
            if spares:
                issued.extend([os.urandom(32) for _ in range(spares)])
                listed = [_hex(each) for each in issued[1:]]
                content, refused = payloads.command_answer({"spares": listed}), False
                kind, text = "answered", "%s: gave %d spares" % (_name(peer), spares)
            else:
                content, refused, kind, text = self._call(peer, request)
        answer = payloads.response(refused, given, self._relay, content)
        return self._keep(peer, preimage, answer, issued), issued, kind, text

    def _call(self, peer: Peer, request: tuple) -> tuple:
        """Return the handler's content, whether it is a refusal, and an event's kind and text."""
        is_command = request[1] == payloads.COMMAND
        try:
            given = self._handler(Request(peer.key, _name(peer), request[1], request[2]))
            content = payloads.command_answer(given) if is_command else _bytes_of(given)
            room = self._relay_bytes_max - len(self._relay) - _ANSWER_BYTES
            if len(content) > min(room, self._answer_bytes_max):
                raise ValueError("the answer is too large")
        except Exception as error:  # noqa: BLE001 - a program's own mistakes must not end the device
            show(error)
            content = payloads.command_error(_reason(error)) if is_command else b""
            return content, True, "trouble", "the handler failed: %s" % _reason(error)
        return content, False, "answered", "%s: %s" % (_name(peer), _shown(request[2]))

    def _keep(self, peer: Peer, preimage: bytes, answer: bytes, issued: list) -> bytes:
        """Seal an answer, keep it with what it promises, and return its bytes."""
        sealed = suites.seal(peer.root, peer.suite, preimage, os.urandom(12), answer)
        self._state.answered(peer, preimage, sealed, issued)
        self._state.save()
        return sealed


def _spares_asked(request: tuple) -> int:
    """Return how many spare preimages a request asks for; 0 when it asks for something else."""
    if request[1] != payloads.COMMAND:
        return 0
    try:
        command, arguments = payloads.command_of(request[2])
    except ValueError:
        return 0
    wanted = arguments.get("n") if isinstance(arguments, dict) else None
    return max(0, min(wanted, _SPARES_MAX)) if command == "spares" and isinstance(wanted, int) else 0


def _bytes_of(given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    if not isinstance(given, bytes):
        raise TypeError("it returned %s, not text or bytes" % type(given).__name__)
    return given


def _name(peer: Peer) -> str:
    return peer.alias or names.id52(peer.key)[:8]


def _shown(content: bytes) -> str:
    """Return content for people: its beginning, with everything that could steer a terminal made visible."""
    return repr(bytes(content[:64]))[2:-1]


def _hex(data: bytes) -> str:
    return "".join(["%02x" % byte for byte in data])


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    return (str(error) or type(error).__name__)[:_REASON_CHARS_MAX]


def _whole(relay: str) -> str:
    """Return an address with everything that it may leave out; raises SetupError."""
    try:
        return names.join_relay(*names.split_relay(relay))
    except (ValueError, TypeError, AttributeError):
        raise SetupError(
            "settings.py: %r is no relay's address; expected tls://host:port or tcp://host:port" % (relay,)
        )


def _usable(relays: list) -> list:
    """Return whole addresses, their parts, and files of certificates, all of which are there; raises SetupError."""
    try:
        pairs = [(relay, ca) for relay, ca in relays]
    except (ValueError, TypeError):
        raise SetupError('settings.py: RELAYS is a list of pairs, as ("tls://host:port", "relay-1.der")')
    if not pairs:
        raise SetupError("settings.py names no relay")
    found = []
    for relay, ca in pairs:
        whole = _whole(relay)
        parts = names.split_relay(whole)
        if parts[0] == "tls" and not is_authority(_authority(ca)):
            raise SetupError("%s is no certificate in DER" % ca)
        found.append((whole, parts, ca))
    make_room()
    return found


def _authority(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise SetupError("cannot read %s: %s" % (path, error))
        raise SetupError("%s, which settings.py names, is missing" % (path or "the certificate of a tls:// relay"))
