"""Opens the message store for ``waystation bsp``: that of a device's home or of a node, running or not.

Both stores have the same tables. A command stores its changes as requests, which the running program carries out within
a second. Until then a new message is shown as if already added, with its expected delivery position.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.core.instant import Instant
from waystation.core.records import Store
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.orders import AddMessage, DeleteMessage, Order, queue_order, read_orders
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import ClientFormat, InvalidMessageError
from waystation.protocols.bsp.graph.order import State, Vertex
from waystation.protocols.bsp.messages import BODY_BYTES_MAX
from waystation.protocols.bsp.profile import PROFILES, Profile
from waystation.protocols.bsp.relay.groups import NodeGroup, read_node_groups
from waystation.protocols.bsp.settings import BspSettings, read_groups
from waystation.sdk.bsp.home import BspHome, HomeShare
from waystation.store.sqlite import SqliteStore

__all__ = ["DEFAULT_HOME", "Place", "Row", "open_home", "open_place", "refuse_elsewhere"]

DEFAULT_HOME: Final = Path("bsp-me")
CONFIG_FILE: Final = Path("node.toml")
HOME_VARIABLE: Final = "WAYSTATION_NODE__HOME"
_EXIT_STORE: Final = 5
_PREFIX_DIGITS_MIN: Final = 4
_DEPENDING: Final = "deps_v1"


class Row(NamedTuple):
    """One message as it stands in a store."""

    message_id: bytes
    state: str
    """pending, delivered or invalid."""
    order: int
    """Delivery order from 1; 0 when it is not delivered."""
    body_present: bool
    timestamp: int
    size_bytes: int
    dependencies: tuple[bytes, ...]


class Place:
    """A store with groups."""

    def __init__(
        self,
        store: Store,
        profile: Profile,
        groups: Mapping[str, Group],
        formats: Mapping[str, ClientFormat],
        what: str,
        shares: Sequence[HomeShare],
        *,
        is_running: bool = False,
    ) -> None:
        """Look at a store.

        Args:
            store: Of a device or node.
            profile: How identifiers are made there.
            groups: Those that it is a member of, by identifier in hexadecimal, and again by name where they have one.
            formats: What reads their messages.
            what: For people: which place it is.
            shares: Which group is shared with whom.
            is_running: Whether a program works with it now, which alone knows who is connected.
        """
        self.store = store
        self.profile = profile
        self.formats = formats
        self.what = what
        self.is_running = is_running
        self._groups = groups
        self._shares = shares
        self._ledger = Ledger(store)

    def groups(self) -> list[Group]:
        """Return the groups, each once."""
        return list({group.group_id: group for group in self._groups.values()}.values())

    def group(self, text: str) -> Group:
        """Return the group of this name, identifier, or beginning of one.

        Raises:
            LocalError: There is none, or more than one.
        """
        wanted = text.strip()
        found = [self._groups[wanted]] if wanted in self._groups else []
        if not found and len(wanted) >= _PREFIX_DIGITS_MIN:
            found = [group for group in self.groups() if group.group_id.hex().startswith(wanted.lower())]
        if len(found) != 1:
            known = ", ".join(group.group_id.hex()[:8] for group in self.groups()) or "none"
            which = "more than one group" if found else "no group"
            raise LocalError(f"{which} {text!r} in {self.what}; known: {known}")
        return found[0]

    def rows(self, group: Group) -> list[Row]:
        """Return the messages of a group: delivered ones in their order, orders behind them, then those that wait.

        Raises:
            HostError: The store cannot be read.
        """
        kept = [
            Row(
                vertex.message_id,
                _STATES[vertex.state],
                vertex.order,
                vertex.body_present,
                vertex.timestamp,
                vertex.size_bytes,
                vertex.dependencies,
            )
            for vertex in self._ledger.read_messages(group.group_id)
        ]
        rows = {row.message_id: row for row in kept}
        next_order = max((row.order for row in kept), default=0) + 1
        for _, order in read_orders(self.store):
            next_order += self._foresee(group, order, rows, next_order)
        return sorted(rows.values(), key=_place_of)

    def body(self, group: Group, row: Row) -> bytes | None:
        """Return the body of a message of ``rows``, None when it is gone."""
        if not row.body_present:
            return None
        for _, order in read_orders(self.store):
            if isinstance(order, AddMessage) and order.group_id == group.group_id:
                message_id = self.profile.message_id(order.group_id, order.timestamp, order.body)
                if message_id == row.message_id:
                    return order.body
        vertex = Vertex(row.message_id, row.timestamp, row.size_bytes)
        return self._ledger.read_body(group.group_id, vertex)

    def add(self, group: Group, timestamp: int, body: bytes, wall_ms: int) -> bytes:
        """Leave an order to create a message, and return its identifier.

        Raises:
            LocalError: The body is not as the group's messages are, or depends on what is not delivered here.
            HostError: The store does not take it.
        """
        if not self.profile.body_bytes_min <= len(body) <= BODY_BYTES_MAX:
            raise LocalError(
                f"a body has {self.profile.body_bytes_min} to {BODY_BYTES_MAX} bytes, this has {len(body)}"
            )
        dependencies = self._dependencies(group, body)
        delivered = {row.message_id for row in self.rows(group) if row.state == "delivered"} if dependencies else set()
        for dependency in dependencies:
            if dependency not in delivered:
                raise LocalError(f"it depends on {dependency.hex()}, which is not delivered here")
        self._leave(AddMessage(group.group_id, timestamp, body), wall_ms)
        return self.profile.message_id(group.group_id, timestamp, body)

    def delete(self, group: Group, message_id: bytes, wall_ms: int) -> None:
        """Leave an order to remove a message's body; raises HostError when the store does not take it."""
        self._leave(DeleteMessage(group.group_id, message_id), wall_ms)

    def message(self, group: Group, text: str) -> Row:
        """Return the message of this identifier, or beginning of one.

        Raises:
            LocalError: There is none, or more than one.
        """
        wanted = text.strip().lower()
        found = [row for row in self.rows(group) if row.message_id.hex().startswith(wanted)]
        if len(found) != 1 or len(wanted) < _PREFIX_DIGITS_MIN:
            which = "more than one message" if found else "no message"
            raise LocalError(f"{which} {text!r} in group {group.group_id.hex()[:8]}")
        return found[0]

    def heads(self, group: Group) -> list[bytes]:
        """Return the delivered messages that no delivered message depends on."""
        rows = [row for row in self.rows(group) if row.state == "delivered"]
        followed = {dependency for row in rows for dependency in row.dependencies}
        return [row.message_id for row in rows if row.message_id not in followed]

    def device(self, wall_ms: int) -> BspDevice:
        """Return a device as it would start now, to look at only: it knows no ways to peers, and nothing is written.

        Groups whose format is not known here are not in it.

        Raises:
            HostError: The store cannot be read.
        """
        at = Instant(0)
        device = BspDevice(self.profile, self.store, formats=self.formats)
        device.set_wall(at, wall_ms * 1_000)
        for group in self.groups():
            if group.format in self.formats:  # another application's groups are its own matter
                device.join(group, at)
        for share in self._shares:
            device.meet(share.peer)
            if device.is_member(share.group_id):
                device.share(share.group_id, share.peer, at, share.visibility)
        for _, order in read_orders(self.store):
            with contextlib.suppress(LocalError):  # whoever takes it up will say so
                if isinstance(order, AddMessage):
                    device.add(order.group_id, order.timestamp, order.body, at)
                elif isinstance(order, DeleteMessage):
                    device.delete(order.group_id, order.message_id)
        return device

    def _leave(self, order: Order, wall_ms: int) -> None:
        self.store.commit([queue_order(order, wall_ms)])

    def _dependencies(self, group: Group, body: bytes) -> tuple[bytes, ...]:
        form = self.formats.get(group.format)
        if form is None:
            return ()
        try:
            return tuple(form.parse(body))
        except InvalidMessageError as error:
            hint = "; --after heads writes it as one, behind all that is there" if group.format == _DEPENDING else ""
            raise LocalError(f"the body is not of format {group.format}: {error}{hint}") from error

    def _foresee(self, group: Group, order: Order | None, rows: dict[bytes, Row], next_order: int) -> int:
        """Enter what an order will do; return how many messages it delivers."""
        if isinstance(order, DeleteMessage) and order.message_id in rows:
            rows[order.message_id] = rows[order.message_id]._replace(body_present=False)
        if not isinstance(order, AddMessage) or order.group_id != group.group_id:
            return 0
        message_id = self.profile.message_id(order.group_id, order.timestamp, order.body)
        if message_id in rows:
            return 0
        size, dependencies = len(order.body), self._dependencies(group, order.body)
        rows[message_id] = Row(message_id, "delivered", next_order, True, order.timestamp, size, dependencies)
        return 1


