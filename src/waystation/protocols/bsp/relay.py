"""A node's device: an ordinary BSP peer that is always on (bsp 6).

What it is a member of, whom it knows and with whom it shares stands in the node's configuration (bsp 11.2), so it is
said anew at every start; messages and what is known of each peer are in the node's store. Connections are the
``BspMachine``'s, whose inputs are this relay's own. Beside it stand the ``Mailbox``, which hosts groups of owners that
the configuration names, and the orders that other programs leave in the store (``orders``): a node takes those about
messages of its own groups, and turns down those that its configuration decides.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from waystation.core.effects import Effect, Peer
from waystation.core.errors import LocalError
from waystation.core.facts import Fact
from waystation.core.ids import PublicKey, decode_key
from waystation.core.instant import Instant
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import DeviceEvent
from waystation.protocols.bsp.graph_facts import facts_of
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import Mode
from waystation.protocols.bsp.machine import BspMachine, PeerDown, PeerUp
from waystation.protocols.bsp.mailbox import Mailbox
from waystation.protocols.bsp.node_groups import NodeGroup, changed_rows
from waystation.protocols.bsp.orders import AddMessage, DeleteMessage, Order, OrderTaker, ShareMessage
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.settings import (
    BspSettings,
    PeerEntry,
    read_groups,
    read_owners,
    read_peers,
)

__all__ = ["BspRelay"]

REFUSED_ORDERS_MAX: Final = 16
"""Orders that could not be carried out, remembered for whoever looks at the node."""
_BEGINNING: Final = Instant(0)  # the time of what is said before anything has happened


class BspRelay:
    """One node's device with its connections, its mailbox and its orders."""

    def __init__(
        self,
        settings: BspSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _key: True,
    ) -> None:
        """Read what the store has of the configured groups; what is hosted follows with the first ``set_wall``.

        Args:
            settings: Checked against the profile's bounds.
            key_pair: The node's identity, which is its device's.
            store: What the device keeps its messages in, and where orders are left.
            rng: Source of nonces and jitter.
            rate_limits: Whether one key may come only so often.
            admits: Asked with the key of each known peer that connects.

        Raises:
            LocalError: The settings are not what they should be.
            HostError: What the store has is damaged.
        """
        self._settings = settings
        self._own_key = key_pair.public
        profile = PROFILES[settings.profile]
        self._device = BspDevice(profile, store, mode=Mode(settings.mode), admits=self._admits_message)
        self._peers = {peer.key: peer for peer in read_peers(settings.peers) if peer.key != self._own_key}
        plain_peer = decode_key(settings.plain_peer) if settings.plain_peer else None
        if self._own_key in {plain_peer, *read_owners(settings.owners)}:
            raise LocalError("bsp.plain_peer and bsp.owners name other devices, not this node itself")
        self._group_names: dict[bytes, str] = {}
        self._meet(*self._peers, *([plain_peer] if plain_peer is not None else []))
        for record in changed_rows(store, self._join_groups()):
            self._device.keep(record)
        self._machine = machine = BspMachine(
            self._device,
            key_pair,
            rng,
            plain_peer=plain_peer,
            dials={key: peer.url for key, peer in self._peers.items() if peer.url},
            admits=admits,
            rate_limits=rate_limits,
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
        )
        self._is_loaded = False
        self._now = _BEGINNING
        self._orders = OrderTaker(store, self._carry_out, self._device.keep, self._on_order_refused)
        self._orders_refused: deque[dict[str, str]] = deque(maxlen=REFUSED_ORDERS_MAX)
        self._troubles: dict[PublicKey, str] = {}
        """Why the last connection of a peer that is not connected ended, or why there was none."""
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

    # What is its own of a machine

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes arrived."""
        self._now = now
        self._machine.receive(peer, data, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """The changes of the ``Commit`` with this ticket are on disk."""
        self._now = now
        self._machine.committed(ticket, now)

    def wake(self, now: Instant) -> None:
        """Look for orders, then after what is hosted, connections, and what has become due."""
        self._now = now
        if not self._retiring:
            self._orders.wake(now)
        self._mailbox.wake(now)
        self._machine.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due: within a second, as orders come without a sign."""
        times = [self._machine.deadline(), self._mailbox.deadline()]
        if not self._retiring:
            times.append(self._orders.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call.

        What has happened is heard of before, so that what the mailbox answers is in the same commit, and behind, for
        connections that end here.
        """
        facts = self._hear_of(self._machine.take_events())
        effects = self._machine.take()
        effects += facts
        effects += self._hear_of(self._machine.take_events())
        return effects

    def retire(self) -> None:
        """Dial nobody, let nobody in, hear acknowledgements only, and leave orders and commands where they are."""
        self._retiring = True
        self._machine.retire()
        self._mailbox.retire()

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity; an owner's groups are not served while it is banned."""
        self._machine.expel(identity, now)
        self._mailbox.review(now)

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Say what the wall clock shows, in Unix microseconds; the first time, what is hosted is read.

        Raises:
            HostError: What the store has of that is damaged.
        """
        self._device.set_wall(now, wall_us)
        self._mailbox.set_wall(now, wall_us)
        if not self._is_loaded:
            self._is_loaded = True
            self._mailbox.load(now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return self._machine.sizes() | self._mailbox.sizes()

    # What people see

    def view(self) -> dict[str, Any]:
        """Return groups and peers with their counts, for whoever looks after the node."""
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
            "trouble": self._troubles.get(key, ""),
        }

    # Helpers

    def _meet(self, *keys: PublicKey) -> None:
        for key in keys:
            if key != self._own_key:
                self._device.meet(key)

    def _join_groups(self) -> list[NodeGroup]:
        """Become a member of the configured groups; return them for others that look at the store."""
        joined = []
        for entry in read_groups(self._settings.groups):
            group = self._device.profile.group(entry.client_id, entry.descriptor, entry.format)
            self._device.join(group, _BEGINNING)
            self._group_names[group.group_id] = entry.name
            joined.append(NodeGroup(self._settings.profile, group, entry.name, entry.share_with))
            self._meet(*entry.share_with)
            for key in entry.share_with:
                if key != self._own_key:
                    self._device.share(group.group_id, key, _BEGINNING)
        return joined

    def _hear_of(self, events: Sequence[DeviceEvent | PeerUp | PeerDown]) -> list[Fact]:
        """Take what has happened, and return what the recorder is told of it."""
        if not events:
            return []
        of_device = []
        for event in events:
            if isinstance(event, PeerUp):
                self._troubles.pop(event.key, None)
            elif isinstance(event, PeerDown):
                self._troubles[event.key] = event.reason
            else:
                of_device.append(event)
        facts = facts_of(of_device, self._device, self._now)
        for event in of_device:
            self._mailbox.on_event(event, self._now)
        return facts

    def _admits_message(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        if group_id not in self._group_names:
            return self._mailbox.admits(group_id, size_bytes)
        usage = self._device.usage(group_id)
        is_full = usage.live_count + usage.tombstones >= self._settings.group_messages_max
        return Refusal.GROUP_FULL if is_full else None

    def _part(self, peer: PublicKey, now: Instant) -> None:
        """Forget a peer that no hosted group has any more, and close its connection."""
        self._machine.expel(peer, now)
        self._device.part(peer)
        self._troubles.pop(peer, None)

    def _carry_out(self, order: Order, now: Instant) -> None:
        """Do what another program has asked for.

        Raises:
            LocalError: It is not for a node, or cannot be done.
        """
        if not isinstance(order, AddMessage | DeleteMessage | ShareMessage):
            raise LocalError("groups and peers of a node stand in its configuration")
        if order.group_id not in self._group_names:
            raise LocalError(f"{order.group_id.hex()} is none of the groups in the node's configuration")
        if isinstance(order, AddMessage):
            self._device.add(order.group_id, order.timestamp, order.body, now)
        elif isinstance(order, DeleteMessage):
            self._device.delete(order.group_id, order.message_id)
        else:
            self._device.share_message(order.group_id, order.message_id, now)

    def _on_order_refused(self, order: Order | None, why: str) -> None:
        self._orders_refused.append({"order": type(order).__name__ if order is not None else "", "why": why})
