"""The records of hosted groups and their owners: the rows on disk, and each owner's use of its quota.

``host`` and ``groups`` read and write them. Table ``bsp_hosted`` (integers big-endian): owner 32 + group 32 -> version
1, since 8 (Unix ms), the ``host`` command that would recreate the group as it is now; owner 32 + 32 zeros -> version 1,
left 8 (Unix ms at which the owner was first missing in the configuration, 0 while it is configured).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.core.records import Record, Store
from waystation.core.settings import InForce
from waystation.crypto.agreement import WeakKeyError, agreement_public_of
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox.commands import KEEP_DEFAULT_MS, START, Amounts, Host, decode, encode
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.settings import BspSettings

__all__ = [
    "RESERVE",
    "Account",
    "Hosting",
    "KeptOwner",
    "hosting_record",
    "is_weak",
    "no_record",
    "owner_record",
    "quota_of",
    "read_kept",
]

RESERVE: Final = Amounts(groups=0, live_bytes=1 << 20, live_messages=1_000, tombstones=10_000)
"""Room of control groups beyond the quota, so that an owner at its quota can still drop a group."""

_TABLE: Final = "bsp_hosted"
_VERSION: Final = b"\x01"
_TIME_BYTES: Final = 8
_PAGE: Final = 256
_STORE_EXIT_CODE: Final = 5


@dataclass(slots=True)
class Hosting:
    """One hosted group, or an owner's control group."""

    owner: PublicKey
    host: Host
    """Its current form; of a control group the members are the owner alone."""
    since_ms: int
    """Wall clock when it was hosted first."""
    is_control: bool = False
    is_active: bool = True
    """False when the configuration has the group too: it is the operator's then, and only the row is kept."""
    live: dict[bytes, None] = field(default_factory=dict)
    """Messages that have their body, in the order in which they came here."""

    @property
    def keep_ms(self) -> int:
        """Milliseconds for which a body is kept."""
        return self.host.keep_ms or KEEP_DEFAULT_MS


class KeptOwner(NamedTuple):
    """The stored rows of one owner."""

    left_ms: int
    """When it was first missing in the configuration; 0 while it is there."""
    hosted: list[Hosting]


class Account:
    """The use of an owner's quota.

    A message costs O(1): admitted messages are added to the last count, and bodies that were deleted since only make
    it too high. The groups are counted again when the sum reaches a bound; a size that did not fit then is not counted
    for again until a body is deleted (``freed``), so that messages to a full mailbox cost no more than to any other.
    """

    __slots__ = ("_bytes", "_copies", "_device", "_limits", "_live", "_quota", "_refused", "_tombstones", "groups")

    def __init__(self, device: BspDevice, quota: Amounts, limits: InForce[BspLimits]) -> None:
        self._device = device
        self._limits = limits
        self._quota = quota
        self.groups: dict[bytes, Hosting] = {}
        """Those that count: active ones, and the control group."""
        self._live = self._bytes = self._tombstones = quota.live_messages  # forces a count at the first look
        self._copies = 0
        self._refused: tuple[int, Amounts, int] | None = None
        """The message that did not fit at the last count, while no body was deleted: size, reserve, copies."""

    def admits(self, size_bytes: int, reserve: Amounts, copies: int = 0) -> bool:
        """Return whether one more message fits, and take it into account.

        Args:
            size_bytes: Length of its body.
            reserve: Room beyond the quota.
            copies: Number of members that it is for; 0 of a control group, so that it can still drop a group.
        """
        # A full mailbox refuses in O(1): counting again for each message would be an attack on the node.
        if self._refused is not None and self._is_no_less(size_bytes, reserve, copies):
            return False
        # Spec 6: control groups count towards the quota, with a reserve of their own.
        most = Amounts(*(each + more for each, more in zip(self._quota, reserve, strict=True)))
        if not self._fits(size_bytes, most, copies):
            uses = self.uses()
            self._live, self._bytes, self._tombstones = uses.live_messages, uses.live_bytes, uses.tombstones
            self._copies = self.copies()
            if not self._fits(size_bytes, most, copies):
                self._refused = (size_bytes, reserve, copies)
                return False
            self._tombstones += uses.live_messages  # each of them may become one before the next count
        self._live += 1
        self._copies += copies
        self._bytes += size_bytes
        self._tombstones += 1
        return True

    def use_quota(self, quota: Amounts) -> None:
        """Hold the owner to another quota; nothing that is kept is deleted."""
        self._quota = quota
        self.recount()

    def recount(self) -> None:
        """Count at the next message: a group came, or something was added past ``admits``."""
        # Above every bound, so that the next message counts the groups.
        self._live = self._quota.live_messages + RESERVE.live_messages
        self._refused = None

    def freed(self) -> None:
        """Count again when it matters: a body went."""
        self._refused = None

    def uses(self) -> Amounts:
        """Return the used part of the quota.

        Cost: O(groups).
        """
        usages = [self._device.usage(group_id) for group_id in self.groups]
        return Amounts(
            sum(not hosting.is_control for hosting in self.groups.values()),
            sum(usage.live_bytes for usage in usages),
            sum(usage.live_count for usage in usages),
            sum(usage.tombstones for usage in usages),
        )

    def copies(self) -> int:
        """Return how many copies of bodies are kept ready, one for each message and member.

        Cost: O(groups).
        """
        hosted = [(group_id, each) for group_id, each in self.groups.items() if not each.is_control]
        return sum(self._device.usage(group_id).live_count * len(each.host.members) for group_id, each in hosted)

    def _is_no_less(self, size_bytes: int, reserve: Amounts, copies: int) -> bool:
        """Return whether a message asks for as much as the refused one, or more."""
        assert self._refused is not None
        size, same, least = self._refused
        return size_bytes >= size and copies >= least and reserve == same

    def _fits(self, size_bytes: int, most: Amounts, copies: int) -> bool:
        return (
            # Spec 6: 400,000 messages times members, each a few hundred bytes until the member holds it (BSP-HOST),
            # 50,000 bodies, 64 MiB, 500,000 identifiers per owner.
            (not copies or self._copies + copies <= self._limits.now.owner_copies)
            and self._live < most.live_messages
            and self._bytes + size_bytes <= most.live_bytes
            and self._tombstones < most.tombstones
        )


