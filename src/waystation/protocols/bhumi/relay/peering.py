"""Peering: manages the connections to other relays, dialled and accepted, that gossip uses.

An identified connection that sends GOSSIP becomes a contact; a dialled one becomes a contact once it is established.
``gossip`` treats both alike. This module requests the dials that ``links`` chooses and passes frames on. It closes one
of two links between the same relays.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Peer
from waystation.core.facts import PeerLeft, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client.base import State as LinkState
from waystation.protocols.bhumi.extension_messages import BindChallenge, RelayAd
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.relay.connections import PROTOCOL, Connections
from waystation.protocols.bhumi.relay.dialled_link import Linked, RelayLink
from waystation.protocols.bhumi.relay.gossip import Gossip
from waystation.protocols.bhumi.relay.links import Links
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.session import Session, State
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.rules.twins import Twin, Twins

__all__ = ["Peering"]

_UNCOUNTED: Final = (Refusal.SHUTDOWN, Refusal.DOUBLE_LINK, Refusal.OWN_KEY)


class Peering:
    """Links, contacts and gossip of one relay."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        key_pair: KeyPair,
        settings: BhumiSettings,
        rng: random.Random,
        *,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
    ) -> None:
        """Begin alone; the operator's peers are dialled at the first ``wake``."""
        self._connections = connections
        self._limits = limits = connections.limits
        self._outbox = connections.outbox
        self._records = records
        self._key_pair = key_pair
        self._rate_limits = rate_limits
        self._admits = admits
        self.gossip = Gossip(records, rng, connections.outbox, limits, rate_limits=rate_limits)
        self._links = Links(
            key_pair.public, rng, settings.peers, limits, settings.advertise, dials_private=settings.dials_private
        )
        self._by_peer: dict[Peer, RelayLink] = {}
        self._alarms = Alarms()
        self._inbound: dict[bytes, Session] = {}
        self._retiring = False
        self.twins = Twins()
        self._now = Instant(0)
        connections.on_end.append(self._on_end)

    # Connections that we dialled

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection to the address ``name`` stands."""
        link = self._by_peer[peer] = RelayLink(self._key_pair, name, self._judge)
        link.connect(peer, now)
        self._arm(link)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The address could not be reached."""
        self._links.unreachable(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> bool:
        """Take bytes for a link; False when the connection is none of ours."""
        link = self._by_peer.get(peer)
        if link is None:
            return False
        self._now = now
        link.receive(peer, data, now)
        events = link.take_events()
        self._settle(link, now)  # what it says of itself leaves before any gossip does
        for event in events:
            if link.state is LinkState.CLOSED:
                break
            # A frame that closed the link ends the turn: what came after it is not looked at.
            if isinstance(event, Linked):
                self._stand(link, now)
            else:
                self._on_gossip_frame(link, event.payload, now)
        self._settle(link, now)
        return True

    def disconnect(self, peer: Peer, now: Instant) -> bool:
        """Note the end of a link; False when the connection is none of ours."""
        link = self._by_peer.get(peer)
        if link is not None:
            link.disconnect(peer, now)
            self._forget(link, "disconnected", now)
        return link is not None

    def congested(self, peer: Peer, now: Instant) -> bool:
        """Note that bytes wait; False when the connection is none of ours."""
        link = self._by_peer.get(peer)
        if link is not None:
            link.congested(peer, now)
            self._arm(link)
        return link is not None

    def drained(self, peer: Peer, now: Instant) -> bool:
        """Note that no byte waits; False when the connection is none of ours."""
        link = self._by_peer.get(peer)
        if link is not None:
            link.drained(peer, now)
        return link is not None

    # Connections that others dialled

    def on_gossip(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take a GOSSIP frame of an identified connection; the first one makes it a contact."""
        negotiated, key = session.negotiated, session.identity
        assert negotiated is not None
        if key is None:
            self._connections.note_refused(session, Refusal.GOSSIP_WITHOUT_IDENTITY)
            return
        # BHUMI-DOUBLE: whoever proves our own key is ourselves, dialled by a roundabout address.
        if key == self._key_pair.public:
            self._connections.close(session, Refusal.OWN_KEY, now)
            return
        if negotiated.contact is None:
            # BHUMI-FLOOD: 64 relays in all and 4 of one host, so that one host never takes every place.
            if not self._has_place_for(session):
                self._connections.close(session, Refusal.CONTACTS_FULL, now)
                return
            negotiated.contact = self.gossip.make_contact(
                session, key, "", now, host=session.host, limited=session.limited
            )
            self._inbound[key] = session
            self.gossip.join(session, negotiated.contact, now)
            self._close_double(key, now)
        news_before = len(self._records.neighbours)
        # BHUMI-STRIKE.
        if not self.gossip.receive(negotiated.contact, payload, now):
            self._connections.close(session, Refusal.RECORD_STRIKES, now)
        self._look_for_news(news_before, now)

    def on_new_record(self, tagged: bytes, record: object, now: Instant) -> None:
        """Pass on a record that came from its owner, or that nobody knew yet."""
        self.gossip.spread(tagged, None)
        if isinstance(record, RelayAd):
            self._links.stir(now)

    # Time and commands

    def discovered(self, address: str, now: Instant, relay_id: PublicKey | None) -> None:
        """Note a relay of the local network."""
        self._links.add_local(address, relay_id, now)

    def wake(self, now: Instant) -> None:
        """Look after links and rounds, and dial."""
        for number in self._alarms.due(now):
            link = self._by_peer.get(Peer(number))
            if link is not None:
                link.wake(now)
                self._settle(link, now)
        self.gossip.wake(now)
        look_at = self._links.deadline()
        # Adverts are read only when a dial may be due: the table has up to 1,024 of them.
        if not self._retiring and look_at is not None and look_at <= now:
            live = self._records.neighbours.live(self._records.now_s(now))
            self._outbox.extend(self._links.dials(live, self._inbound.keys(), now))

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = [self._alarms.next_at(), self.gossip.deadline()]
        if not self._retiring:
            times.append(self._links.deadline())
        return min((at for at in times if at is not None), default=None)

    def use_limits(self) -> None:
        """Give allowances their size anew: the limits have changed."""
        self.gossip.use_limits()
        self._links.use_limits()

    def retire(self) -> None:
        """Dial nobody any more."""
        self._retiring = True

    def shut(self, now: Instant) -> None:
        """Close every link."""
        for link in list(self._by_peer.values()):
            link.shut(Refusal.SHUTDOWN)
            self._settle(link, now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the links with a relay."""
        for link in list(self._by_peer.values()):
            if link.relay_id == identity:
                link.shut(Refusal.IDENTITY_BANNED)
                self._settle(link, now)

    def relay_ids(self) -> set[PublicKey]:
        """Return the relays that we have dialled and that say who they are."""
        return {link.relay_id for link in self._by_peer.values() if link.relay_id is not None}

    def configured(self) -> list[str]:
        """Return the operator's addresses."""
        return self._links.configured()

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {
            "links": len(self._by_peer),
            "contacts_in": len(self._inbound),
            **self.gossip.sizes(),
            **self._links.sizes(),
        }

    def view(self, now: Instant) -> dict[str, Any]:
        """Return contacts and neighbours as plain JSON values."""
        now_s = self._records.now_s(now)
        contacts = [
            {
                "key": (contact.key or b"").hex(),
                "address": contact.address,
                "dialled": bool(contact.address),
                "up_s": (now - contact.since) // MICROSECONDS_PER_SECOND,
                "records_in": contact.records_in,
                "records_out": contact.records_out,
            }
            for contact in self.gossip.contacts.values()
        ]
        neighbours = [
            {
                "key": neighbour.advert.relay_id.hex(),
                "address": neighbour.advert.address,
                "ends_in_s": neighbour.ends_at_s - now_s,
            }
            for neighbour in self._records.neighbours.live(now_s)
        ]
        return {"contacts": contacts, "neighbours": neighbours}

    # Links

    def _has_place_for(self, session: Session) -> bool:
        """Return whether one more relay may gossip with us that has dialled us."""
        if len(self._inbound) >= self._limits.now.contacts:
            return False
        # `[limits] enabled = false` lifts ceilings per address, and an unknown address shares with nobody.
        if not (self._rate_limits and session.limited and session.host):
            return True
        # BHUMI-FLOOD: one host must not take all places.
        of_host = sum(other.host == session.host for other in self._inbound.values())
        return of_host < self._limits.now.contacts_per_address

    def _stand(self, link: RelayLink, now: Instant) -> None:
        self._links.stands(link.name, now)
        self.gossip.join(link, self.gossip.make_contact(link, link.relay_id, link.name, now), now)

    def _on_gossip_frame(self, link: RelayLink, payload: bytes, now: Instant) -> None:
        news_before = len(self._records.neighbours)
        try:
            if not self.gossip.receive(self.gossip.contacts[link], payload, now):
                link.shut(Refusal.RECORD_STRIKES)
        except MalformedError as error:
            link.shut(error.refusal)
        self._look_for_news(news_before, now)

    def _look_for_news(self, neighbours_before: int, now: Instant) -> None:
        """Dial soon when a relay has become known that was not."""
        if len(self._records.neighbours) > neighbours_before:
            self._links.stir(now)

    def _settle(self, link: RelayLink, now: Instant) -> None:
        """Carry out what a link asks for, and forget it when it has closed."""
        for effect in link.take():
            if isinstance(effect, Close):
                assert isinstance(effect.reason, Refusal)
                if effect.reason not in _UNCOUNTED:
                    self._outbox.append(Refused(PROTOCOL, link.relay_id, effect.reason.value))
                self._forget(link, effect.reason.value, now)
                self._outbox.append(effect._replace(abort=effect.reason is Refusal.WRITE_TIMEOUT))
            else:
                self._outbox.append(effect)
        if link.state is not LinkState.CLOSED:
            self._arm(link)

    def _forget(self, link: RelayLink, reason: str, now: Instant) -> None:
        del self._by_peer[link.peer]
        self._alarms.cancel(link.peer)
        self.gossip.leave(link)
        self._links.failed(link.name, now)
        self._outbox.append(PeerLeft(PROTOCOL, link.peer, None, reason))

    def _arm(self, link: RelayLink) -> None:
        at = link.deadline()
        if at is not None:
            self._alarms.set_by(link.peer, at)

    def _judge(self, name: str, challenge: BindChallenge) -> Refusal | None:
        relay_id = challenge.relay_id
        if not self._admits(relay_id):
            return Refusal.IDENTITY_BANNED
        # NODE-TWIN: the operator's address is dialled again, since the other node may get a key of its own.
        if relay_id == self._key_pair.public and name in self._links.configured() and not self._has_sent(challenge):
            self.twins.note(Twin(relay_id, (name,)), self._now)
            return Refusal.OWN_KEY
        standing = [link.name for link in self._by_peer.values() if link.stands]
        # BHUMI-LINK: a key that is only claimed never stands in the way of a better-named address.
        return self._links.judge(name, relay_id, standing, relay_id in self._inbound)

    def _has_sent(self, challenge: BindChallenge) -> bool:
        """Return whether a challenge is ours, so that we have dialled ourselves; O(sessions), when it names our key."""
        sessions = self._connections.sessions.values()
        return any(each.negotiated is not None and each.negotiated.challenge == challenge for each in sessions)

    def _close_double(self, key: PublicKey, now: Instant) -> None:
        """Close our links with a relay that has dialled us and proved its key, if that is the smaller one."""
        # BHUMI-DOUBLE: the link that the smaller key dialled stays; the other side closes its own.
        if key > self._key_pair.public:
            return
        for link in list(self._by_peer.values()):
            if link.relay_id == key:
                link.shut(Refusal.DOUBLE_LINK)
                self._settle(link, now)

    def _on_end(self, session: Session, now: Instant) -> None:
        assert session.state is State.CLOSED
        if session.negotiated is not None and session.negotiated.contact is not None:
            self.gossip.leave(session)
            key = session.identity
            if key is not None and self._inbound.get(key) is session:
                del self._inbound[key]
                self._links.stir(now)