@contextmanager
def open_home(path: Path, *, makes: bool = True) -> Iterator[BspHome]:
    """Open the home of a device, and close it behind the block; see ``BspHome``."""
    home = BspHome(path, makes=makes)
    try:
        yield home
    finally:
        home.close()


@contextmanager
def open_place(home: Path | None, config: str | None, formats: Mapping[str, ClientFormat]) -> Iterator[Place]:
    """Open what was named, or what stands in the current folder.

    Args:
        home: Of a device, when --home names it.
        config: Of a node, when --config names it.
        formats: What reads messages.

    Raises:
        LocalError: Both are named, or what was named is not there.
        HostError: The store cannot be used.
    """
    if home is not None and config is not None:
        raise LocalError("--home is a device's, --config a node's: name one of them")
    names_node = config is not None or HOME_VARIABLE in os.environ or CONFIG_FILE.exists()
    if home is None and names_node:
        with _node_place(config, formats) as place:
            yield place
        return
    with open_home(home or DEFAULT_HOME, makes=False) as opened:
        groups = {entry.group.group_id.hex(): entry.group for entry in opened.groups()}
        groups |= {entry.name: entry.group for entry in opened.groups() if entry.name}
        joined = {group.group_id for group in groups.values()}
        shares = [share for share in opened.shares() if share.group_id in joined]
        path = str(opened.path)
        yield Place(opened.store, opened.profile, groups, formats, path, shares, is_running=opened.is_busy)


