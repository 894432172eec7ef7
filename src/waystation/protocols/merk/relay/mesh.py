"""The mesh: links with other nodes, addresses to dial, and the servers that peers announce.

``handshake`` adds links, ``routing`` sends over them, and the relay turns addresses into ``Dial`` effects. Addresses
come from the operator, from other nodes, and from the table saved before the restart. The operator's are dialled for
ever and may be private. All others must be public (unless the operator allows more). They are dialled at most
``dials_per_minute`` and dropped after ``FAILURES_MAX`` failures. A node learnt with a key must prove that key.

Two nodes keep one link. Of two links in opposite directions, the one dialled by the smaller key stays. Of two in one
direction, the one with the dialler's smaller nonce stays. So both sides close the same link.

Spec: specs/merk.md 4, 5, 8, 10.1, 10.6, 10.7; MERK-MESH, MERK-DIAL.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from waystation.core.effects import Dial
from waystation.core.facts import RelayObserved
from waystation.core.ids import KEY_BYTES
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.records import Change, Record, Store
from waystation.core.redial import UNREACHED_MS_MAX, redial_wait_ms
from waystation.core.settings import InForce
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import ADDRESS_BYTES_MAX, ServerEntry
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.addresses import Address, address_fault
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import Contact, Session, State
from waystation.protocols.merk.settings import MerkSettings
from waystation.rules.relay_observation import FAILED, OK, Probe
from waystation.rules.twins import Twin, Twins

__all__ = ["Mesh"]

DIALS_PERIOD_MS: Final = 60_000  # spec 8: 8 a minute
FAILURES_MAX: Final = 8  # spec 8: in a row
RETRY_FIRST_MS: Final = 500  # specs/merk.md 10.6
RETRY_MAX_MS: Final = 30_000  # spec 10.6
LEARNT_RETRY_MAX_MS: Final = 600_000  # ours: ten minutes
STOOD_MS: Final = 30_000  # a link that lasted so long starts the waits from the beginning
REFRESH_MS: Final = 120_000  # how often a peer is asked for its servers again
TABLE: Final = "merk_peers"
ENTRIES_MAX: Final = 64  # specs/merk.md 4: of one list of servers
PROTOCOL: Final = "merk"


class Mesh:
    """What this node knows of others."""

    def __init__(
        self,
        settings: MerkSettings,
        node_key: bytes,
        store: Store,
        rng: random.Random,
        limits: InForce[MerkLimits],
        outbox: Outbox | None = None,
    ) -> None:
        """Remember the operator's addresses and those of the last life.

        Args:
            settings: Peers and guards.
            node_key: Our own key.
            store: Holds the peer table.
            rng: Source of jitter.
            limits: How many links, addresses and dials there may be.
            outbox: Takes what is seen of other nodes; None for nobody.
        """
        now = Instant(0)  # whatever the clock says first, these are due
        self._settings = settings
        self._node_key = node_key
        self._rng = rng
        self._limits = limits
        self._outbox = outbox
        self.links: dict[bytes, Session] = {}
        """Nodes of ours, by key."""
        self.originals: dict[Session, None] = {}
        self._addresses: dict[str, Address] = {}
        self._own_urls = {settings.public_url} - {""}
        self.twins = Twins()
        self._neighbours: dict[bytes, tuple[bytes, ...]] = {}
        """Keys of the nodes that each linked node has named."""
        self._dialled: deque[tuple[Instant, bytes | None]] = deque()
        """When learnt addresses were dialled last, and who had named them."""
        self._changes: list[Change] = []
        self._refresh_at: Instant | None = None
        for url in settings.peers:
            self._addresses[url] = Address(url, None, now, configured=True)
        # A configured address may have been learnt in an earlier life; it takes no place of a learnt one.
        rows_max = limits.now.learnt_addresses + len(settings.peers)
        for key, value in store.scan(TABLE, count_max=rows_max):
            url = key.decode()
            if self.learnt_count >= limits.now.learnt_addresses:
                break
            # Addresses of the last life pass the same guards again: the setting may have changed.
            if url not in self._addresses and not address_fault(url, allow_private=settings.allow_private_peers):
                node = value if len(value) == KEY_BYTES else None
                self._addresses[url] = Address(url, node, now, stored=True)

    def nodes(self) -> list[Session]:
        """Return every node that can be asked for a client, in the order in which they came."""
        return [*self.links.values(), *self.originals]

    @property
    def has_nodes(self) -> bool:
        """Whether any node can be asked."""
        return bool(self.links or self.originals)

    @property
    def has_upstreams(self) -> bool:
        """Whether an original relay that we dialled stands."""
        return any(session.state is State.UPSTREAM for session in self.originals)

    @property
    def addresses_count(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._addresses)

    @property
    def learnt_count(self) -> int:
        """Return how many addresses other nodes have named, in this life or the last."""
        return sum(not address.configured for address in self._addresses.values())

    @property
    def has_changed(self) -> bool:
        """Whether there are changes for the peer table."""
        return bool(self._changes)

    def take_changes(self) -> tuple[Change, ...]:
        """Return and forget changes for the peer table."""
        changes, self._changes = tuple(self._changes), []
        return changes

    # Dialling

    def learn(self, url: str, key: bytes | None, source: bytes, now: Instant) -> bool:
        """Note an address that another node named; False when it must not be dialled.

        Args:
            url: As it came.
            key: Key of the node there, if one was named.
            source: Key of the node that named it.
            now: Monotonic time.
        """
        if url in self._addresses or url in self._own_urls or key == self._node_key:
            return True
        if address_fault(url, allow_private=self._settings.allow_private_peers):
            return False
        # Spec 8: a node is dialled at one address, once that is known; until then each teller may be the one who lies.
        if key is not None and (key in self.links or self._is_settled(key, source)):
            return True
        return self._note(Address(url, key, now, source=source))

    def _is_settled(self, key: bytes, source: bytes) -> bool:
        """Return whether another address of a node is proved or the operator's, or the same teller has named one."""
        same = [known for known in self._addresses.values() if known.key == key]
        return any(known.configured or known.proved == key or known.source == source for known in same)

    def _note(self, named: Address) -> bool:
        """Remember an address that may be dialled, if there is room; return True."""
        learnt = [known for known in self._addresses.values() if not known.configured]
        unproved = [known for known in learnt if not known.stored]
        limits = self._limits.now
        # One peer may name some unproved addresses, so that it cannot fill the table.
        if sum(known.source == named.source for known in unproved) >= limits.unproved_addresses_per_node:
            return True
        if len(learnt) >= limits.learnt_addresses:
            worst = max((known for known in unproved if not known.busy), key=lambda known: known.failures, default=None)
            # Spec 8: learnt addresses are bounded; only one that has failed makes room.
            if worst is None or not worst.failures:
                return True
            del self._addresses[worst.url]
        self._addresses[named.url] = named
        return True

    def claims(self, session: Session, now: Instant) -> None:
        """Note the address that an unnamed node, which has just proved its key, says of itself, to be dialled once.

        Clients are given it only when it has proved to be true.
        """
        assert session.identity is not None
        url = session.hello.address if session.hello is not None else ""
        if not url or url in self._addresses or url in self._own_urls or not session.is_unnamed:
            return
        if address_fault(url, allow_private=self._settings.allow_private_peers):
            return
        claim = Address(url, session.identity, now, source=session.identity)
        claim.claimed = True
        self._note(claim)

    def dials(self, now: Instant) -> Iterator[Dial]:
        """Yield whom to dial now.

        Those first that have proved themselves, then those that were named by whoever cost us the fewest of the last
        dials, then those that failed least.
        """
        due = [address for address in self._addresses.values() if address.due <= now and self._is_wanted(address)]
        while due:
            spent = Counter(source for _, source in self._dialled)
            address = min(
                due,
                key=lambda each: (not each.configured, not each.stored, spent[each.source], each.failures, each.due),
            )
            if not address.configured:
                # Spec 8: a bounded number of dials a minute of learnt addresses; those that are left are learnt, too.
                if self._may_dial_at() > now:
                    return
                self._dialled.append((now, address.source))
                while len(self._dialled) > self._limits.now.dials_per_minute:
                    self._dialled.popleft()
            due.remove(address)
            address.busy = True
            # Spec 8: learnt names are judged again where they lead, at the dial.
            only_public = not address.configured and not self._settings.allow_private_peers
            yield Dial(address.url, address.url, only_public)

    def _is_wanted(self, address: Address) -> bool:
        if address.busy or (address.key in self.links and not (address.claimed and address.proved is None)):
            return False
        return address.configured or address.claimed or self._unnamed_count() < self._unnamed_max

    @property
    def _unnamed_max(self) -> int:
        """How many nodes that the operator has not named may be linked: half of the places."""
        return self._limits.now.nodes // 2

    def _unnamed_count(self) -> int:
        return sum(link.is_unnamed for link in self.links.values())

    def _may_dial_at(self) -> Instant:
        """Return when a learnt address may be dialled: no minute has more dials than there may be."""
        # Spec 8: 8 dials a minute.
        dials_max = self._limits.now.dials_per_minute
        if len(self._dialled) < dials_max:
            return Instant(0)
        return after_ms(self._dialled[-dials_max][0], DIALS_PERIOD_MS)

    def contact(self, url: str) -> Contact:
        """Return what is expected of a connection that we dialled."""
        # Spec 8: an announced key must be proved; a configured address proves itself by being configured.
        address = self._addresses.get(url)
        return Contact(url, None if address is None or address.configured else address.key)

    def unreachable(self, url: str, now: Instant) -> None:
        """A dial came to nothing.

        That counts against a node only where it has proved itself: what others name may be a lie about it.
        """
        address = self._addresses.get(url)
        if address is not None and address.proved is not None:
            self._seen(address.proved, FAILED)
        self._failed(url, now, UNREACHED_MS_MAX, 0)

    def failed(self, url: str, now: Instant, *, stood_ms: int = 0) -> None:
        """A connection that was dialled is over."""
        self._failed(url, now, RETRY_MAX_MS, stood_ms)

    def _failed(self, url: str, now: Instant, configured_ms: int, stood_ms: int) -> None:
        """Wait, at most ``configured_ms`` where the operator has named the address."""
        address = self._addresses.get(url)
        if address is None:
            return
        address.busy = False
        address.failures = 0 if stood_ms >= STOOD_MS else address.failures + 1
        # Spec 8: given up after 8 failures in a row; the operator's are dialled for ever (spec 10.6).
        if not address.configured and address.failures >= FAILURES_MAX:
            self.forget(url)
            return
        longest_ms = configured_ms if address.configured else LEARNT_RETRY_MAX_MS
        # Spec 10.6: 0.5 s doubling, jittered.
        steps = max(0, address.failures - 1)
        address.due = after_ms(now, redial_wait_ms(steps, self._rng, first_ms=RETRY_FIRST_MS, longest_ms=longest_ms))

    def forget(self, url: str) -> None:
        """Never dial an address again unless somebody names it anew."""
        address = self._addresses.pop(url, None)
        if address is not None and address.stored:
            self._changes.append(Record(TABLE, url.encode(), None))

    def confirmed(self, url: str, key: bytes, now: Instant) -> bool:
        """A node has confirmed under a key at an address that we dialled; return whether it is linked already.

        It is not dialled while it is. An operator's address vouches for the key that answers there, so that two nodes
        that accept nobody else can still link: whoever comes with that key must prove it.
        """
        address = self._addresses.get(url)
        if address is None:
            return False
        if address.configured and key in self.links:
            self._look_for_twin(key, url, self.links[key].contact, now)
        if address.configured or key in self.links:
            address.key = key
        # A claim is worth the proof: the link that both sides keep is settled when it has come.
        return key in self.links and not (address.claimed and address.proved is None)

    def _look_for_twin(self, key: bytes, url: str, other: Contact | None, now: Instant) -> None:
        """Note that one key answers at two addresses of the operator, of which one is linked (NODE-TWIN)."""
        if other is not None and other.url != url and all(self._is_configured(each) for each in (url, other.url)):
            self.twins.note(Twin(key, (other.url, url)), now)

    def _is_configured(self, url: str) -> bool:
        address = self._addresses.get(url)
        return address is not None and address.configured

    def has_our_key(self, url: str, challenge: bytes, now: Instant) -> None:
        """An address has our own key: it is our own and forgotten, or an address of the operator that a twin has."""
        address = self._addresses.get(url)
        ours = Twin(self._node_key, (url,))
        if address is not None and address.configured and self.twins.names_ours(challenge, ours, now):
            return
        self._own_urls.add(url)
        self.forget(url)

    # Links

    def is_named(self, session: Session) -> bool:
        """Return whether a node is at an address of the operator's, as far as we know; else it is an unnamed one."""
        if session.contact is not None and self._is_configured(session.contact.url):
            return True
        return self._is_named_key(session.identity)

    def _is_named_key(self, key: bytes | None) -> bool:
        return any(address.key == key for address in self._addresses.values() if address.configured)

    def no_room(self, key: bytes, address: str, contact: Contact | None = None) -> Refusal | None:
        """Return why a node must not become a peer, None when it may.

        Args:
            key: The node's.
            address: What the host that came to us is counted under; empty for none.
            contact: Whom we dialled; None for who came.
        """
        # MERK-UNNAMED: the operator's peers have a place of their own.
        if key in self.links or self._is_named_key(key) or (contact is not None and self._is_configured(contact.url)):
            return None
        # Spec 10.1: with `accept_peers = false` a node must be at an address of the operator's, or one that we dialled.
        if not (self._settings.accept_peers or contact is not None):
            return Refusal.PEERS_NOT_ACCEPTED
        same = sum(link.address == address for link in self.links.values() if link.is_unnamed and address)
        crowded = same >= self._limits.now.unnamed_nodes_per_address
        return Refusal.PEERS_FULL if crowded or self._unnamed_count() >= self._unnamed_max else None

    def stands(self, session: Session, now: Instant) -> Session | None:
        """A node has proved itself; return the link that must be closed because there are two, if any.

        That may be the new one, which then is no link.
        """
        key = session.identity
        assert key is not None
        self.originals.pop(session, None)
        if session.contact is not None:
            self._proved(session.contact.url, key)
            self._seen(key, OK)
        older = self.links.get(key)
        if older is not None:
            if session.contact is not None:
                self._look_for_twin(key, session.contact.url, older.contact, now)
            session.address = session.address or older.address  # counted under where it came from
            # Two links to one node: both sides close the same one.
            if not self._is_better(session, older):
                return session
            del self.links[key]
        self.links[key] = session
        if self._refresh_at is None:
            self._refresh_at = after_ms(now, REFRESH_MS)
        return older

    def _is_better(self, session: Session, older: Session) -> bool:
        """Return whether the newer of two links to a node stays; both sides must decide alike."""
        if (older.contact is None) != (session.contact is None):
            assert session.identity is not None
            # The link that the smaller key dialled stays.
            return (session.contact is not None) is (self._node_key < session.identity)
        # Dialled twice from one side: the nonces are known to both, so both decide alike.
        return _dialler_nonce(session) < _dialler_nonce(older)

    def lost(self, session: Session) -> None:
        """A node's connection is over."""
        self.originals.pop(session, None)
        key = session.identity
        if key is not None and self.links.get(key) is session:
            del self.links[key]
            self._neighbours.pop(key, None)

    def entry_of(self, session: Session) -> ServerEntry | None:
        """Return where others may reach a linked node, None when it has not said and we know of no public place."""
        assert session.identity is not None
        address = session.hello.address if session.hello is not None else ""
        if not address and session.contact is not None:
            url = session.contact.url
            # A private address of ours leads nobody else anywhere.
            address = "" if address_fault(url, allow_private=self._settings.allow_private_peers) else url
        return ServerEntry(session.identity, address) if 0 < len(address.encode()) <= ADDRESS_BYTES_MAX else None

    def servers(self, *, for_clients: bool = False) -> tuple[ServerEntry, ...]:
        """Return the linked nodes whose address is known; to clients, unnamed ones once our dial has proved it."""
        entries = [(session, self.entry_of(session)) for session in self.nodes() if session.identity is not None]
        return tuple(
            entry
            for session, entry in entries
            if entry is not None and (not for_clients or not session.is_unnamed or self._is_found_at(entry))
        )

    def _is_found_at(self, entry: ServerEntry) -> bool:
        """Return whether a node has proved its key to us at an address that we dialled."""
        address = self._addresses.get(entry.address)
        return address is not None and address.proved == entry.key

    def named(self, session: Session, entries: Sequence[ServerEntry], now: Instant) -> int:
        """Take a peer's list of servers; return how many of its addresses must not be dialled."""
        assert session.identity is not None
        # Spec 4: 64 entries at most, whatever the number of addresses that may be learnt from them.
        taken = entries[:ENTRIES_MAX]
        self._neighbours[session.identity] = tuple(dict.fromkeys(entry.key for entry in taken))
        return sum(not self.learn(entry.address, entry.key, session.identity, now) for entry in taken)

    def view(self, now: Instant) -> dict[str, Any]:
        """Return this node, the nodes it is linked with, and their links among each other, as plain JSON values."""
        nodes = []
        for session in self.nodes():
            entry = self.entry_of(session)
            up_us = now - session.link.since if session.link is not None else 0
            nodes.append(
                {
                    "key": (session.identity or b"").hex(),
                    "address": entry.address if entry is not None else "",
                    "trust": "mutual" if session.state is State.PEER else "legacy",
                    "up_s": up_us // MICROSECONDS_PER_SECOND,
                    "dialled": session.contact is not None,
                }
            )
        links = [[one.hex(), other.hex()] for one, other in self.links_named()]
        return {"node": self._node_key.hex(), "nodes": nodes, "links": links}

    def links_named(self) -> list[tuple[bytes, bytes]]:
        """Return pairs of linked nodes as far as we know them, each once, the smaller key first."""
        pairs = {self._pair(self._node_key, key): None for key in self.links}
        for key, others in self._neighbours.items():
            pairs.update({self._pair(key, other): None for other in others if other in self.links})
        return list(pairs)

    def refresh(self, now: Instant) -> list[Session]:
        """Return the peers that are to be asked for their servers again."""
        if self._refresh_at is None or self._refresh_at > now:
            return []
        self._refresh_at = after_ms(now, REFRESH_MS) if self.links else None
        return list(self.links.values())

    def deadline(self) -> Instant | None:
        """Return when ``dials`` or ``refresh`` has something to do."""
        learnt_at = self._may_dial_at()
        due = [
            address.due if address.configured else max(address.due, learnt_at)
            for address in self._addresses.values()
            if self._is_wanted(address)
        ]
        if self._refresh_at is not None:
            due.append(self._refresh_at)
        return min(due, default=None)

    def _proved(self, url: str, key: bytes) -> None:
        address = self._addresses.get(url)
        if address is None:
            return
        address.key = address.proved = key
        if not address.configured and not address.stored:
            address.stored = True
            self._changes.append(Record(TABLE, url.encode(), key))

    def _seen(self, node: bytes, outcome: str) -> None:
        """Report how a dial of a node whose key was proved came out."""
        if self._outbox is not None:
            self._outbox.add(RelayObserved(PROTOCOL, node, Probe.CONNECT.value, outcome))

    def _pair(self, one: bytes, other: bytes) -> tuple[bytes, bytes]:
        return (one, other) if one < other else (other, one)


def _dialler_nonce(session: Session) -> bytes:
    """Return what the side that dialled said in its HELLO: fresh, and known to both."""
    if session.contact is not None:
        return session.nonce
    return session.hello.nonce if session.hello is not None else b""
