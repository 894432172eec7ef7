"""What a device sends by itself: readings and alarms to peers, over an anonymous connection of its own.

A notice waits in the state until its peer has answered. When a relay has greeted, it is sealed under one of the peer's
permissions; permission and bytes are kept before they leave, and never change afterwards: after a break, a restart or a
refusal the very same bytes leave again, so that the peer's handler is called once. No relay is believed anything but
an answer that opens: "not here" only decides when the next try is due. Spec: BHUMI-MCU.
"""

import os

from . import frames, payloads, suites
from .answers import name_of
from .port import SetupError, const, make_room, seldom, sleep_ms, sweep, ticks_diff, ticks_ms
from .state import Notice, Peer
from .tls import UnreachableError

__all__ = ["Outgoing"]

_HELLO_MS = const(10_000)
_RESULT_MS = const(70_000)  # a relay answers after 30 s; who joins an exchange under way waits as long again
_LINGER_MS = const(2000)
_FINISH_MS = const(2000)  # for the answer to what has left, before the connection makes way
_DELAY_MS = 2000
_DELAY_MAX_MS = const(300_000)
_DENIALS_MAX = const(3)
_SPARES_WANTED = const(2)
_ANSWER_BYTES_MAX = const(1152)  # what a device of ours answers at most
_OK = const(0)
_OFFLINE = const(1)
_DENIED = const(2)