@contextmanager
def _node_place(config: str | None, formats: Mapping[str, ClientFormat]) -> Iterator[Place]:
    from waystation.server.config.load import load_config  # noqa: PLC0415 - only a node's store needs it
    from waystation.server.home import Home  # noqa: PLC0415

    file = Path(config) if config is not None else CONFIG_FILE if CONFIG_FILE.exists() else None
    loaded = load_config(file, os.environ, {})
    if loaded.store.url != "sqlite":
        raise HostError(f"the node's store is {loaded.store.url}, which nobody else can open", exit_code=_EXIT_STORE)
    bsp = loaded.of(BspSettings)
    profile = PROFILES[bsp.profile]
    entries = [
        NodeGroup(profile.name, profile.group(each.client_id, each.descriptor, each.format), each.name, each.share_with)
        for each in read_groups(bsp.groups)
    ]
    home = Home(loaded.node.home)
    if not home.store_path.exists():
        refuse_elsewhere(file, home.path)
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = SqliteStore(home.store_path)
    try:
        if not entries:
            entries = read_node_groups(store)
            profile = PROFILES[entries[0].profile] if entries else profile
        groups = {entry.group.group_id.hex(): entry.group for entry in entries}
        groups |= {entry.name: entry.group for entry in entries if entry.name}
        shares = [HomeShare(each.group.group_id, key, Visibility.SHARED) for each in entries for key in each.share_with]
        what, is_running = f"the node in {home.path}", home.locked_by() is not None
        yield Place(store, profile, groups, formats, what, shares, is_running=is_running)
    finally:
        store.close()


def refuse_elsewhere(file: Path | None, home: Path) -> None:
    """Refuse a home of a node that is not there, where it is more likely in another folder than still to be made.

    Args:
        file: The node's configuration, None for that of the environment.
        home: As the configuration has it.

    Raises:
        HostError: It is more likely elsewhere (exit code 5).
    """
    if file is None or (not home.is_absolute() and file.resolve().parent != Path.cwd()):
        raise HostError(
            f"no node has run in {home.resolve()}; node.home is relative to the folder that the node runs in: go"
            f" there, or name it with {HOME_VARIABLE}",
            exit_code=_EXIT_STORE,
        )


def _place_of(row: Row) -> tuple[bool, int, int, bytes]:
    return (row.state != "delivered", row.order, row.timestamp, row.message_id)


_STATES: Final = {
    State.UNKNOWN: "pending",
    State.PENDING: "pending",
    State.DELIVERED: "delivered",
    State.INVALID: "invalid",
}
