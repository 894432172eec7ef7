"""A device on byte streams: plain, bsp+tls and bsp+wss, for nodes and applications alike.

What moves it: connections and their bytes, commits, time, and whoever commands the device. It proves who is there, cuts
what arrives into records and hands them to the device, and writes what the device has to say: one write per peer and
turn, of at most ``WRITE_BYTES``, the next one once that has left. What the device must make durable goes out as a
``Commit``, one at a time. What it refuses to know: groups, messages, and what is due.

Parts, each with its own theory: ``session`` is one connection, ``sessions`` are all of them, ``dials`` whom we seek.
Whoever commands the device calls ``wake`` behind it, then ``take``.

Spec: bsp 5, 11.2, 11.7, 11.8; BSP-STALL, BSP-HOLD.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from waystation.core.effects import Commit, Effect, Hold, Peer, Send
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.dials import Dials, kind_of_url
from waystation.protocols.bsp.events import DeviceEvent
from waystation.protocols.bsp.handshake import CERTIFICATE_HASH_BYTES, NONCE_BYTES, Acceptor, Dialler
from waystation.protocols.bsp.messages import Ack
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.session import HANDSHAKING, Session, State
from waystation.protocols.bsp.sessions import PROTOCOL, PeerDown, PeerUp, Sessions
from waystation.protocols.bsp.wire import RecordReader

__all__ = ["CONNECTED_MAX", "PLAIN_DOOR", "PROTOCOL", "UNSAVED_BYTES_MAX", "BspMachine", "PeerDown", "PeerUp"]

PLAIN_DOOR: Final = "plain"
"""Where bare records come in, of the one plain peer (BSP-PLAIN)."""
CONNECTED_MAX: Final = 4_096
"""Peers that are connected at once, unless somebody says otherwise."""
ARRIVALS_PER_S: Final = 20
ARRIVALS_BURST: Final = 500
"""Handshakes of one known key that we let through: each makes us look at all that the peer lacks (BSP-ARRIVALS)."""
FIRST_WRITE_BYTES: Final = 65_536
"""Most bytes of a write to a peer that has said nothing on this connection (BSP-FIRST)."""
RECEIPT_BYTES: Final = 16_384
"""Of a write from which on we ask to hear that it has left: what is shorter leaves at once, or nothing does."""
UNSAVED_BYTES_MAX: Final = 3_145_728
"""What was heard and is not on disk, 1 KiB for each message besides its body; above that nobody who says more is
read. It also bounds a commit, and so how long everybody waits for it."""


class BspMachine:
    """One device's connections; see ``core.machine.Machine`` for how to drive it."""

    def __init__(
        self,
        device: BspDevice,
        key_pair: KeyPair,
        rng: random.Random,
        *,
        plain_peer: PublicKey | None = None,
        dials: Mapping[PublicKey, str] | None = None,
        admits: Callable[[PublicKey], bool] = lambda _key: True,
        rate_limits: bool = True,
        connected_max: int = CONNECTED_MAX,
    ) -> None:
        """Make a machine without connections; it accepts TLS once it has been told a certificate.

        Args:
            device: Who speaks and hears; it must know its peers.
            key_pair: The device's identity.
            rng: Source of nonces and jitter; must be unpredictable to peers.
            plain_peer: Whose bare records come through the plain door; None closes it.
            dials: Addresses of the peers that are dialled.
            admits: Asked with the key of each known peer; False turns it away.
            rate_limits: Whether one key may come only so often.
            connected_max: Most peers that are connected at once; the next one is told that we are busy.

        Raises:
            LocalError: An address has no scheme of ours.
        """
        self.device = device
        self._key_pair = key_pair
        self._rng = rng
        self._plain_peer = plain_peer
        self._admits = admits
        self._connected_max = connected_max
        self._rate_limits = rate_limits
        self._arrivals: dict[PublicKey, TokenBucket] = {}
        """By key of the table of peers."""
        self._certificates: dict[str, bytes] = {}
        self._dials = Dials(rng)
        self._sessions = Sessions(device, key_pair.public, self._dials)
        for key, url in (dials or {}).items():
            self.dial(key, url)
        self._may_speak: dict[PublicKey, None] = {}
        """Peers for whom something may be due."""
        self._now = Instant(0)
        self._retiring = False
        self._ticket = 0
        """Of the last commit that was asked for."""
        self._is_saving = False

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """A connection stands at the TLS listener: it gets our hello."""
        self.connect_by(peer, "", now, address)

    def connect_by(self, peer: Peer, door: str, now: Instant, address: str = "") -> None:  # noqa: ARG002 - any address
        """A connection stands at a door: the plain one, or one that was told its certificate."""
        self._now = now
        if door == PLAIN_DOOR:
            self._connect_plain(peer, now)
            return
        certificate = self._certificates.get(door)
        if certificate is None:
            self._sessions.turn_away(peer, Refusal.HANDSHAKE)
            return
        ours = Acceptor(self._key_pair, self._rng.randbytes(NONCE_BYTES), certificate)
        session = Session(peer, "wss" if door else "tls", RecordReader(self.device.profile), now, handshake=ours)
        self._sessions.enter(session, now)
        self._sessions.effects.append(Send(peer, ours.hello()))

    def connect_upstream(self, peer: Peer, name: str, now: Instant, certificate: bytes = b"") -> None:
        """A connection that we dialled stands.

        Args:
            peer: The connection's number.
            name: The peer's key, 64 hexadecimal digits.
            now: Monotonic time.
            certificate: SHA-256 of the certificate that we saw, 32 bytes; empty on a plain connection.
        """
        self._now = now
        key = decode_key_hex(name)
        url = self._dials.url_of(key)
        if url is None:
            self._sessions.turn_away(peer, Refusal.REPLACED, key)
            return
        kind = kind_of_url(url)
        refusal = self._judge(key)
        if refusal is None and kind != "plain" and len(certificate) != CERTIFICATE_HASH_BYTES:
            refusal = Refusal.HANDSHAKE
        if refusal is not None:
            self._sessions.turn_away(peer, refusal, key)
            self._sessions.lost(key, refusal.value, now)
            return
        ours = None
        if kind != "plain":
            ours = Dialler(self._key_pair, self._rng.randbytes(NONCE_BYTES), key, certificate)
        began_at = self._dials.began_at(key)
        reader = RecordReader(self.device.profile)
        session = Session(peer, kind, reader, now, handshake=ours, key=key, began_at=began_at)
        self._sessions.enter(session, now)
        if ours is None:
            self._on_open(session)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The peer with the key ``name`` could not be reached."""
        self._now = now
        self._sessions.lost(decode_key_hex(name), "unreachable", now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes arrived."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is None:
            return
        if session.state in HANDSHAKING:
            data = self._shake_hands(session, data)
        if data and session.state is State.OPEN:
            self._hear(session, data)

    def half_closed(self, peer: Peer, now: Instant) -> None:
        """The other side has said that it sends no more: what is left is stored and written, then we close, too."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is None or session.state is State.ENDING:
            return
        if session.state is State.OPEN:
            self._finish(session, session.reader.finish() or Refusal.HALF_CLOSED)
        else:
            self._sessions.close(session, Refusal.HANDSHAKE, self._now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            self._sessions.forget(session, "disconnected", now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for the peer, or fewer wait than at the last call."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            session.congested, session.progress_at = True, now
            self._sessions.watch(session)

    def drained(self, peer: Peer, now: Instant) -> None:
        """No byte waits for the peer."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            session.congested = session.owed = False
            if session.key is not None:
                if self.device.link_of(session.key) == session.link:
                    self.device.left(session.key, now)
                self._may_speak[session.key] = None

    def committed(self, ticket: int, now: Instant) -> None:
        """What the device has changed is on disk."""
        assert self._is_saving
        assert ticket == self._ticket
        self._now = now
        self._is_saving = False
        self.device.committed(now)
        if self.device.unsaved_bytes <= UNSAVED_BYTES_MAX:
            self._release()

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer that nobody asked for; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")

    def wake(self, now: Instant) -> None:
        """Look after deadlines, dials, and what has become due."""
        self._now = now
        for number in self._sessions.alarms.due(now):
            session = self._sessions.by_peer[Peer(number)]
            refusal = session.overdue(now)
            if refusal is None:
                self._sessions.watch(session)
            else:
                self._sessions.close(session, refusal, self._now)
        self.device.wake(now)
        if not self._retiring:
            self._sessions.effects += self._dials.begin(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = [self._sessions.alarms.next_at(), self.device.deadline()]
        if not self._retiring:
            times.append(self._dials.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call: commit, then say what is due, then close."""
        device = self.device
        if device.must_commit and not self._is_saving:
            self._ticket += 1
            self._is_saving = True
            self._sessions.effects.append(Commit(self._ticket, device.changes()))
        for key in device.take_stirred():
            self._may_speak[key] = None
        if self._may_speak:
            may_speak, self._may_speak = self._may_speak, {}
            for key in may_speak:
                self._speak(key)
        for session in list(self._sessions.ending):
            if self._has_said_all(session):
                assert session.reason is not None
                self._sessions.close(session, session.reason, self._now)
        effects, self._sessions.effects = self._sessions.effects, []
        return effects

    def take_events(self) -> list[DeviceEvent | PeerUp | PeerDown]:
        """Return and forget what happened since the last call, connections first."""
        events, self._sessions.events = self._sessions.events, []
        return [*events, *self.device.take_events()]

    # Commands

    def use_certificate(self, sha256: bytes | None, door: str = "") -> None:
        """Accept connections at a door whose TLS shows the certificate with this hash, or no more (None).

        Args:
            sha256: 32 bytes: SHA-256 of the certificate (DER); also that of a TLS proxy before a door of ours.
            door: "" is bsp+tls, any other except the plain one is bsp+wss.
        """
        assert door != PLAIN_DOOR
        if sha256 is None:
            self._certificates.pop(door, None)
        else:
            assert len(sha256) == CERTIFICATE_HASH_BYTES
            self._certificates[door] = sha256

    def dial(self, key: PublicKey, url: str) -> None:
        """Keep a connection to a peer from now on, or seek it at another address.

        Raises:
            LocalError: The address has no scheme of ours.
        """
        self._dials.add(key, url, is_connected=key in self._sessions.open)

    def undial(self, key: PublicKey) -> None:
        """Dial a peer no more; a connection that stands may stay."""
        self._dials.remove(key)

    def connected(self) -> dict[PublicKey, str]:
        """Return the kind of connection of each peer that has one."""
        return {key: session.kind for key, session in self._sessions.open.items()}

    def retire(self) -> None:
        """Dial nobody any more, let nobody in, and hear nothing new, so that what was heard comes to its end.

        What peers acknowledge is still heard, as it spares them a repetition; the rest they say again (BSP-DRAIN).
        """
        self._retiring = True

    def settled(self) -> bool:
        """Return whether everything heard is on disk and no connection is ending."""
        return not (self._is_saving or self.device.must_commit or self._sessions.ending)

    def shut(self, now: Instant) -> None:
        """Close every connection, and let nobody in any more."""
        self._now = now
        self.retire()
        for session in list(self._sessions.by_peer.values()):
            self._sessions.close(session, Refusal.DRAINING, self._now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of a key."""
        self._now = now
        for session in list(self._sessions.by_peer.values()):
            if session.key == identity:
                self._sessions.close(session, Refusal.IDENTITY_BANNED, self._now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {
            "connections": len(self._sessions),
            "handshakes": len(self._sessions.handshakes),
            "connected": len(self._sessions.open),
            "ending": len(self._sessions.ending),
            "dialled": len(self._dials),
            **self.device.sizes(),
        }

    # Beginnings

    def _connect_plain(self, peer: Peer, now: Instant) -> None:
        key = self._plain_peer
        refusal = Refusal.UNKNOWN_PEER if key is None else self._judge(key)
        if refusal is not None:
            self._sessions.turn_away(peer, refusal, key)
            return
        session = Session(peer, "plain", RecordReader(self.device.profile), now, key=key)
        self._sessions.enter(session, now)
        self._on_open(session)

    def _judge(self, key: PublicKey) -> Refusal | None:
        """Return why the holder of a key is not welcome."""
        if not self.device.knows(key):
            return Refusal.UNKNOWN_PEER
        if not self._admits(key):
            return Refusal.IDENTITY_BANNED
        if self._retiring:
            return Refusal.DRAINING
        is_full = len(self._sessions.open) >= self._connected_max and key not in self._sessions.open
        return Refusal.BUSY if is_full else None

    def _judge_arrival(self, key: PublicKey) -> Refusal | None:
        """Return why somebody who has come to us, or whom we dialled, is not welcome now."""
        refusal = self._judge(key)
        if refusal is None and self._rate_limits:
            arrivals = self._arrivals.get(key)
            if arrivals is None:
                if len(self._arrivals) >= self._connected_max:
                    del self._arrivals[next(iter(self._arrivals))]
                arrivals = self._arrivals[key] = TokenBucket(ARRIVALS_PER_S, ARRIVALS_BURST, self._now)
            if not arrivals.take(self._now):
                return Refusal.BUSY
        return refusal

    def _shake_hands(self, session: Session, data: bytes) -> bytes:
        """Take bytes of a handshake; return what came behind it."""
        step = session.shake_hands(data, self._judge_arrival)
        if step.reply:
            self._sessions.effects.append(Send(session.peer, step.reply))
        if step.refusal is not None:
            self._sessions.close(session, step.refusal, self._now)
        elif session.state is State.OPEN:
            self._on_open(session)
        return step.rest

    def _on_open(self, session: Session) -> None:
        """The other side is who it says."""
        key = session.key
        assert key is not None
        refusal = self._judge(key)  # what was true when we dialled need not be any more
        if refusal is not None:
            self._sessions.close(session, refusal, self._now)
        elif self._sessions.stand(session, self._now):
            self._may_speak[key] = None
            if self.device.profile.greeting:
                self._sessions.effects.append(Send(session.peer, self.device.profile.greeting))

    # Records

    def _hear(self, session: Session, data: bytes) -> None:
        key = session.key
        assert key is not None
        device, now, link = self.device, self._now, session.link
        if not self._is_linked(session):
            return
        session.heard_at = now
        session.has_spoken = True
        records = session.reader.feed(data)
        if self._retiring:
            records = [record for record in records if isinstance(record, Ack)]
        for record in records:
            device.hear(key, record, now, link)
        if session.reader.refusal is not None:
            self._finish(session, session.reader.refusal)
            return
        if device.unsaved_bytes > UNSAVED_BYTES_MAX and not session.held:
            session.held = True
            self._sessions.held[session] = None
            self._sessions.effects.append(Hold(session.peer, held=True))
        self._sessions.watch(session)

    def _release(self) -> None:
        """Read on from whom we stopped reading while the disk was behind."""
        held, self._sessions.held = self._sessions.held, {}
        for session in held:
            session.held, session.heard_at = False, self._now
            self._sessions.effects.append(Hold(session.peer, held=False))
            self._sessions.watch(session)

    def _speak(self, key: PublicKey) -> None:
        """Write what is due for a peer, as one piece; the next one leaves behind it."""
        session = self._sessions.open.get(key)
        if session is None or not self._is_linked(session):
            return
        if not session.is_free or self.device.link_of(key) != session.link:
            return
        records = self.device.speak(key, self._now, WRITE_BYTES if session.has_spoken else FIRST_WRITE_BYTES)
        if records:
            session.owed = self.device.is_due(key, self._now)
            session.progress_at = self._now
            data = b"".join(records)
            self._sessions.effects.append(Send(session.peer, data, session.owed or len(data) > RECEIPT_BYTES))
            self._sessions.watch(session)

    def _is_linked(self, session: Session) -> bool:
        """Return whether the device still knows of an open connection; one whose peer it has parted from is closed."""
        if self.device.link_terms(session.link) is not None:
            return True
        self._sessions.close(session, Refusal.UNKNOWN_PEER, self._now)
        return False

    # Ends

    def _finish(self, session: Session, reason: Refusal) -> None:
        """Read nothing more of a connection, and close it when the rest of it is on disk and answered."""
        saved_by = self._ticket + 1 if self.device.must_commit else self._ticket
        self._sessions.finish(session, reason, saved_by, self._now)
        assert session.key is not None
        self._may_speak[session.key] = None

    def _has_said_all(self, session: Session) -> bool:
        """Return whether the last of a connection is on disk, and what answers it has left."""
        saved = self._ticket - 1 if self._is_saving else self._ticket
        return session.saved_by <= saved and session.is_free
