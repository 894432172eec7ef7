"""Splits long messages into fragments and reassembles them: an optional upper layer of LPRP.

The SDK cuts messages with it and assembles them; hosts never look inside. A fragment is ``id 16 | index 2 | count 2 |
bytes``, big-endian, and is sealed like any other payload. Fragments may arrive in any order and more than once. Ids are
separate per sender, whom the packet's signature identifies. A false index, count or size therefore harms only its
sender.

``Reassembly`` keeps incomplete messages in memory only; at its limits it evicts the oldest ones. It suits owners that
confirm packets only when a message is complete. An owner that confirms fragments earlier must store them on disk.

The specification defines no longer messages. Spec: seed, packet format; LPRP-FRAGMENTS.
"""

import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms

__all__ = [
    "FRAGMENTS_MAX",
    "FRAGMENT_HEADER_BYTES",
    "FRAGMENT_OVERHEAD_BYTES",
    "MESSAGE_BYTES_MAX",
    "MESSAGE_ID_BYTES",
    "Fragment",
    "Reassembly",
    "ReassemblyLimits",
    "cut",
    "read_fragment",
]

MESSAGE_ID_BYTES: Final = 16
MESSAGE_BYTES_MAX: Final = 65_536  # as large a payload as Bhumi takes; 222 packets
FRAGMENTS_MAX: Final = 1_024  # even with 64 bytes each
FRAGMENT_OVERHEAD_BYTES: Final = 128  # about what one costs beside its bytes, so that empty ones count too
_HEADER: Final = struct.Struct(f">{MESSAGE_ID_BYTES}sHH")
FRAGMENT_HEADER_BYTES: Final = _HEADER.size


@dataclass(frozen=True, slots=True)
class ReassemblyLimits:
    """Limits of incomplete messages; bytes count with ``FRAGMENT_OVERHEAD_BYTES`` each."""

    messages_per_sender: int = 16
    bytes_per_sender: int = 524_288
    messages_max: int = 1_024
    bytes_max: int = 16_777_216
    lifetime_ms: int = 3_600_000
    """From a message's first fragment; longer than a host that is silent for a while."""
    remembered_max: int = 16_384
    """Messages already complete, whose fragments may come again."""


