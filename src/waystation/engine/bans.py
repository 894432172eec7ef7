"""Who is not welcome, why, and until when: the operator's list, kept in the store.

A subject is an identity (``id:`` and 64 hexadecimal digits) or an address key (``address:`` and what
``admission.address_key`` returns). Times are wall-clock microseconds, because a ban outlives the process.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from waystation.core.dids import key_of_did
from waystation.core.errors import LocalError
from waystation.core.ids import decode_key
from waystation.core.records import Record, Store
from waystation.engine.admission import address_key

__all__ = ["BANS_MAX", "LASTS_S_MAX", "TABLE", "Ban", "BanList", "parse_subject"]

TABLE: Final = "bans"
BANS_MAX: Final = 100_000
REASON_CHARS_MAX: Final = 200
LASTS_S_MAX: Final = 315_360_000
"""Ten years of 365 days: the longest ban with an end; who means longer means for good."""
_PAGE: Final = 1_000
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ban:
    """One entry of the list."""

    subject: str
    reason: str
    since_us: int
    """Wall-clock microseconds, UTC."""
    expires_us: int | None
    """Wall-clock microseconds, UTC, or None for good."""


def parse_subject(text: str) -> str:
    """Return the canonical form of a subject: an id52, a key in hex or as a DID, or an IP address; prefixes may stand.

    Raises:
        LocalError: It is none of these.
    """
    bare = text.removeprefix("id:").removeprefix("address:").strip()
    key = address_key(bare)
    if key and not text.startswith("id:"):
        return f"address:{key}"
    try:
        identity = key_of_did(bare) or decode_key(bare)
    except LocalError as error:
        raise LocalError(
            f"{text!r} is neither an IP address, nor an id52, nor a key in hexadecimal, nor a DID that is a key"
        ) from error
    return f"id:{identity.hex()}"


class BanList:
    """The list in memory; changes come back as records for the store."""

    def __init__(self, store: Store) -> None:
        """Read the list from ``store``."""
        self._bans: dict[str, Ban] = {}
        start = b""
        while page := list(store.scan(TABLE, start, _PAGE)):
            for key, value in page:
                self._bans[key.decode()] = _decode(key, value)
            start = page[-1][0] + b"\x00"
        self._addresses = sum(map(_is_address, self._bans))

    def __iter__(self) -> Iterator[Ban]:
        """Yield all entries, oldest first, expired ones included until they are lifted."""
        return iter(sorted(self._bans.values(), key=lambda ban: (ban.since_us, ban.subject)))

    @property
    def addresses(self) -> int:
        """How many entries are addresses, expired ones included until they are lifted."""
        return self._addresses

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._bans)

    def refuses(self, subject: str, wall_us: int) -> bool:
        """Return whether ``subject`` (canonical) is banned at this moment."""
        ban = self._bans.get(subject)
        return ban is not None and (ban.expires_us is None or ban.expires_us > wall_us)

    def add(self, ban: Ban) -> Record:
        """Add or replace an entry and return the record that keeps it.

        Raises:
            LocalError: The list is full, the reason is empty or too long, or the end is too far away.
        """
        if not 0 < len(ban.reason) <= REASON_CHARS_MAX:
            raise LocalError(f"a reason has 1 to {REASON_CHARS_MAX} characters")
        if ban.expires_us is not None and ban.expires_us - ban.since_us > LASTS_S_MAX * _MICROSECONDS:
            raise LocalError(f"a ban with an end lasts at most {LASTS_S_MAX} seconds")
        if len(self._bans) >= BANS_MAX and ban.subject not in self._bans:
            raise LocalError(f"the list holds at most {BANS_MAX} entries")
        value = json.dumps({"reason": ban.reason, "since_us": ban.since_us, "expires_us": ban.expires_us})
        record = Record(TABLE, ban.subject.encode(), value.encode())
        self._addresses += _is_address(ban.subject) and ban.subject not in self._bans
        self._bans[ban.subject] = ban  # last: a ban that cannot be kept must not be in force either
        return record

    def lift(self, subject: str) -> Record | None:
        """Remove an entry and return the record that forgets it, or None when there is none."""
        if self._bans.pop(subject, None) is None:
            return None
        self._addresses -= _is_address(subject)
        return Record(TABLE, subject.encode(), None)


def _is_address(subject: str) -> bool:
    return subject.startswith("address:")


def _decode(key: bytes, value: bytes) -> Ban:
    fields = json.loads(value)
    return Ban(key.decode(), fields["reason"], fields["since_us"], fields["expires_us"])
