"""What a device answers to what a relay delivers; it knows nothing of connections, and waits for nothing.

What does not open under the root of the peer whose preimage it came with, or is in a weaker suite than the pairing, is
nobody's request: it gets an empty answer, reaches no handler and spends nothing. Everything else is answered once: the
answer is kept in the state, with the preimages that it gives out, before it leaves. Spec: BHUMI-D, BHUMI-PAIR.
"""

import os
from binascii import hexlify

from . import frames, payloads, suites
from .port import const, seldom, show, sweep
from .state import Peer

__all__ = ["RESERVED", "RUNNING_MAX", "Answers", "Done", "Request", "Work", "name_of", "nothing", "reason_of"]

RESERVED = "bhumi:"
"""Commands whose name begins so are ours and never reach the program."""
RUNNING_MAX = 4
WAITING_MAX = 2  # each holds a request in memory
_JOINED_MAX = const(8)
_REASON_CHARS_MAX = const(256)
_ANSWER_BYTES = const(77)  # envelope and MESSAGE_RESPONSE around address and content
_BUSY = "the device is busy; ask again"


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


class Work:
    """A request that is for the program: call ``Answers.finish`` with what comes of it."""

    def __init__(self, message_id: int, preimage: bytes, suite: int, tag: bytes, request: Request) -> None:
        """Describe it; ``message_ids`` are the deliveries that its answer is for."""
        self.message_ids = [message_id]
        self.preimage = preimage
        self.suite = suite
        self.tag = tag
        self.request = request


class Done:
    """An answer that is kept, and what to tell people once it has left."""

    def __init__(self, message_ids: list, answer: bytes, issued: list = (), kind: str = "", text: str = "") -> None:
        """Describe an answer to deliveries; ``issued`` are preimages that the relay must know before it leaves."""
        self.message_ids = message_ids
        self.answer = answer
        self.issued = issued
        self.kind = kind
        self.text = text
        self.again = b""
        """A preimage that is still good, although a delivery has used up its commit at the relay; or empty."""

    def frames(self, relay_bytes_max: int) -> bytes:
        """Return what leaves in one write: the new commits, then the answer, which is empty when it is too large."""
        answer = self.answer if len(self.answer) <= relay_bytes_max else b""
        data = frames.update_commits([frames.commit_of(each) for each in self.issued]) if self.issued else b""
        for message_id in self.message_ids:
            data += frames.ack(message_id, answer)
        return data