class Outgoing:
    """Sends the notices of a state; ``step`` does what is due and waits for nothing."""

    def __init__(self, state: object, relays: object, poll: object, feed: object, on_event: object) -> None:
        """Begin without a connection."""
        self._state = state
        self._relays = relays
        self._poll = poll
        self._feed = feed
        self._on_event = on_event
        self._link = None
        self._reader = None
        self._notice = None
        self._places = []
        self._places_for = b""
        self._is_open = self._is_greeted = self._has_left = False
        self._since = 0
        self._relay_bytes_max = 0
        self.home = 0
        """Number of the relay where the device listens: where a peer is looked for after its own address."""
        self.lacks_memory = False
        """Whether a second connection did not fit, so that the listening one must make way."""
        self._is_ending = False

    @property
    def is_active(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    @property
    def is_ready(self) -> bool:
        """Whether something can be read that no poll tells of."""
        return self._link is not None and self._link.is_ready

    def is_due(self) -> bool:
        """Return whether something is to be sent now."""
        return self._next() is not None

    def step(self) -> None:
        """Do what is due."""
        try:
            if self._link is None:
                self._begin()
                return
            if not self._is_open:
                self._is_open = self._link.open()
                return
            self._receive()
            if self._link is not None:
                self._on_time()
        except (UnreachableError, SetupError, frames.MalformedError, OSError) as error:
            self._broke(error)
        except MemoryError as error:
            sweep()
            if self.lacks_memory or self._has_left:
                self._broke(error)
            else:
                self.close()  # to begin anew when the other connection has made way
            self.lacks_memory = True

    def close(self) -> None:
        """End the connection."""
        if self._link is not None:
            self._link.close()
        self._link = self._notice = None
        self._has_left = False

    def leave(self, notice: Notice) -> None:
        """End the connection if it is this notice's, which is dropped."""
        if notice is self._notice:
            self.close()

    def rest(self) -> None:
        """End a connection on which nothing is under way: something else needs the memory for a moment."""
        if self._link is not None and self._notice is None:
            self._places = []
            self.close()

    def make_way(self) -> None:
        """End the connection for good: something else needs the memory.

        What has left gets a moment for its answer, so that it is not in doubt for that.
        """
        self._is_ending = True
        begun = ticks_ms()
        while self._has_left and ticks_diff(ticks_ms(), begun) < _FINISH_MS:
            self.step()
            self._feed()
            sleep_ms(20)
        if self._link is not None:
            self._broke(MemoryError())

    # Which one

    def _next(self) -> Notice:
        """Return the notice that is due, or None."""
        now = ticks_ms()
        for notice in () if self._is_ending else self._state.notices:
            peer = self._state.peer(notice.peer)
            if notice.is_passed or not (notice.right or peer.rights):
                continue
            if not peer.delay_ms or ticks_diff(now, peer.delayed_at) >= peer.delay_ms:
                return notice
        return None

    def _places_of(self, peer: Peer) -> list:
        """Return the numbers of the relays where a peer may be, the likeliest first."""
        numbers = list(range(len(self._relays.urls)))
        for first in (self.home, self._relays.urls.index(peer.url) if peer.url in self._relays.urls else -1):
            if first in numbers:
                numbers.remove(first)
                numbers.insert(0, first)
        return numbers

    def _is_there(self, notice: Notice) -> bool:
        """Whether a notice may leave over the connection that stands."""
        return notice.peer == self._places_for or self._places_of(self._state.peer(notice.peer))[0] == self._places[0]

    def _delay(self, peer: Peer) -> None:
        """Leave a peer alone for a while, twice as long as before."""
        peer.delay_ms = min(2 * peer.delay_ms or _DELAY_MS, _DELAY_MAX_MS)
        peer.delayed_at = ticks_ms()
        for notice in self._state.notices:
            if notice.peer == peer.key:
                notice.is_passed = False

    # The connection

    def _begin(self) -> None:
        notice = self._next()
        if notice is None:
            return
        if not self._places or self._places_for != notice.peer:
            self._places = self._places_of(self._state.peer(notice.peer))
            self._places_for = notice.peer
        self._notice = notice
        self._is_greeted = self._is_open = False
        self._since = ticks_ms()
        make_room()
        if self._reader is None:
            self._reader = frames.Reader(_ANSWER_BYTES_MAX, frames.SEND_RESULT)
        self._reader.begin()
        self._link = self._relays.connect(self._places[0], self._feed, self._poll)

    def _broke(self, error: Exception) -> None:
        """Go on at the next place, or later, after a connection has ended or could not be made."""
        notice, has_left = self._notice, self._has_left
        place = self._places[0] if self._places else 0
        self.close()
        if notice is None or notice not in self._state.notices:
            self._places = []
            return
        if has_left:  # it may have arrived
            self._in_doubt(notice, "the connection ended before an answer: %s" % (error,))
        elif isinstance(error, MemoryError):
            self._later(notice, "out of memory")
        elif not self._relays.failed(place, error):
            self._elsewhere(notice, str(error))

    def _receive(self) -> None:
        while self._link is not None:
            count = self._link.read_into(self._reader.room())
            if not count:
                return
            if count < 0:
                raise UnreachableError("%s ended the connection" % self._relays.urls[self._places[0]])
            self._reader.took(count)
            self._feed()
            while self._link is not None:
                found = self._reader.next()
                if found is None:
                    break
                self._on_frame(*found)

    def _on_frame(self, kind: int, length: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            self._relay_bytes_max = frames.hello_of(payload)[1]
            self._is_greeted = True
            self._relays.works(self._places[0])
            self._send(self._notice)
        elif kind == frames.SEND_RESULT:
            if not self._has_left:
                raise frames.MalformedError("a result without a request")
            self._has_left = False
            self._on_result(self._notice, *frames.result_of(payload, length))

    def _on_time(self) -> None:
        waited = ticks_diff(ticks_ms(), self._since)
        if self._notice is None:
            following = self._next()
            if following is not None and self._is_there(following):
                self._send(following)
            elif following is not None or waited > _LINGER_MS or self.lacks_memory:
                self._places = []
                self.close()
        elif waited > (_RESULT_MS if self._has_left else _HELLO_MS):
            raise UnreachableError("%s did not answer in time" % self._relays.urls[self._places[0]])

    # One exchange

    def _send(self, notice: Notice) -> None:
        """Seal a notice, unless it is, and let it leave; the state knows all of it before."""
        state, peer = self._state, self._state.peer(notice.peer)
        self._notice = notice
        if not notice.right:
            notice.right = peer.rights.pop(0)
            plain = payloads.message(notice.kind, self._relays.urls[self.home], notice.body)
            notice.body = suites.seal(peer.root, peer.suite, notice.right[:32], os.urandom(12), plain, b"q")
            try:
                state.save()
            except (OSError, MemoryError):
                state.reload()
                self._later(notice, "the state cannot be kept")
                self.close()
                return
        if len(notice.body) > self._relay_bytes_max:
            raise UnreachableError("this relay takes at most %d bytes" % self._relay_bytes_max)
        self._since = ticks_ms()
        self._has_left = True
        self._link.write(frames.send(peer.key, notice.right[:32], notice.body))

    def _on_result(self, notice: Notice, status: int, sealed: bytes) -> None:
        peer = self._state.peer(notice.peer)
        self._since = ticks_ms()
        self._notice = None
        if notice not in self._state.notices:
            return
        if status == _OK:
            self._on_answer(peer, notice, sealed)
        elif status == _OFFLINE:
            self._elsewhere(notice, "%s is not connected" % name_of(peer))
        elif status != _DENIED:
            self._in_doubt(notice, "%s did not answer in time" % name_of(peer))
        elif notice.in_doubt:
            self._pass(notice, "the relay does not know the permission any more")
        else:
            self._denied(peer, notice)

    def _on_answer(self, peer: Peer, notice: Notice, sealed: bytes) -> None:
        preimage, tag = notice.right[:32], suites.tag_of(notice.body)
        response = None
        if sealed is not None and suites.suite_of(sealed) == suites.suite_of(notice.body):
            response = _opened(peer, preimage, tag, sealed)
            if response is None and notice.right[32:] != bytes(16):
                response = _opened(peer, preimage, notice.right[32:], sealed)
                if response is not None:  # the answer to what left under this permission before: this never arrived
                    seldom("notices", "again_under_another", peer, notice)
                    self._gain(peer, response[1], response[2])
                    self._keep()
                    return
        if response is None:
            self._pass(notice, "what came as an answer is not one" if sealed is not None else "its answer is too large")
            return
        status, gained, url, content = response
        self._state.notices.remove(notice)
        notice.outcome, notice.answer = "refused" if status else "answered", content
        notice.reason = "%s: %s" % (name_of(peer), seldom("notices", "reason_in", content)) if status else ""
        notice.in_doubt = False
        self._gain(peer, gained, url)
        if notice.is_asking:
            seldom("notices", "take_spares", peer, notice)
        elif peer.gives_spares and len(peer.rights) < _SPARES_WANTED:
            self._ask_spares(peer)
        self._end_round(peer)
        self._keep()
        if not notice.is_asking:
            self._on_event(
                "notified" if not status else "trouble", "%s: %s" % (name_of(peer), notice.reason or notice.outcome)
            )

    def _gain(self, peer: Peer, preimage: bytes, url: str) -> None:
        peer.delay_ms = 0
        if preimage:
            peer.gains(preimage)
        if len(url.encode()) < 256:
            peer.url = url or peer.url

    def _ask_spares(self, peer: Peer) -> None:
        """Ask for more permissions, so that one whose answer is lost is not the last."""
        if not any(each.is_asking for each in self._state.notices if each.peer == peer.key):
            content = payloads.command_request("spares", {"n": _SPARES_WANTED})
            self._state.add_notice(peer, payloads.COMMAND, content).is_asking = True

    # Without an answer

    def _elsewhere(self, notice: Notice, reason: str) -> None:
        """Try the next place with the same bytes; after the last one, later."""
        self._places.pop(0)
        if self._places:
            self.close()
            return
        self._later(notice, reason)

    def _later(self, notice: Notice, reason: str) -> None:
        self._places = []
        self.close()
        self._delay(self._state.peer(notice.peer))
        self._tell(notice, "uncertain" if notice.in_doubt else "offline", reason)

    def _in_doubt(self, notice: Notice, reason: str) -> None:
        notice.in_doubt = True
        self._later(notice, reason)

    def _pass(self, notice: Notice, reason: str) -> None:
        """Keep what is in doubt for the next round, and let others go before it."""
        notice.in_doubt = notice.is_passed = True
        self._end_round(self._state.peer(notice.peer))
        self._tell(notice, "uncertain", reason)

    def _end_round(self, peer: Peer) -> None:
        """Begin the next round later, when this one has come to its end."""
        left = [each.is_passed for each in self._state.notices if each.peer == peer.key]
        if left and all(left):
            self._delay(peer)

    def _denied(self, peer: Peer, notice: Notice) -> None:
        """The relay does not know the permission, and nothing was delivered: ask again, then give up."""
        notice.denials_count += 1
        if notice.denials_count < _DENIALS_MAX:
            peer.delay_ms, peer.delayed_at = _DELAY_MS, ticks_ms()
            return
        self._state.notices.remove(notice)
        peer.rights.append(notice.right[:32] + (suites.tag_of(notice.body) or bytes(16)))
        self._keep()
        self._tell(notice, "no permission", "the relay does not know the permission to send to %s" % name_of(peer))

    def _keep(self) -> None:
        """Save what an answer has changed; when that fails, the answer will be fetched again."""
        try:
            self._state.save()
        except (OSError, MemoryError):
            self._state.reload()

    def _tell(self, notice: Notice, outcome: str, reason: str) -> None:
        is_news = notice.outcome != outcome
        notice.outcome, notice.reason = outcome, reason
        if is_news and not notice.is_asking:
            peer = self._state.peer(notice.peer)
            self._on_event("trouble", "%s: %s: %s" % (name_of(peer), outcome, reason))


def _opened(peer: Peer, preimage: bytes, tag: bytes, sealed: bytes) -> tuple:
    plain = suites.open_sealed(peer.root, preimage, sealed, b"a", tag)
    return None if plain is None else payloads.response_of(plain)
