"""The BSP relay: the node's own BSP device, which is always on, with its connections and its mailbox (bsp 6).

``server.bsp.host`` runs it. Groups, peers and sharing come from the node's configuration (bsp 11.2) at every start.
Messages and the state of each peer are in the node's store. The relay passes its inputs to a ``BspMachine``, which
handles the connections. Its ``Mailbox`` hosts groups for the owners in the configuration. Other programs queue orders
through the store (``orders``). The node executes those about messages of its own groups, and refuses those that its
configuration decides.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from waystation.core.effects import Effect, Peer
from waystation.core.errors import LocalError
from waystation.core.facts import Fact
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Store
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.events import DeviceEvent
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.device.orders import (
    AddMessage,
    DeleteMessage,
    Order,
    OrderTaker,
    ShareMessage,
    carry_out_on_message,
)
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.mailbox.host import Mailbox
from waystation.protocols.bsp.mailbox.hosting import quota_of
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.relay.facts import facts_of
from waystation.protocols.bsp.relay.groups import NodeGroup, changed_rows
from waystation.protocols.bsp.settings import (
    BspSettings,
    PeerEntry,
    read_groups,
    read_owners,
    read_peers,
)
from waystation.protocols.bsp.stream.machine import BspMachine, PeerDown, PeerUp

__all__ = ["BspRelay"]

REFUSED_ORDERS_MAX: Final = 16
"""Orders that could not be carried out, remembered for the operator."""
_QUOTAS: Final = tuple(field.name for field in fields(BspSettings) if field.name.endswith("_max"))
"""Settings that a reload applies."""
_BEGINNING: Final = Instant(0)  # the time of everything that is configured before the first input


class BspRelay:
    """One node's device with its connections, its mailbox and its orders."""

    def __init__(
        self,
        settings: BspSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        limits: BspLimits = DEFAULT_LIMITS,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _key: True,
        is_unlimited: Callable[[PublicKey], bool] = lambda _key: False,
    ) -> None:
        """Read the configured groups from the store; hosted groups follow with the first ``set_wall``.

        Args:
            settings: Checked against the profile's bounds.
            key_pair: The node's identity, which is its device's.
            store: Holds the device's messages, and the orders of other programs.
            rng: Source of nonces and jitter.
            limits: What peers and owners may have and do; ``use_limits`` replaces them.
            rate_limits: Whether the connections of one key are rate-limited.
            admits: Called with the key of each known peer that connects.
            is_unlimited: Called with the same; True lifts the rate of its connections.

        Raises:
            LocalError: A setting is invalid.
            HostError: A stored row is damaged.
        """
        self._settings = settings
        self._limits = InForce(limits)
        self._own_key = key_pair.public
        profile = PROFILES[settings.profile]
        self._device = BspDevice(
            profile, store, mode=Mode(settings.mode), admits=self._admits_message, messages_max=limits.messages
        )
        self._peers = {peer.key: peer for peer in read_peers(settings.peers) if peer.key != self._own_key}
        plain_peer = PublicKey.parse(settings.plain_peer) if settings.plain_peer else None
        # The device does not connect to itself: such a setting is a slip.
        if self._own_key in {plain_peer, *read_owners(settings.owners)}:
            raise LocalError("bsp.plain_peer and bsp.owners name other devices, not this node itself")
        self._group_names: dict[bytes, str] = {}
        # Spec 11.2: configured peers and the keys of ``share_with`` are the table of peers.
        self._meet(*self._peers, *([plain_peer] if plain_peer is not None else []))
        for record in changed_rows(store, self._join_groups()):
            # Programs beside the node read the groups from the store; the rows leave with the first commit.
            self._device.keep(record)
        self._machine = machine = BspMachine(
            self._device,
            key_pair,
            rng,
            plain_peer=plain_peer,
            dials={key: peer.url for key, peer in self._peers.items() if peer.url},
            admits=admits,
            is_unlimited=is_unlimited,
            rate_limits=rate_limits,
            limits=self._limits,
        )
        self._mailbox = Mailbox(
            self._device,
            key_pair,
            read_owners(settings.owners),
            settings,
            store,
            allows=admits,
            stays=self._device.peers(),
            part=self._part,
            limits=self._limits,
        )
        self._is_loaded = False
        self._now = _BEGINNING
        self._orders = OrderTaker(store, self._carry_out, self._device.keep, self._on_order_refused)
        self._orders_refused: deque[dict[str, str]] = deque(maxlen=REFUSED_ORDERS_MAX)
        self._failures: dict[PublicKey, str] = {}
        """Reason for which the last connection or dial of a peer that is not connected ended."""
        self._retiring = False
        self.connect = machine.connect
        self.connect_by = machine.connect_by
        self.connect_upstream = machine.connect_upstream
        self.upstream_failed = machine.upstream_failed
        self.half_closed = machine.half_closed
        self.disconnect = machine.disconnect
        self.congested = machine.congested
        self.drained = machine.drained
        self.verified = machine.verified
        self.settled = machine.settled
        self.shut = machine.shut
        self.use_certificate = machine.use_certificate

    def use_limits(self, limits: BspLimits) -> None:
        """Hold peers and owners to these limits from now on."""
        self._limits.now = limits
        self._machine.adapt_to_limits()

    def use_settings(self, settings: BspSettings) -> None:
        """Use the quotas of groups and owners as they are now; nothing that is kept is deleted."""
        self._settings = replace(self._settings, **{name: getattr(settings, name) for name in _QUOTAS})
        self._mailbox.use_quota(quota_of(self._settings))

    # The inputs of a machine that are its own

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take bytes that arrived from a peer."""
        self._now = now
        self._machine.receive(peer, data, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Take the report that the changes of a ``Commit`` are on disk."""
        self._now = now
        self._machine.committed(ticket, now)

    def not_committed(self, ticket: int, now: Instant) -> None:
        """Take the report that the store refused the changes of a ``Commit``."""
        self._now = now
        self._machine.not_committed(ticket, now)

    def wake(self, now: Instant) -> None:
        """Carry out orders, then the mailbox's work, then timeouts and due records of connections."""
        self._now = now
        # BSP-DRAIN: a node that stops starts nothing new.
        if not self._retiring:
            self._orders.wake(now)
        self._mailbox.wake(now)
        self._machine.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due: within a second, as nothing announces an order."""
        times = [self._machine.deadline(), self._mailbox.deadline()]
        if not self._retiring:
            times.append(self._orders.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call.

        Events are handled before, so that the mailbox's answers are in the same commit, and after, for connections
        that end here.
        """
        facts = self._facts_from(self._machine.take_events())
        effects = self._machine.take()
        effects += facts
        # Closing a connection is an event too: its reason belongs to this turn.
        effects += self._facts_from(self._machine.take_events())
        return effects

    def retire(self) -> None:
        """Stop to dial, accept and read anything but acknowledgements; orders and commands wait for the next start."""
        self._retiring = True
        self._machine.retire()
        self._mailbox.retire()

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity; an owner's groups are not served while it is banned."""
        self._machine.expel(identity, now)
        # BSP-GONE: a ban suspends the owner's groups at once.
        self._mailbox.review(now)

    def review(self, now: Instant) -> None:
        """Close the connections of keys that are not admitted any more, and suspend or resume owners' groups."""
        self._machine.review(now)
        self._mailbox.review(now)

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Set the wall clock, in Unix microseconds; the first call reads the hosted groups.

        Raises:
            HostError: A stored row of the mailbox is damaged.
        """
        self._device.set_wall(now, wall_us)
        self._mailbox.set_wall(now, wall_us)
        if not self._is_loaded:
            self._is_loaded = True
            # Hosted bodies are kept by the wall clock, so nothing is read before it is known.
            self._mailbox.load(now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return self._machine.sizes() | self._mailbox.sizes()

    # The operator's view

    def view(self) -> dict[str, Any]:
        """Return groups and peers with their counts, for the operator."""
        return {
            "profile": self._settings.profile,
            "mode": self._settings.mode,
            "groups": [self._view_group(group) for group in self._device.groups()],
            "peers": [self._view_peer(key) for key in self._device.peers()],
            "orders_refused": list(self._orders_refused),
        }

    def _view_group(self, group: Group) -> dict[str, Any]:
        graph, usage = self._device.graph(group.group_id), self._device.usage(group.group_id)
        return {
            "group_id": group.group_id.hex(),
            "name": self._group_names.get(group.group_id, ""),
            "format": group.format,
            "hosted": self._mailbox.hosts(group.group_id),
            "messages": len(graph.vertices),
            "pending": graph.pending_count,
            "delivered": graph.next_order - 1,
            "bodies": usage.live_count,
            "body_bytes": usage.live_bytes,
            "shared_with": {key.hex(): kind.value for key, kind in self._device.audience(group.group_id).items()},
        }

    def _view_peer(self, key: PublicKey) -> dict[str, Any]:
        entry = self._peers.get(key, PeerEntry(key, "", ""))
        return {
            "key": key.hex(),
            "name": entry.name,
            "url": entry.url,
            "link": self._machine.connected().get(key),
            "owed": self._device.owes(key),
            "trouble": self._failures.get(key, ""),
        }

    # Helpers

    def _meet(self, *keys: PublicKey) -> None:
        for key in keys:
            # The device is no peer of itself, even where ``share_with`` lists all members of a group.
            if key != self._own_key:
                self._device.meet(key)

    def _join_groups(self) -> list[NodeGroup]:
        """Become a member of the configured groups; return them for other programs that read the store."""
        joined = []
        for entry in read_groups(self._settings.groups):
            group = self._device.profile.group(entry.client_id, entry.descriptor, entry.format)
            self._device.join(group, _BEGINNING)
            self._group_names[group.group_id] = entry.name
            joined.append(NodeGroup(self._settings.profile, group, entry.name, entry.share_with))
            self._meet(*entry.share_with)
            for key in entry.share_with:
                if key != self._own_key:
                    # Spec 11.2: delivered messages of a configured group are shared with every key of ``share_with``.
                    self._device.share(group.group_id, key, _BEGINNING)
        return joined

    def _facts_from(self, events: Sequence[DeviceEvent | PeerUp | PeerDown]) -> list[Fact]:
        """Handle events, and return their facts for the recorder."""
        if not events:
            return []
        of_device = []
        for event in events:
            if isinstance(event, PeerUp):
                self._failures.pop(event.key, None)
            elif isinstance(event, PeerDown):
                self._failures[event.key] = event.reason
            else:
                of_device.append(event)
        facts = facts_of(of_device, self._device, self._now)
        for event in of_device:
            self._mailbox.on_event(event, self._now)
        return facts

    def _admits_message(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        # A group that the configuration does not name is hosted: the owner's quota decides.
        if group_id not in self._group_names:
            return self._mailbox.admits(group_id, size_bytes)
        usage = self._device.usage(group_id)
        # Spec 9: 250,000 messages of a group that a node is a member of, those without body included.
        is_full = usage.live_count + usage.tombstones >= self._settings.group_messages_max
        return Refusal.GROUP_FULL if is_full else None

    def _part(self, peer: PublicKey, now: Instant) -> None:
        """Close the connection of a peer that no hosted group has any more, and forget it."""
        self._machine.expel(peer, now)
        self._device.part(peer)
        self._failures.pop(peer, None)

    def _carry_out(self, order: Order, now: Instant) -> None:
        """Carry out an order of another program.

        Raises:
            LocalError: It is not for a node, or cannot be done.
        """
        # BSP-SETTLED: the configuration alone changes groups and peers, so that it holds after a restart.
        if not isinstance(order, AddMessage | DeleteMessage | ShareMessage):
            raise LocalError("groups and peers of a node are in its configuration")
        if order.group_id not in self._group_names:
            raise LocalError(f"{order.group_id.hex()} is none of the groups in the node's configuration")
        carry_out_on_message(self._device, order, now)

    def _on_order_refused(self, order: Order | None, why: str) -> None:
        self._orders_refused.append({"order": type(order).__name__ if order is not None else "", "why": why})