class Answers:
    """Turns deliveries into answers, once for each preimage."""

    def __init__(
        self, device: object, state: object, admit: object, answer_bytes_max: int, feed: object, roles: dict
    ) -> None:
        """Describe what answers.

        Args:
            device: What reserved commands are carried out on.
            state: A ``State``.
            admit: As ``Device`` has it.
            answer_bytes_max: Largest content of an answer.
            feed: A watchdog's.
            roles: What peers may send, by alias, as ``Device`` has it.
        """
        self._device = device
        self._state = state
        self._admit = admit
        self._answer_bytes_max = answer_bytes_max
        self._feed = feed
        self._roles = roles
        self._running = []
        self._waiting = []
        self._unkept = []  # what handlers gave for requests whose answer could not be kept, with its tag
        self.relay = ""
        """Where peers learn that we can be reached."""
        self.relay_bytes_max = 0
        """Largest opaque payload that the relay takes."""

    def take(self, message_id: int, preimage: bytes, sealed: bytes, whole: bool) -> object:
        """Return the answer to a delivery, or work for the program, or None when it waits for other work.

        Args:
            message_id: Of the delivery.
            preimage: It came with, or None when the relay does not tell.
            sealed: The opaque payload, or its beginning.
            whole: Whether it is all of it.

        Raises:
            OSError: The state cannot be kept; it must be read again.
            MemoryError: Likewise.
        """
        state = self._state
        if preimage is None:
            preimage = state.find(sealed[:8])
        stored = None if preimage is None else state.response_to(preimage)
        if stored is not None:
            return Done([message_id], stored)
        for work in self._running:
            if work.preimage == preimage:
                if len(work.message_ids) < _JOINED_MAX:
                    work.message_ids.append(message_id)
                return None
        peer = None if preimage is None else state.peer_of(preimage)
        if peer is not None:
            return self._respond(peer, message_id, preimage, sealed, whole)
        invite = None if preimage is None else state.invite_of(preimage)
        if invite is not None:
            self._device.rest()
            words = (state, self.relay, self._admit, invite, message_id, sealed if whole else b"", self._feed)
            return seldom("pairing", "welcome", *words)
        return nothing(message_id, b"", "a request came with a preimage that was not given out, or is spent")

    def finish(self, work: Work, given: object, error: Exception = None) -> Done:
        """Return the answer to what the program has worked on; raises OSError or MemoryError like ``take``.

        Args:
            work: From ``take``.
            given: What the handler returned.
            error: What it raised instead.
        """
        if work in self._running:
            self._running.remove(work)
        # Until the answer is kept: when the request comes again, its handler is not called again.
        self._unkept.append((work.tag, given, error))
        del self._unkept[:-RUNNING_MAX]
        done = self._finish(work, given, error)
        self._take_unkept(work.tag)
        return done

    def _take_unkept(self, tag: bytes) -> tuple:
        """Take out what a handler gave for this very request: another one under its preimage has another tag."""
        for index, each in enumerate(self._unkept):
            if each[0] == tag:
                return self._unkept.pop(index)
        return None

    def _finish(self, work: Work, given: object, error: Exception) -> Done:
        request = work.request
        peer = self._state.peer(request.peer)
        if peer is None or not peer.may_use(work.preimage):
            return Done(work.message_ids, b"", (), "trouble", "a request was handled whose peer is unpaired")
        is_command = request.content_type == payloads.COMMAND
        try:
            if error is not None:
                raise error
            content = payloads.command_answer(given) if is_command else _bytes_of(given)
            if len(content) > min(self._room(), self._answer_bytes_max):
                raise ValueError("the answer is too large")
        except Exception as raised:  # noqa: BLE001 - a program's own mistakes must not end the device
            show(raised)
            reason = reason_of(raised)
            return self._refuse(peer, work, reason, "the handler failed: %s" % reason)
        return self._keep(
            peer, work, False, content, (), "answered", "%s: %s" % (name_of(peer), _shown(request.content))
        )

    def next(self) -> object:
        """Return what became of a request that waited, as ``take`` does; False when none can go on."""
        for waiting in self._waiting:
            peer = self._state.peer_of(waiting[1])
            if len(self._running) < RUNNING_MAX and (peer is None or not self._is_busy(peer.key)):
                self._waiting.remove(waiting)
                return self.take(*waiting)
        return False

    def forget_deliveries(self) -> None:
        """Note that the connection of all deliveries has ended; their answers will be carried by the next one."""
        self._waiting = []
        for work in self._running:
            work.message_ids = []

    # Requests

    def _respond(self, peer: Peer, message_id: int, preimage: bytes, sealed: bytes, whole: bool) -> object:
        """Answer a peer, or return the work that its request makes."""
        suite = suites.suite_of(sealed)
        if suite & suites.HANDSHAKE or suites.is_paired(suite) != suites.is_paired(peer.suite):
            return nothing(
                message_id, preimage, "something came for %s in a weaker form than its pairing" % name_of(peer)
            )
        if not whole:
            return seldom("manage", "refuse_unread", self._state, self.relay, peer, message_id, preimage, sealed)
        plain = suites.open_sealed(peer.root, preimage, sealed)
        if plain is None:
            return nothing(message_id, preimage, "something came for %s that it did not write" % name_of(peer))
        request = payloads.request_of(plain)
        content_type, content = request[1:] if request is not None and request[0] == "message" else (-1, b"")
        work = Work(
            message_id, preimage, suite, suites.tag_of(sealed), Request(peer.key, name_of(peer), content_type, content)
        )
        if content_type < 0:
            return self._refuse(peer, work, "the request makes no sense", "%s sent something senseless" % name_of(peer))
        if self._is_busy(peer.key) or len(self._running) >= RUNNING_MAX:
            if len(self._waiting) >= WAITING_MAX:
                return self._refuse(peer, work, _BUSY, "%s was refused: too much at once" % name_of(peer))
            self._waiting.append((message_id, preimage, sealed, whole))
            return None
        if content_type == payloads.COMMAND:
            done = self._own_command(peer, work)
            if done is not None:
                return done
        return self._for_program(peer, work)

    def _for_program(self, peer: Peer, work: Work) -> object:
        """Return the work, or the answer where its handler was called before or its peer's role forbids it."""
        unkept = self._take_unkept(work.tag)
        if unkept is not None:
            return self.finish(work, unkept[1], unkept[2])
        allowed = self._roles.get(peer.alias)
        denial = "" if allowed is None else seldom("rights", "denial", allowed, work.request)
        if denial:
            return self._refuse(peer, work, denial, "%s: %s" % (name_of(peer), denial))
        self._running.append(work)
        return work

    def _own_command(self, peer: Peer, work: Work) -> Done:
        """Return the answer to a command that is the device's own, or None when it is the program's."""
        try:
            command, arguments = payloads.command_of(work.request.content)
        except ValueError:
            return None
        if command == "spares":
            spares = seldom("rights", "spares", arguments)
            if not spares:
                return None
            content = payloads.command_answer({"spares": [hexlify(each).decode() for each in spares]})
            return self._keep(
                peer, work, False, content, spares, "answered", "%s: gave %d spares" % (name_of(peer), len(spares))
            )
        if not command.startswith(RESERVED):
            return None
        self._device.rest()
        try:
            if not peer.manages:
                raise ValueError("%s may not manage this device" % name_of(peer))
            words = (self._device, self._state, peer, command[len(RESERVED) :], arguments)
            data = seldom("manage", "carry_out", *words)
            content = payloads.command_answer(data)
            if len(content) > self._room():
                raise ValueError("the answer is too large")
        except (ValueError, KeyError, TypeError) as error:
            reason = reason_of(error)
            return self._refuse(peer, work, reason, "%s: %s: %s" % (name_of(peer), command, reason))
        del data
        sweep()
        return self._keep(
            peer, work, False, content, (), "answered", "%s: %s" % (name_of(peer), _shown(work.request.content))
        )

    def _refuse(self, peer: Peer, work: Work, reason: str, text: str) -> Done:
        """Refuse an authentic request; its peer learns the reason, and its right to ask is renewed."""
        content = reason.encode() if work.request.content_type == payloads.TEXT else payloads.command_error(reason)
        return self._keep(peer, work, True, content, (), "trouble", text)

    def _keep(self, peer: Peer, work: Work, refused: bool, content: bytes, spares: list, kind: str, text: str) -> Done:
        """Seal an answer, and keep it with what it promises."""
        given = os.urandom(32)
        issued = [given]
        issued.extend(spares)
        answer = payloads.response(refused, given, self.relay, content)
        sealed = suites.seal(peer.root, work.suite, work.preimage, os.urandom(12), answer, b"a", work.tag)
        peer.suite = work.suite
        self._state.answered(peer, work.preimage, sealed, issued)
        self._state.save()
        return Done(work.message_ids, sealed, issued, kind, text)

    def _is_busy(self, key: bytes) -> bool:
        """Whether a peer has work under way; as the last answer to each peer is kept, it gets one after the other."""
        return any(work.request.peer == key for work in self._running)

    def _room(self) -> int:
        return self.relay_bytes_max - len(self.relay) - _ANSWER_BYTES


def reason_of(error: Exception) -> str:
    """Return why something failed, for people."""
    if isinstance(error, MemoryError):
        sweep()
        return "out of memory (on a desk: try a larger --heap)"
    return (str(error) or type(error).__name__)[:_REASON_CHARS_MAX]


def name_of(peer: Peer) -> str:
    """Return how to call a peer."""
    return peer.alias or seldom("names", "id52", peer.key)[:8]


def nothing(message_id: int, again: bytes, text: str) -> Done:
    """Return the empty answer to what is nobody's request; ``again`` is its preimage if that stays good."""
    done = Done([message_id], b"", (), "trouble", text)
    done.again = again
    return done


def _bytes_of(given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    if not isinstance(given, bytes):
        raise TypeError("it returned %s, not text or bytes" % type(given).__name__)
    return given


def _shown(content: bytes) -> str:
    """Return content for people: its beginning, with everything that could steer a terminal made visible."""
    return repr(bytes(content[:64]))[2:-1]
