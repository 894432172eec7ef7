"""Registration: I_AM binds an identity and its commits to a connection.

The relay checks the signature over the connection's nonce, then the operator's list, then the proof of ``binding`` if
it is required. Only then the connection replaces an older one of the same identity, and its commits take effect. The
module also handles OPTIONS, BIND and the frames that add or revoke commits.

Spec: Bhumi v2 5.2 and 6.4; BHUMI-5, BHUMI-8, BHUMI-26, BHUMI-M, BHUMI-X, BHUMI-A7 to BHUMI-A9.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.facts import PeerIdentified
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.extension_messages import IAmOk
from waystation.protocols.bhumi.messages import Feature, FrameType, IAm, Options
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.binding import Binding
from waystation.protocols.bhumi.relay.connections import PROTOCOL, Connections
from waystation.protocols.bhumi.relay.deliveries import Deliveries
from waystation.protocols.bhumi.relay.negotiated import Negotiated
from waystation.protocols.bhumi.session import Session

__all__ = ["Registration"]

_COUNT_MAX: Final = 0xFFFF  # of I_AM_OK's fields


class Registration:
    """Takes OPTIONS, I_AM, BIND and what changes commits."""

    def __init__(
        self,
        connections: Connections,
        deliveries: Deliveries,
        binding: Binding | None,
        offered: Feature,
        response_bytes_max: int,
        admits: Callable[[PublicKey], bool],
    ) -> None:
        """Prepare.

        Args:
            connections: Who is here.
            deliveries: Gets the responses that I_AM carries.
            binding: Challenges; None for a relay without a key.
            offered: Features that this relay accepts.
            response_bytes_max: Largest carried response.
            admits: Asked with each identity that proved itself; False closes the connection.
        """
        self._connections = connections
        self._deliveries = deliveries
        self._binding = binding
        self._offered = offered
        self._response_bytes_max = response_bytes_max
        self._admits = admits
        self.on_identified: list[Callable[[Session, Instant], None]] = []
        """Called with a connection whose identity counts from now on."""
        if binding is not None:
            connections.on_end.append(lambda session, _now: binding.forget(session))

    def on_options(self, session: Session, payload: bytes, _now: Instant) -> None:
        """Answer with the accepted subset, and with the challenge behind it."""
        # Spec 5: the answer names the accepted subset; a later OPTIONS replaces the earlier one.
        accepted = wire.decode_options(payload).features & self._offered
        if session.negotiated is None:
            session.negotiated = Negotiated(accepted)
        session.negotiated.features = accepted
        session.with_preimage = session.always_preimage or Feature.DELIVER_WITH_PREIMAGE in accepted
        # Spec 5: the answer leaves before everything else but HELLO.
        self._connections.reply(session, wire.encode(Options(accepted)))
        # BHUMI-BINDING: the challenge leaves right after the answer to OPTIONS.
        challenge = self._binding.challenge(session) if self._binding is not None else None
        if challenge is not None:
            self._connections.reply(session, challenge)

    def on_i_am(self, session: Session, payload: bytes, now: Instant) -> None:
        """Bind the connection to an identity, or refresh it."""
        if session.bucket is not None:
            session.bucket.take(now)
        message = wire.decode_i_am(payload)
        waiting = session.negotiated.waiting if session.negotiated is not None else None
        known = waiting.identity if waiting is not None else session.identity
        # BHUMI-8: one connection, one identity.
        if known is not None and known != message.identity:
            self._connections.close(session, Refusal.OTHER_IDENTITY, now)
        # Bhumi v2 5.2: the signature covers this connection's nonce, so a replayed I_AM fails (BHUMI-A9).
        elif not verify(message.identity, wire.signed_bytes(session.nonce, message.identity), message.signature):
            self._connections.close(session, Refusal.BAD_SIGNATURE, now)
        # The operator's list is asked after the proof: a ban must not be learned by guessing keys.
        elif not self._admits(message.identity):
            self._connections.close(session, Refusal.IDENTITY_BANNED, now)
        # BHUMI-BINDING: where binding is demanded, nothing counts before its proof.
        elif self._binding is None or not self._binding.must_wait(session):
            self._accept(session, message, set(message.commits), now)
        elif self._binding.wait(session, message, now):
            self._connections.arm(session)
        else:
            self._connections.close(session, Refusal.BINDING_MISSING, now)

    def on_bind(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take the proof of an identity; whoever proves wrongly is not who they say."""
        assert self._binding is not None
        # Spec 5: signed over `bhumi-bind/1`, the relay's key, its nonce and the id52.
        if not self._binding.proves(session, payload):
            self._connections.close(session, Refusal.BAD_BINDING, now)
            return
        # A proof without a waiting I_AM only marks the connection as proven.
        message = self._binding.take_waiting(session)
        if message is None:
            return
        if self._admits(message.identity):  # the operator may have said no meanwhile
            self._accept(session, message, session.commits, now)
        else:
            self._connections.close(session, Refusal.IDENTITY_BANNED, now)

    def on_update_commits(self, session: Session, payload: bytes, now: Instant) -> None:
        """Add commits up to the limit. BHUMI-M and BHUMI-C4."""
        # Spec 2: UPDATE_COMMITS adds to the set and has no answer.
        added = wire.decode_update_commits(payload).commits
        if not self._has_commits(session):
            self._connections.note_refused(session, Refusal.COMMITS_WITHOUT_IDENTITY)
            return
        ignored, count_before = 0, len(session.commits)
        commits_max = self._connections.limits.now.commits_per_identity
        # BHUMI-C4: the excess is dropped and counted, the connection stays; the original's devices never exceed it.
        for commit in added:
            if commit in session.unanswered:  # BHUMI-C9
                continue
            if len(session.commits) < commits_max:
                session.commits.add(commit)
            elif commit not in session.commits:
                ignored += 1
        self._deliveries.listed_anew(session, now)
        if ignored:
            self._connections.note_refused(session, Refusal.COMMITS_OVER_LIMIT, ignored)
        self._resize(session, count_before, now)

    def on_revoke_commits(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take commits out of the set; those that are not in it are no news."""
        revoked = extension_wire.decode_revoke_commits(payload).revoked
        if not self._has_commits(session):
            self._connections.note_refused(session, Refusal.COMMITS_WITHOUT_IDENTITY)
            return
        count_before = len(session.commits)
        session.commits.difference_update(revoked)
        self._resize(session, count_before, now)

    def _has_commits(self, session: Session) -> bool:
        """Return whether an I_AM has named commits, be it that it still waits for its proof."""
        return session.identity is not None or (self._binding is not None and self._binding.holds(session))

    def _resize(self, session: Session, count_before: int, now: Instant) -> None:
        """Count commits that came or left while their I_AM waits; what is too much closes, as a large I_AM does."""
        binding = self._binding
        if binding is None or not binding.holds(session):
            return
        if not binding.resize(session, len(session.commits) - count_before):
            self._connections.close(session, Refusal.BINDING_MISSING, now)

    def _accept(self, session: Session, message: IAm, commits: set[bytes], now: Instant) -> None:
        """Let an identity that has proved all it must take its place."""
        # BHUMI-A7: the last valid I_AM wins; the older connection closes and its exchanges end with 4.
        former = self._connections.bindings.get(message.identity)
        if former is not None and former is not session:
            self._connections.close(former, Refusal.REPLACED, now)
        is_new = session.identity is None
        if is_new:
            self._connections.outbox.append(PeerIdentified(PROTOCOL, session.peer, message.identity))
        session.identity = message.identity
        session.move(FrameType.I_AM)
        # BHUMI-C5: numbers outlive the connection they were sent on.
        session.sent = self._deliveries.exchanges.sent_to(message.identity)
        # Spec 3.2: I_AM with the same id52 replaces its commits.
        session.commits = commits
        # BHUMI-C9: what was delivered on this very connection is under way there; naming it again re-arms nothing.
        commits.difference_update(session.unanswered)
        self._connections.bindings[message.identity] = session
        kept_count = self._keep_carried(session, message, now)
        self._deliveries.listed_anew(session, now)
        # BHUMI-IAMOK: after every accepted I_AM once bit 5 is agreed on.
        if session.negotiated is not None and Feature.I_AM_OK in session.negotiated.features:
            confirmed = IAmOk(min(len(session.commits), _COUNT_MAX), min(kept_count, _COUNT_MAX))
            self._connections.reply(session, extension_wire.encode_extension(confirmed))
        if is_new:
            for on_identified in self.on_identified:
                on_identified(session, now)

    def _keep_carried(self, session: Session, message: IAm, now: Instant) -> int:
        """Fill the cache from I_AM; the exchange of each kept response is done, so its commit goes (BHUMI-C3)."""
        cache = self._deliveries.cache
        # Spec 3.8: I_AM may carry responses that an earlier connection could not deliver.
        uploaded = cache.keep_uploaded(message.identity, message.responses, self._response_bytes_max, now)
        # BHUMI-C3: a carried answer ends its exchange, so its commit must not permit another.
        session.commits.difference_update(sha256(preimage) for preimage in uploaded.done)
        for preimage in uploaded.done:
            self._deliveries.on_carried(session, preimage, now)
        for refusal, times in uploaded.dropped.items():
            self._connections.note_refused(session, refusal, times)
        return len(message.responses) - sum(uploaded.dropped.values())
