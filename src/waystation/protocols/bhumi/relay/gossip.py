"""Gossip: spreads signed records (presences and adverts) among relays.

A round lasts about 30 s. At its start three contacts are drawn, and they get what the previous round received. During
the round they get each new record at the end of the event-loop iteration. A record is sent on only once and never back
to its source, so loops end (BHUMI-SEEN). A relay that joins asks for a sample of known records.

A contact that does not read gets nothing until it has read what it was sent. It gets missed records in a later round or
never; presences are only hints.

Spec: Bhumi v2 7.2; BHUMI-X, BHUMI-GOSSIP, BHUMI-RUMOUR, BHUMI-A20.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from waystation.core.effects import Effect, Send
from waystation.core.facts import Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket, surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.extension_wire import encode_gossip, encode_tagged, gossip_cost, split_gossip
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.connections import PROTOCOL
from waystation.protocols.bhumi.relay.gossip_peer import Carrier, Contact
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.wire import EXTENSION_FRAME_BYTES_MAX

__all__ = ["CONTACTS_ENOUGH", "FANOUT", "ROUND_MS", "SAMPLE_RECORDS", "STRIKING", "Gossip"]

FANOUT: Final = 3  # specs/bhumi.md 5
ROUND_MS: Final = 30_000  # spec 5, gossip
ROUND_JITTER_MS: Final = 3_000  # spec 5: 10 %
CONTACTS_ENOUGH: Final = 8  # BHUMI-RUMOUR
"""A relay with fewer asks one of them for a sample in each round."""
SAMPLE_RECORDS: Final = 400  # a frame of 64 KiB holds 458 presences
STRIKING: Final = (Refusal.RECORD_TTL, Refusal.RECORD_SIGNATURE)
"""What no honest relay passes on. Clocks differ, and tables and rules too, so nothing else counts against a contact."""

_COUNT_BYTES: Final = 2  # u16 at the head of GOSSIP
_ASK: Final = encode_gossip([])


class Gossip:
    """The contacts of one relay and what is on its way to them."""

    def __init__(
        self,
        records: Records,
        rng: random.Random,
        outbox: list[Effect],
        limits: InForce[BhumiLimits],
        *,
        rate_limits: bool = True,
    ) -> None:
        """Begin without contacts.

        Args:
            records: What is believed.
            rng: Draws contacts and samples.
            outbox: Gets what is to be sent.
            limits: What contacts may send, and how much is kept for them.
            rate_limits: False lifts the allowances of contacts.
        """
        self._records = records
        self._rng = rng
        self._outbox = outbox
        self._limits = limits
        self._rate_limits = rate_limits
        self.contacts: dict[Carrier, Contact] = {}
        self._chosen: list[Contact] = []
        self._fresh: dict[bytes, Contact | None] = {}
        """New records of this turn, and the peer each came from: they leave at its end."""
        self._recent: dict[bytes, Contact | None] = {}
        """New records of this round."""
        self._by_host: OrderedDict[str, TokenBucket] = OrderedDict()
        """Allowances for records, by the address of who dialled us; the one used longest ago first."""
        self._round = 1
        self._round_ends: Instant | None = None
        self._advert: bytes | None = None
        """Our own advert as it was sent last."""

    # Contacts

    def join(self, carrier: Carrier, contact: Contact, now: Instant) -> None:
        """Begin to gossip with another relay: it is asked for what it knows, and is sent what is new."""
        self.contacts[carrier] = contact
        # A new peer takes part in this round while there is room, so that two relays need not wait for the next.
        if len(self._chosen) < FANOUT:
            self._chosen.append(contact)
        if self._round_ends is None:
            self._round_ends = self._next_round(now)
        self._send(contact, _ASK)

    def make_contact(
        self,
        carrier: Carrier,
        key: PublicKey | None,
        address: str,
        now: Instant,
        *,
        host: str = "",
        limited: bool = True,
    ) -> Contact:
        """Return what to ``join`` with; arguments as the fields of ``Contact``.

        Those of one ``host`` share one allowance for records, which outlives them: neither more connections nor new
        ones buy more checks of signatures (BHUMI-FLOOD).
        """
        records = frames = None
        if self._rate_limits and limited:
            # The allowance of a host outlives its connections: new ones buy no more signature checks (BHUMI-FLOOD).
            limits = self._limits.now
            records = self._by_host.pop(host, None) or TokenBucket(limits.records_per_second, limits.records_burst, now)
            if host:
                self._by_host[host] = records
            for _ in range(surplus(len(self._by_host), limits.gossip_addresses)):
                self._by_host.popitem(last=False)
            frames = TokenBucket(limits.gossip_frames_per_second, limits.gossip_frames_burst, now)
        return Contact(carrier, key, address, now, records, frames)

    def use_limits(self) -> None:
        """Give the allowances of contacts and addresses their size anew: the limits have changed."""
        limits = self._limits.now
        records = [*self._by_host.values(), *(contact.records for contact in self.contacts.values())]
        for bucket in records:
            if bucket is not None:
                bucket.change(limits.records_per_second, limits.records_burst)
        for contact in self.contacts.values():
            if contact.frames is not None:
                contact.frames.change(limits.gossip_frames_per_second, limits.gossip_frames_burst)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {
            "contacts": len(self.contacts),
            "gossip_addresses": len(self._by_host),
            "round_records": len(self._recent),
        }

    def leave(self, carrier: Carrier) -> None:
        """Forget a contact whose connection is over; another one takes its place in this round."""
        contact = self.contacts.pop(carrier, None)
        if contact is None:
            return
        # BHUMI-RUMOUR: three peers in every round, also after one of them has left.
        if contact in self._chosen:
            self._chosen.remove(contact)
            others = [other for other in self.contacts.values() if other not in self._chosen]
            if others:
                self._chosen.append(self._rng.choice(others))

    # Records

    def receive(self, contact: Contact, payload: bytes, now: Instant) -> bool:
        """Take a GOSSIP frame; False when the connection must be closed for what it holds.

        Raises:
            MalformedError: The frame, or an address in it, is not well formed.
        """
        # BHUMI-FLOOD: the frame is dropped before it is decoded; honest bursts may exceed, so no strike.
        if contact.frames is not None and not contact.frames.take(now):
            self._note(contact, Refusal.GOSSIP_FLOOD, 1)
            return True
        records = split_gossip(payload)
        # BHUMI-GOSSIP: a frame without records asks for a sample.
        if not records:
            self._give_sample(contact, now)
            return True
        refused: dict[Refusal, int] = {}
        try:
            for tagged in records:
                verdict = self._records.take(tagged, contact.records, now, by_gossip=True)
                if isinstance(verdict, Refusal):
                    refused[verdict] = refused.get(verdict, 0) + 1
                elif verdict is not None:
                    contact.records_in += 1
                    self.spread(tagged, contact)
        finally:
            for refusal, times in refused.items():
                self._note(contact, refusal, times)
        # BHUMI-STRIKE: only records that no honest relay passes on count.
        contact.strikes += sum(refused.get(refusal, 0) for refusal in STRIKING)
        return contact.strikes < self._limits.now.record_strikes

    def spread(self, tagged: bytes, source: Contact | None) -> None:
        """Pass a new record on to everybody but its source, at the end of this turn."""
        if not self.contacts:
            return
        self._fresh[tagged] = source
        # Bounded: beyond it a record is passed on once only, in its own turn.
        if len(self._recent) < self._limits.now.round_records:
            self._recent[tagged] = source

    def flush(self) -> None:
        """Send what has become new in this turn."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, {}
        for contact in self._chosen:
            self._send_records(contact, (tagged for tagged, source in fresh.items() if source is not contact))

    # Time

    def wake(self, now: Instant) -> None:
        """Begin a round if it is time."""
        if self._round_ends is None or self._round_ends > now:
            return
        self._round += 1
        self._round_ends = self._next_round(now) if self.contacts else None
        # BHUMI-RUMOUR: what came in the last round goes to those drawn for this one, never back to its source.
        recent, self._recent = self._recent, {}
        everybody = list(self.contacts.values())
        self._chosen = self._rng.sample(everybody, min(FANOUT, len(everybody)))
        self._spread_own(now)
        still = {tagged: source for tagged, source in recent.items() if self._records.holds(tagged, now)}
        for contact in self._chosen:
            self._send_records(contact, (tagged for tagged, source in still.items() if source is not contact))
        # BHUMI-RUMOUR: a relay with few peers asks for samples, since gossip alone may pass it by.
        if 0 < len(everybody) < CONTACTS_ENOUGH:
            self._send(self._rng.choice(everybody), _ASK)

    def deadline(self) -> Instant | None:
        """Return when the next round begins, None without contacts."""
        return self._round_ends

    def _next_round(self, now: Instant) -> Instant:
        return after_ms(now, ROUND_MS + self._rng.randrange(-ROUND_JITTER_MS, ROUND_JITTER_MS + 1))

    def _spread_own(self, now: Instant) -> None:
        """Spread our own advert when it was made anew."""
        own = self._records.own_advert(now)
        tagged = encode_tagged(own) if own is not None else None
        if tagged is not None and tagged != self._advert:
            self._advert = tagged
            self.spread(tagged, None)

    # Frames

    def _give_sample(self, contact: Contact, now: Instant) -> None:
        # One sample a round and peer: asking is cheap, answering is not.
        if contact.sampled_in != self._round:
            contact.sampled_in = self._round
            self._send_records(contact, self._records.sample(self._rng, SAMPLE_RECORDS, now))

    def _send_records(self, contact: Contact, records: Iterable[bytes]) -> None:
        """Send records in as many frames as they need."""
        # A peer that does not read gets nothing more into our buffers; the next sample repairs what it missed.
        if contact.is_stalled:
            return
        batch: list[bytes] = []
        room = EXTENSION_FRAME_BYTES_MAX - _COUNT_BYTES
        for tagged in records:
            if gossip_cost(tagged) > room:
                self._send(contact, encode_gossip(batch))
                batch, room = [], EXTENSION_FRAME_BYTES_MAX - _COUNT_BYTES
            batch.append(tagged)
            room -= gossip_cost(tagged)
            contact.records_out += 1
        if batch:
            self._send(contact, encode_gossip(batch))

    def _send(self, contact: Contact, frame: bytes) -> None:
        self._outbox.append(Send(contact.carrier.peer, frame))

    def _note(self, contact: Contact, refusal: Refusal, times: int) -> None:
        self._outbox.append(Refused(PROTOCOL, contact.key, refusal.value, times))