def quota_of(settings: BspSettings) -> Amounts:
    """Return the quota of each owner."""
    return Amounts(
        settings.owner_groups_max,
        settings.owner_mib_max << 20,
        settings.owner_messages_max,
        settings.owner_tombstones_max,
    )


def is_weak(key: PublicKey) -> bool:
    """Return whether no device can prove to hold a key: it is no point of the main subgroup, or not canonical.

    Cost: 150 microseconds.
    """
    try:
        # Spec 6: a key must be a canonical point of Ed25519's main subgroup.
        agreement_public_of(key)
    except WeakKeyError:
        return True
    return False


# Rows


def hosting_record(hosting: Hosting) -> Record:
    """Return the row of a hosted group."""
    value = _VERSION + hosting.since_ms.to_bytes(_TIME_BYTES, "big") + encode(hosting.host)
    return Record(_TABLE, hosting.owner + hosting.host.group_id, value)


def owner_record(owner: PublicKey, left_ms: int) -> Record:
    """Return the row that remembers an owner, and since when it is gone."""
    return Record(_TABLE, owner + START, _VERSION + left_ms.to_bytes(_TIME_BYTES, "big"))


def no_record(owner: PublicKey, group_id: bytes = START) -> Record:
    """Return the removal of a hosted group's row, or without a group of the owner's."""
    return Record(_TABLE, owner + group_id, None)


def read_kept(store: Store) -> dict[PublicKey, KeptOwner]:
    """Return the stored rows of every owner, by key.

    Raises:
        HostError: A row is not one of ours (exit code 5).
    """
    kept: dict[PublicKey, KeptOwner] = {}
    rows = list(_rows(store))
    for lost in store.damaged(_TABLE):
        # BSP-DAMAGED: an owner whose row is lost counts as configured; one that is not has its 14 days anew.
        if lost.key_is_good and lost.key.endswith(START):
            kept[PublicKey(lost.key[:KEY_BYTES])] = KeptOwner(0, [])
    for key, value in rows:
        owner, group_id = PublicKey(key[:KEY_BYTES]), key[KEY_BYTES:]
        if len(group_id) != ID_BYTES or value[:1] != _VERSION or len(value) < 1 + _TIME_BYTES:
            raise _damaged()
        time_ms, rest = int.from_bytes(value[1 : 1 + _TIME_BYTES], "big"), value[1 + _TIME_BYTES :]
        if group_id == START:
            kept[owner] = KeptOwner(time_ms, [])
        # A hosted group without its owner's row means that a part of the commit is missing.
        elif owner in kept:  # zeros sort before every group
            kept[owner].hosted.append(Hosting(owner, _host(group_id, rest), time_ms))
        else:
            raise _damaged()
    return kept


def _rows(store: Store) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while page := list(store.scan(_TABLE, start, _PAGE)):
        yield from page
        start = page[-1][0] + b"\x00"


def _host(group_id: bytes, content: bytes) -> Host:
    try:
        found = decode(content)
    except MalformedError as error:
        raise _damaged() from error
    if not isinstance(found, Host) or found.group_id != group_id:
        raise _damaged()
    return found


def _damaged() -> HostError:
    text = f"the store's table {_TABLE} is damaged, or was written by a newer waystation"
    return HostError(text, exit_code=_STORE_EXIT_CODE)