def cut(message: bytes, budget: int, message_id: bytes) -> list[bytes]:
    """Return the fragments of a message, none longer than ``budget`` bytes.

    Args:
        message: 0 to 65,536 bytes.
        budget: Largest fragment, header of 20 bytes included; ``sealing.ONE_TIME_PLAINTEXT_MAX`` if each is sealed.
        message_id: 16 bytes that this sender uses for no other message: random, or a hash of it.

    Raises:
        LocalError: The message is too long, or the budget too small for it.
    """
    assert len(message_id) == MESSAGE_ID_BYTES
    room = budget - FRAGMENT_HEADER_BYTES
    # Spec 9: a message has at most 65,536 bytes, and a count of at most 1,024.
    if len(message) > MESSAGE_BYTES_MAX:
        raise LocalError(f"a message has at most {MESSAGE_BYTES_MAX} bytes, this has {len(message)}")
    if room < 1 or len(message) > room * FRAGMENTS_MAX:
        raise LocalError(f"{len(message)} bytes do not fit into {FRAGMENTS_MAX} fragments of {budget}")
    # Spec 9: what our clients seal is always a part of a message, be it the only one.
    parts = [message[at : at + room] for at in range(0, len(message), room)] or [b""]
    return [_HEADER.pack(message_id, index, len(parts)) + part for index, part in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Fragment:
    """One part of a message."""

    message_id: bytes
    """16 bytes."""
    index: int
    """0 to ``count`` - 1."""
    count: int
    """1 to 1,024: into how many the message was cut."""
    body: bytes


def read_fragment(data: bytes) -> Fragment | None:
    """Return the fragment that ``data`` is, or None when it is none."""
    if len(data) < FRAGMENT_HEADER_BYTES:
        return None
    message_id, index, count = _HEADER.unpack_from(data)
    # Spec 9: index below count, count at most 1,024.
    if not index < count <= FRAGMENTS_MAX:
        return None
    return Fragment(message_id, index, count, data[FRAGMENT_HEADER_BYTES:])


class _Partial:
    """A message that lacks fragments."""

    __slots__ = ("held_bytes", "message_bytes", "parts", "parts_count", "until")

    def __init__(self, parts_count: int, until: Instant) -> None:
        self.parts_count = parts_count
        self.until = until
        self.parts: dict[int, bytes] = {}
        self.message_bytes = 0
        self.held_bytes = 0


_Key = tuple[bytes, bytes]
"""Sender and message id."""


class Reassembly:
    """Reassembles messages; a limit pushes out the oldest message of the sender that holds most.

    Cost: ``take`` O(1), O(messages) when a limit over all senders is reached.
    """

    def __init__(self, limits: ReassemblyLimits | None = None) -> None:
        """Start empty."""
        self._limits = limits or ReassemblyLimits()
        self._partials: OrderedDict[_Key, _Partial] = OrderedDict()
        self._of_sender: dict[bytes, OrderedDict[bytes, None]] = {}
        self._held_of: dict[bytes, int] = {}
        self._held_bytes = 0
        self._complete: OrderedDict[_Key, None] = OrderedDict()
        self.dropped_count = 0
        """Fragments that had no good form, and messages pushed out or given up."""

    def sizes(self) -> dict[str, int]:
        """Return how much is kept: messages that lack fragments, bytes they hold, messages remembered as complete."""
        return {
            "messages": len(self._partials),
            "bytes": self._held_bytes,
            "remembered": len(self._complete),
        }

    def take(self, sender: bytes, data: bytes, now: Instant) -> bytes | None:
        """Take a fragment and return the message if it is complete now.

        Args:
            sender: Key that signed the packet, 32 bytes.
            data: A fragment of any form; a bad one is dropped.
            now: The current instant.
        """
        self.wake(now)
        fragment = read_fragment(data)
        if fragment is None:
            self.dropped_count += 1
            return None
        key = (sender, fragment.message_id)
        # Spec 9: fragments may come twice; a message is reported once.
        if key in self._complete:
            return None
        partial = self._partials.get(key)
        if partial is None:
            partial = self._begin(key, fragment.count, now)
        # Two counts of one id cannot both be true; the first one stays.
        if fragment.count != partial.parts_count:
            self.dropped_count += 1
            return None
        if fragment.index in partial.parts:
            return None
        return self._add(key, partial, fragment)

    def wake(self, now: Instant) -> None:
        """Give up messages that have waited too long."""
        while self._partials:
            key, partial = next(iter(self._partials.items()))
            if now < partial.until:
                return
            self._push_out(key)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        return next(iter(self._partials.values())).until if self._partials else None

    def _begin(self, key: _Key, parts_count: int, now: Instant) -> _Partial:
        sender, message_id = key
        own = self._of_sender.setdefault(sender, OrderedDict())
        if len(own) >= self._limits.messages_per_sender:
            self._push_out((sender, next(iter(own))))
        elif len(self._partials) >= self._limits.messages_max:
            self._push_out_of_busiest()
        # Pushing out a sender's last message forgets the sender.
        self._of_sender.setdefault(sender, OrderedDict())[message_id] = None
        partial = self._partials[key] = _Partial(parts_count, after_ms(now, self._limits.lifetime_ms))
        return partial

    def _add(self, key: _Key, partial: _Partial, fragment: Fragment) -> bytes | None:
        partial.parts[fragment.index] = fragment.body
        partial.message_bytes += len(fragment.body)
        # Spec 9: the sum of the parts is bounded, whatever each of them claims.
        if partial.message_bytes > MESSAGE_BYTES_MAX:
            self._push_out(key)
            return None
        if len(partial.parts) == partial.parts_count:
            self._forget(key)
            self._remember(key)
            return b"".join(partial.parts[index] for index in range(partial.parts_count))
        self._hold(key[0], partial, len(fragment.body) + FRAGMENT_OVERHEAD_BYTES)
        while self._held_of.get(key[0], 0) > self._limits.bytes_per_sender:
            self._push_out((key[0], next(iter(self._of_sender[key[0]]))))
        while self._held_bytes > self._limits.bytes_max:
            self._push_out_of_fullest()
        return None

    def _hold(self, sender: bytes, partial: _Partial, size: int) -> None:
        partial.held_bytes += size
        self._held_of[sender] = self._held_of.get(sender, 0) + size
        self._held_bytes += size

    def _push_out_of_fullest(self) -> None:
        fullest = max(self._of_sender, key=lambda sender: self._held_of.get(sender, 0))
        self._push_out((fullest, next(iter(self._of_sender[fullest]))))

    def _push_out_of_busiest(self) -> None:
        """Push out a message of the sender with most; of equals, with fewest bytes: a first fragment costs little."""
        busiest = max(self._of_sender, key=lambda sender: (len(self._of_sender[sender]), -self._held_of.get(sender, 0)))
        self._push_out((busiest, next(iter(self._of_sender[busiest]))))

    def _push_out(self, key: _Key) -> None:
        self._forget(key)
        self.dropped_count += 1

    def _forget(self, key: _Key) -> None:
        sender, message_id = key
        partial = self._partials.pop(key)
        self._held_bytes -= partial.held_bytes
        own = self._of_sender[sender]
        del own[message_id]
        if own:
            self._held_of[sender] = self._held_of.get(sender, 0) - partial.held_bytes
        else:
            del self._of_sender[sender]
            self._held_of.pop(sender, None)

    def _remember(self, key: _Key) -> None:
        self._complete[key] = None
        if len(self._complete) > self._limits.remembered_max:
            self._complete.popitem(last=False)
