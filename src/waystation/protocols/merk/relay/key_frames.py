"""Handles the relay's frames about agreement keys: KEY_ADVERT publishes one, KEY_QUERY asks, KEY_UNKNOWN denies.

The relay passes these frames from clients and other nodes; ``key_directory`` stores adverts and open questions. A
sender needs the recipient's agreement key before it can encrypt. Spec: specs/merk.md 7, 10.2.
"""

from waystation.core.instant import Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import KeyAdvert, KeyQuery, KeyUnknown
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.key_directory import KeyDirectory, Question
from waystation.protocols.merk.relay.mailboxes import Mailboxes
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.relay.presences import WallClock
from waystation.protocols.merk.relay.routing import Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import Session, State

__all__ = ["KeyFrames"]


class KeyFrames:
    """Takes frames about agreement keys, and answers whoever asked."""

    def __init__(
        self,
        keys: KeyDirectory,
        sessions: Sessions,
        mesh: Mesh,
        routing: Routing,
        clock: WallClock,
        boxes: Mailboxes,
    ) -> None:
        """Bind the parts of one relay; see ``machine.MerkRelay``."""
        self._boxes = boxes
        self._keys = keys
        self._sessions = sessions
        self._mesh = mesh
        self._routing = routing
        self._clock = clock
        self.is_retiring = False
        """Whether peers are asked no more."""

    def on_advert(self, session: Session, advert: KeyAdvert, now: Instant) -> None:
        """Keep what a client says about its own key; take what a peer says about a key that it was asked for."""
        if session.state is State.CLIENT:
            # Spec 10.2: an advert is taken from its owner's connection only, and not from the future.
            is_own = advert.key == session.identity
            if not (is_own and wire.is_advert_valid(advert) and self._keys.keep(advert, self._clock.ms(now))):
                self._sessions.strike(session, Refusal.BAD_ADVERT, now)
            else:
                self._boxes.advertised(advert)
                self._demand_proof(advert.key, now)
        elif self._sessions.is_peer(session, now):
            # Spec 10.2: from a peer only what it was asked for.
            if not self._keys.expects(advert.key, session):
                self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)
                return
            valid = wire.is_advert_valid(advert)
            if not valid:
                self._sessions.strike(session, Refusal.BAD_ADVERT, now)
            else:
                self._keys.note_able(advert.key)
                self._demand_proof(advert.key, now)
            if self._keys.expects(advert.key, session):  # the strike may have ended the connection
                self.answer(self._keys.answered(advert.key, session, advert if valid else None))

    def _demand_proof(self, key: bytes, now: Instant) -> None:
        """Take a key that is known as able from whoever holds it by the challenge alone, until AUTH."""
        # MERK-PROVED: whoever passes a challenge on could have this session, and the advert is for everybody to copy.
        holder = self._routing.clients.get(key)
        if holder is not None and not holder.is_proved:
            self._routing.left(holder, now)
            self._sessions.demand_proof(holder, now)

    def on_query(self, session: Session, query: KeyQuery, now: Instant) -> None:
        """Answer a peer with what we hold; for a client ask the peers as well, unless the key's owner is here."""
        held = self._keys.held(query.key)
        if session.state is not State.CLIENT:
            if self._sessions.is_peer(session, now):
                self._sessions.say(session, held or KeyUnknown(query.key))
            return
        nodes = list(self._mesh.links.values())
        # Spec 10.2: peers are asked, unless the key's owner is connected here and its advert is held.
        if self.is_retiring or not nodes or (held is not None and query.key in self._routing.clients):
            self._sessions.say(session, held or KeyUnknown(query.key))
            return
        joined, question = self._keys.ask(query.key, session, nodes, now)
        if question is not None:
            for node in question.open:
                self._sessions.say(node, query)
        if not joined:
            self._sessions.note(session, Refusal.KEY_QUESTIONS)
            self._sessions.say(session, held or KeyUnknown(query.key))

    def on_unknown(self, session: Session, answer: KeyUnknown, now: Instant) -> None:
        """Note that a peer that was asked does not know a key."""
        if not self._sessions.is_peer(session, now, Refusal.UNASKED_ANSWER):
            return
        if self._keys.expects(answer.key, session):
            self.answer(self._keys.answered(answer.key, session, None))
        else:
            self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)

    def answer(self, question: Question | None) -> None:
        """Answer the askers of a question that is over."""
        if question is not None:
            for asker in question.askers:
                self._sessions.say(asker, question.best or KeyUnknown(question.key))
