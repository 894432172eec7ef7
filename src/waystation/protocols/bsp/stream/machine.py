"""The machine that runs a BSP device over byte streams (plain, bsp+tls, bsp+wss), for nodes and applications.

The relay and the SDK drive it. Inputs are connections and their bytes, commits, time, and the owner's commands. The
machine authenticates peers, cuts their bytes into records for the device, and writes due records. Each peer gets one
write of at most ``WRITE_BYTES`` per event-loop iteration; the next follows once that has left. The device's changes are
one ``Commit`` at a time. Groups, messages and send times are the device's concern.

``session`` is one connection, ``sessions`` the table of them, ``dials`` the peers to dial. After a command to the
device its owner calls ``wake``, then ``take``.

Spec: bsp 5, 11.2, 11.7, 11.8; BSP-STALL, BSP-HOLD.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from waystation.core.commits import Commits
from waystation.core.effects import Effect, Hold, Peer, Send
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket, surplus
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.dials import Dials, kind_of_url
from waystation.protocols.bsp.device.events import DeviceEvent
from waystation.protocols.bsp.device.sync import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.messages import Ack
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.session import HANDSHAKING, Session, State
from waystation.protocols.bsp.stream.handshake import CERTIFICATE_HASH_BYTES, NONCE_BYTES, Acceptor, Dialler
from waystation.protocols.bsp.stream.sessions import PROTOCOL, PeerDown, PeerUp, Sessions
from waystation.protocols.bsp.wire import RecordReader

__all__ = ["PLAIN_LISTENER", "PROTOCOL", "BspMachine", "PeerDown", "PeerUp"]

PLAIN_LISTENER: Final = "plain"
"""The listener for bare records of the one plain peer (BSP-PLAIN)."""
FIRST_WRITE_BYTES: Final = 65_536
"""Most bytes of a write to a peer that has sent nothing on this connection (BSP-FIRST)."""
RECEIPT_BYTES: Final = 16_384
"""Size of a write from which on we ask for a report that it has left: a shorter one leaves at once, or never."""


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
        is_unlimited: Callable[[PublicKey], bool] = lambda _key: False,
        rate_limits: bool = True,
        limits: InForce[BspLimits] | None = None,
    ) -> None:
        """Make a machine without connections; it accepts TLS once it has a certificate.

        Args:
            device: The device; it must know its peers.
            key_pair: The device's identity.
            rng: Source of nonces and jitter; must be unpredictable to peers.
            plain_peer: The one peer of the plain listener; None closes it.
            dials: Addresses of the peers that are dialled.
            admits: Called with the key of each known peer; False rejects it.
            is_unlimited: Called with a key that has proved itself; True lifts its rate.
            rate_limits: Whether the connections of one key are rate-limited.
            limits: How many peers there may be and how often; ``adapt_to_limits`` after they were replaced.

        Raises:
            LocalError: An address has no scheme of ours.
        """
        self.device = device
        self._key_pair = key_pair
        self._rng = rng
        self._plain_peer = plain_peer
        self._admits, self._is_unlimited = admits, is_unlimited
        self._limits = limits or InForce(DEFAULT_LIMITS)
        self._rate_limits = rate_limits
        self._arrivals: dict[PublicKey, TokenBucket] = {}
        """By key of the table of peers."""
        self._certificates: dict[str, bytes] = {}
        self.redials = Dials(rng)
        self._sessions = Sessions(device, key_pair.public, self.redials, self._limits)
        for key, url in (dials or {}).items():
            self.dial(key, url)
        self._may_be_due: dict[PublicKey, None] = {}
        """Peers for whom something may be due."""
        self._now = Instant(0)
        self._retiring = False
        self._commits = Commits()

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Accept a connection of the TLS listener: it gets our hello."""
        self.connect_by(peer, "", now, address)

    def connect_by(self, peer: Peer, endpoint: str, now: Instant, address: str = "") -> None:  # noqa: ARG002 - any address
        """Accept a connection of a listener: the plain one, or one with a certificate."""
        self._now = now
        if endpoint == PLAIN_LISTENER:
            # Spec 5: plain records come from the first byte, of the one peer that the configuration names.
            self._connect_plain(peer, now)
            return
        certificate = self._certificates.get(endpoint)
        # Spec 5: behind a foreign TLS terminator the device must know that certificate's hash, or it refuses.
        if certificate is None:
            self._sessions.reject(peer, Refusal.HANDSHAKE)
            return
        ours = Acceptor(self._key_pair, self._rng.randbytes(NONCE_BYTES), certificate)
        session = Session(peer, "wss" if endpoint else "tls", RecordReader(self.device.profile), now, handshake=ours)
        self._sessions.enter(session, now)
        self._sessions.effects.append(Send(peer, ours.hello()))

    def connect_upstream(self, peer: Peer, name: str, now: Instant, certificate: bytes = b"") -> None:
        """Take a connection that we dialled.

        Args:
            peer: The connection's number.
            name: The peer's key, 64 hexadecimal digits.
            now: Monotonic time.
            certificate: SHA-256 of the certificate that we saw, 32 bytes; empty on a plain connection.
        """
        self._now = now
        key = decode_key_hex(name)
        url = self.redials.url_of(key)
        if url is None:
            self._sessions.reject(peer, Refusal.REPLACED, key)
            return
        kind = kind_of_url(url)
        refusal = self._refusal_of(key)
        # Spec 5: the proof covers the certificate's hash: without one there is nothing to prove.
        if refusal is None and kind != "plain" and len(certificate) != CERTIFICATE_HASH_BYTES:
            refusal = Refusal.HANDSHAKE
        if refusal is not None:
            self._sessions.reject(peer, refusal, key)
            self._sessions.lost(key, refusal.value, now)
            return
        ours = None
        if kind != "plain":
            ours = Dialler(self._key_pair, self._rng.randbytes(NONCE_BYTES), key, certificate)
        began_at = self.redials.began_at(key)
        reader = RecordReader(self.device.profile)
        session = Session(peer, kind, reader, now, handshake=ours, key=key, began_at=began_at)
        self._sessions.enter(session, now)
        if ours is None:
            self._on_open(session)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """Take the report that the peer with the key ``name`` could not be reached."""
        self._now = now
        self._sessions.unreachable(decode_key_hex(name), now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take bytes that arrived on a connection."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is None:
            return
        if session.state in HANDSHAKING:
            data = self._shake_hands(session, data)
        if data and session.state is State.OPEN:
            self._receive_records(session, data)

    def half_closed(self, peer: Peer, now: Instant) -> None:
        """Take a half-close: what is left is stored and written, then we close, too."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is None or session.state is State.ENDING:
            return
        if session.state is State.OPEN:
            self._finish(session, session.reader.finish() or Refusal.HALF_CLOSED)
        else:
            self._sessions.close(session, Refusal.HANDSHAKE, self._now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """Take the end of a connection."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            self._sessions.forget(session, "disconnected", now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Take the report that bytes wait for the peer, or fewer than at the last call."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            session.congested, session.progress_at = True, now
            self._sessions.watch(session)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Take the report that no byte waits for the peer."""
        self._now = now
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            session.congested = session.owed = False
            if session.key is not None:
                # BSP-LEFT: the intervals of a write begin when its last byte has left.
                if self.device.link_of(session.key) == session.link:
                    self.device.drained(session.key, now)
                self._may_be_due[session.key] = None

    def committed(self, ticket: int, now: Instant) -> None:
        """Take the report that the device's changes are on disk."""
        self._now = now
        self._commits.committed(ticket)
        self.device.committed(now)
        # BSP-HOLD: the disk has caught up.
        if self.device.unsaved_bytes <= self._limits.now.unsaved_bytes:
            self._release()

    def not_committed(self, ticket: int, now: Instant) -> None:
        """Take the report that the store refused: nothing is acknowledged, and all of it is asked for again."""
        self._commits.not_committed(ticket, now)
        self.device.not_committed()

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer without a question; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")

    def wake(self, now: Instant) -> None:
        """Handle deadlines, dials, and records that have become due."""
        self._now = now
        for number in self._sessions.alarms.due(now):
            session = self._sessions.by_peer[Peer(number)]
            refusal = session.overdue(now)
            if refusal is None:
                self._sessions.watch(session)
            else:
                self._sessions.close(session, refusal, self._now)
        self.device.wake(now)
        self._commits.wake(now)
        if not self._retiring:
            self._sessions.effects += self.redials.begin(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = [self._sessions.alarms.next_at(), self.device.deadline(), self._commits.again_at]
        if not self._retiring:
            times.append(self.redials.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call: a commit, then due records, then closes."""
        device = self.device
        # One commit at a time; what changes meanwhile gathers for the next.
        if self._commits.may_begin and (device.must_commit or self._commits.is_refused):
            self._sessions.effects.append(self._commits.begin(device.changes()))
        for key in device.take_dirty():
            self._may_be_due[key] = None
        if self._may_be_due:
            may_speak, self._may_be_due = self._may_be_due, {}
            for key in may_speak:
                self._send_due(key)
        for session in list(self._sessions.ending):
            if self._has_sent_all(session):
                assert session.reason is not None
                self._sessions.close(session, session.reason, self._now)
        effects, self._sessions.effects = self._sessions.effects, []
        return effects

    def take_events(self) -> list[DeviceEvent | PeerUp | PeerDown]:
        """Return and forget the events since the last call, connections first."""
        events, self._sessions.events = self._sessions.events, []
        return [*events, *self.device.take_events()]

    # Commands

    def use_certificate(self, sha256: bytes | None, endpoint: str = "") -> None:
        """Accept connections of a listener whose TLS shows the certificate with this hash, or no more (None).

        Args:
            sha256: 32 bytes: SHA-256 of the certificate (DER); also that of a TLS proxy before a listener of ours.
            endpoint: "" is bsp+tls, any other except the plain one is bsp+wss.
        """
        assert endpoint != PLAIN_LISTENER
        if sha256 is None:
            self._certificates.pop(endpoint, None)
        else:
            assert len(sha256) == CERTIFICATE_HASH_BYTES
            self._certificates[endpoint] = sha256

    def dial(self, key: PublicKey, url: str) -> None:
        """Keep a connection to a peer from now on, or dial it at another address.

        Raises:
            LocalError: The address has no scheme of ours.
        """
        self.redials.add(key, url, is_connected=key in self._sessions.open)

    def undial(self, key: PublicKey) -> None:
        """Dial a peer no more; an open connection stays."""
        self.redials.remove(key)

    def connected(self) -> dict[PublicKey, str]:
        """Return the kind of connection of each peer that has one."""
        return {key: session.kind for key, session in self._sessions.open.items()}

    def retire(self) -> None:
        """Stop to dial, accept and take new records, so that everything received comes to its end.

        Acknowledgements are still taken, as they spare the peer a repetition; the rest it sends again (BSP-DRAIN).
        """
        self._retiring = True

    def settled(self) -> bool:
        """Return whether everything received is on disk and no connection is ending."""
        return not (self.device.must_commit or not self._commits.is_settled or self._sessions.ending)

    def shut(self, now: Instant) -> None:
        """Close every connection, and accept no more."""
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

    def review(self, now: Instant) -> None:
        """Close the connections of every key that is not admitted any more."""
        self._now = now
        for session in list(self._sessions.by_peer.values()):
            if session.key is not None and session.state is not State.ENDING and not self._admits(session.key):
                self._sessions.close(session, Refusal.IDENTITY_BANNED, now)

    def adapt_to_limits(self) -> None:
        """Hold peers to the limits that have been replaced; connections that stand stay."""
        limits = self._limits.now
        self.device.receiver.messages_max = limits.messages
        for arrivals in self._arrivals.values():
            arrivals.change(limits.arrivals_per_second, limits.arrivals_burst)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {
            "connections": len(self._sessions),
            "handshakes": len(self._sessions.handshakes),
            "connected": len(self._sessions.open),
            "ending": len(self._sessions.ending),
            "dialled": len(self.redials),
            **self.device.sizes(),
        }

    # Opening

    def _connect_plain(self, peer: Peer, now: Instant) -> None:
        key = self._plain_peer
        refusal = Refusal.UNKNOWN_PEER if key is None else self._refusal_of(key)
        if refusal is not None:
            self._sessions.reject(peer, refusal, key)
            return
        session = Session(peer, "plain", RecordReader(self.device.profile), now, key=key)
        self._sessions.enter(session, now)
        self._on_open(session)

    def _refusal_of(self, key: PublicKey) -> Refusal | None:
        """Return why the holder of a key is rejected, None when it is accepted."""
        # Spec 5: status 1: the key is not in our table.
        if not self.device.knows(key):
            return Refusal.UNKNOWN_PEER
        # A banned peer gets the status of an unknown one (BSP-TOLD).
        if not self._admits(key):
            return Refusal.IDENTITY_BANNED
        if self._retiring:
            return Refusal.DRAINING
        # Spec 9: beyond as many connections: busy. A peer that replaces its own connection takes no new place.
        is_full = len(self._sessions.open) >= self._limits.now.connected and key not in self._sessions.open
        return Refusal.BUSY if is_full else None

    def _arrival_refusal(self, key: PublicKey) -> Refusal | None:
        """Return why a peer that has proved its key is rejected now, None when it is accepted."""
        refusal = self._refusal_of(key)
        if refusal is None and self._rate_limits and not self._is_unlimited(key):
            arrivals = self._arrivals.get(key)
            if arrivals is None:
                limits = self._limits.now
                # The table of buckets is bounded like the connections; the oldest entry is forgotten.
                for _ in range(surplus(len(self._arrivals) + 1, limits.connected)):
                    del self._arrivals[next(iter(self._arrivals))]
                arrivals = self._arrivals[key] = TokenBucket(
                    limits.arrivals_per_second, limits.arrivals_burst, self._now
                )
            # BSP-ARRIVALS: each makes us go through all that the peer lacks; beyond its rate: busy.
            if not arrivals.take(self._now):
                return Refusal.BUSY
        return refusal

    def _shake_hands(self, session: Session, data: bytes) -> bytes:
        """Take bytes of a handshake; return those that came after it."""
        step = session.shake_hands(data, self._arrival_refusal)
        if step.reply:
            self._sessions.effects.append(Send(session.peer, step.reply))
        if step.refusal is not None:
            self._sessions.close(session, step.refusal, self._now)
        elif session.state is State.OPEN:
            self._on_open(session)
        return step.rest

    def _on_open(self, session: Session) -> None:
        """Open a session whose other side has proved its key."""
        key = session.key
        assert key is not None
        refusal = self._refusal_of(key)  # the peer may have been removed or banned since we dialled
        if refusal is not None:
            self._sessions.close(session, refusal, self._now)
        elif self._sessions.establish(session, self._now):
            self._may_be_due[key] = None
            # Spec 7: profile briar writes VERSIONS first, on both sides.
            if self.device.profile.first_record:
                self._sessions.effects.append(Send(session.peer, self.device.profile.first_record))

    # Records

    def _receive_records(self, session: Session, data: bytes) -> None:
        key = session.key
        assert key is not None
        device, now, link = self.device, self._now, session.link
        if not self._is_linked(session):
            return
        session.received_at = now
        session.has_sent = True
        records = session.reader.feed(data)
        if self._retiring:
            # BSP-DRAIN: while a node stops it takes acknowledgements only.
            records = [record for record in records if isinstance(record, Ack)]
        for record in records:
            device.receive(key, record, now, link)
        if session.reader.refusal is not None:
            # Spec 1: earlier records count; they are stored and acknowledged before the connection closes.
            self._finish(session, session.reader.refusal)
            return
        # Spec 9: above 3 MiB that are not on disk, 1 KiB for each message besides its body, a sender is not read.
        if device.unsaved_bytes > self._limits.now.unsaved_bytes and not session.held:
            session.held = True
            self._sessions.held[session] = None
            self._sessions.effects.append(Hold(session.peer, held=True))
        self._sessions.watch(session)

    def _release(self) -> None:
        """Read on from connections that we held while the disk was behind."""
        held, self._sessions.held = self._sessions.held, {}
        for session in held:
            session.held, session.received_at = False, self._now
            self._sessions.effects.append(Hold(session.peer, held=False))
            self._sessions.watch(session)

    def _send_due(self, key: PublicKey) -> None:
        """Write the records that are due for a peer, as one piece; the next one follows when it has left."""
        session = self._sessions.open.get(key)
        if session is None or not self._is_linked(session):
            return
        # Spec 9: one write at a time; the rest waits until it has left.
        if not session.is_free or self.device.link_of(key) != session.link:
            return
        # BSP-FIRST: a peer that connects and sends nothing gets 64 KiB a write, then 512.
        records = self.device.send_due(key, self._now, WRITE_BYTES if session.has_sent else FIRST_WRITE_BYTES)
        if records:
            session.owed = self.device.is_due(key, self._now)
            session.progress_at = self._now
            data = b"".join(records)
            self._sessions.effects.append(Send(session.peer, data, session.owed or len(data) > RECEIPT_BYTES))
            self._sessions.watch(session)

    def _is_linked(self, session: Session) -> bool:
        """Return whether the device still has the link of a connection; a connection of a removed peer is closed."""
        if self.device.link_terms(session.link) is not None:
            return True
        self._sessions.close(session, Refusal.UNKNOWN_PEER, self._now)
        return False

    # Closing

    def _finish(self, session: Session, reason: Refusal) -> None:
        """Read nothing more of a connection, and close it when the rest of it is on disk and answered."""
        # Spec 2: ACK means stored: the last acknowledgements leave only after the commit.
        saved_by = self._commits.ticket + (1 if self.device.must_commit else 0)
        self._sessions.finish(session, reason, saved_by, self._now)
        assert session.key is not None
        self._may_be_due[session.key] = None

    def _has_sent_all(self, session: Session) -> bool:
        """Return whether the last records of a connection are on disk, and their answers have left."""
        return session.saved_by <= self._commits.saved and session.is_free
