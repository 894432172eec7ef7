"""Remembers the messages that were rejected last, with their reasons, so that ``why`` can show them.

``receiving`` notes them. Their authors resend them, because they are not acknowledged. One row in the store has them
too, written at most every five seconds, so that a program beside the node can show them (BSP-WHY).

Layout of the row: per message identifier 32, peer 32, length of the reason 1, reason in ASCII.
"""

from typing import Final, NamedTuple

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import HostError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record, Store
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["REMEMBERED_MAX", "RejectedMessages"]

REMEMBERED_MAX: Final = 256
_WRITE_MS: Final = 5_000
_TABLE: Final = "bsp_refused"
_KEY: Final = b"last"
_STORE_EXIT_CODE: Final = 5


class _Refused(NamedTuple):
    peer: PublicKey
    refusal: Refusal


class RejectedMessages:
    """The last messages that were rejected; the oldest is forgotten first."""

    def __init__(self, store: Store) -> None:
        """Begin with what the store has.

        Raises:
            HostError: The row is not one of ours (exit code 5).
        """
        self._refused = _read(store.get(_TABLE, _KEY) or b"")
        self._write_at = Instant(0)

    def note(self, message_id: bytes, peer: PublicKey, refusal: Refusal, now: Instant) -> Record | None:
        """Remember a rejected message; return the row to be written, when it is time for that."""
        self._refused.pop(message_id, None)
        # BSP-WHY: the last 256; a peer that floods us pushes out the others, and costs no more memory.
        if len(self._refused) >= REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[message_id] = _Refused(peer, refusal)
        # BSP-WHY: written at most every 5 s, as a flood of refused messages must not become a flood of writes.
        if now < self._write_at:
            return None
        self._write_at = after_ms(now, _WRITE_MS)
        rows = [
            key + peer + bytes((len(why.value),)) + why.value.encode() for key, (peer, why) in self._refused.items()
        ]
        return Record(_TABLE, _KEY, b"".join(rows))

    def find(self, message_id: bytes) -> tuple[PublicKey, Refusal] | None:
        """Return the peer that sent a message last and why it was rejected, None when that is not remembered."""
        return self._refused.get(message_id)


def _read(value: bytes) -> dict[bytes, _Refused]:
    cursor, refused = Cursor(value), {}
    try:
        while cursor.left:
            message_id, peer = cursor.take(ID_BYTES), PublicKey(cursor.take(KEY_BYTES))
            refused[message_id] = _Refused(peer, Refusal(cursor.take(cursor.take_u8()).decode()))
    except (ShortError, ValueError) as error:
        raise HostError(f"the store's table {_TABLE} is damaged", exit_code=_STORE_EXIT_CODE) from error
    return refused
