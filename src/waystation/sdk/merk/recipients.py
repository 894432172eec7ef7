"""The pinned agreement keys of recipients, in a file or in memory; a key is pinned when it is first seen.

``directory`` reads and writes it, ``waystation merk keys`` shows it. The recipient signs its advert in the key
directory, so a relay cannot substitute a key of its own. A relay could replay an old advert, so adverts older than the
pinned one are ignored. A newer advert with another key is not pinned automatically: the signing key may be stolen, so
the user must decide.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import decode_key_hex
from waystation.protocols.merk.messages import KeyAdvert
from waystation.sdk.private_table import PrivateTable

__all__ = ["RECIPIENTS_FILE", "RECIPIENTS_MAX", "Recipient", "Recipients"]

RECIPIENTS_FILE: Final = "merk_recipients.json"
RECIPIENTS_MAX: Final = 10_000


class Recipient(NamedTuple):
    """What is known about one recipient."""

    agreement_key: bytes
    """X25519, 32 bytes."""
    time_ms: int
    """Of the advert, Unix milliseconds; 0 when it was given by hand."""
    by_hand: bool
    """Whether a person has given it."""
    able: bool = False
    """Whether the recipient has ever published a key: its client is one of ours and reads the bound form (MERK-BOUND).
    That stays, whatever key is given later, so that no relay can talk anybody back to the legacy form."""


class Recipients(PrivateTable):
    """The pins of one identity; a change raises HostError as ``PrivateTable``."""

    def __init__(self, path: Path | None = None) -> None:
        """Keep them in the file ``path``, made at the first change; None keeps them in memory."""
        self._known: dict[bytes, Recipient] = {}
        super().__init__(path, "recipients")

    def get(self, key: bytes) -> Recipient | None:
        """Return what is pinned for a 32-byte key."""
        return self._known.get(key)

    def known(self) -> Mapping[bytes, Recipient]:
        """Return everybody who is known, by key."""
        self._refresh()
        return dict(self._known)

    def learn(self, advert: KeyAdvert) -> bool:
        """Pin a valid advert when it is the first; return whether it names a newer key than the pinned one.

        Raises:
            LocalError: There are ``RECIPIENTS_MAX`` already.
            HostError: The file cannot be written.
        """
        pinned = self._known.get(advert.key)
        is_other = pinned is not None and pinned.agreement_key != advert.agreement_key
        if pinned is None or (pinned.by_hand and not is_other):
            self.trust(advert)
        return pinned is not None and is_other and advert.time_ms >= pinned.time_ms

    def trust(self, advert: KeyAdvert) -> None:
        """Pin what an advert says, whatever was pinned before."""
        self._pin(advert.key, Recipient(advert.agreement_key, advert.time_ms, by_hand=False, able=True))

    def set_by_hand(self, key: bytes, agreement_key: bytes) -> None:
        """Pin an agreement key of 32 bytes that a person has given; what an advert said of the same key is kept."""
        pinned = self._known.get(key)
        if pinned is None or pinned.agreement_key != agreement_key:
            self._pin(key, Recipient(agreement_key, 0, by_hand=True, able=pinned is not None and pinned.able))

    def forget(self, key: bytes) -> bool:
        """Forget a recipient, so that the next advert is the first again; return whether anything was known."""
        self._refresh()
        known = key in self._known
        if known:
            self._change(lambda: self._drop(key))
        return known

    def _pin(self, key: bytes, recipient: Recipient) -> None:
        self._change(lambda: self._put(key, recipient))

    def _put(self, key: bytes, recipient: Recipient) -> None:
        if key not in self._known and len(self._known) >= RECIPIENTS_MAX:
            raise LocalError(f"{RECIPIENTS_MAX} recipients are known already; forget some")
        self._known[key] = recipient

    def _drop(self, key: bytes) -> None:
        self._known.pop(key, None)

    def _read(self, document: dict[str, Any]) -> None:
        self._known = {decode_key_hex(key): _recipient_of(each) for key, each in document.items()}

    def _document(self) -> dict[str, Any]:
        return {
            key.hex(): each._asdict() | {"agreement_key": each.agreement_key.hex()} for key, each in self._known.items()
        }


def _recipient_of(document: Any) -> Recipient:
    time_ms, by_hand = int(document["time_ms"]), bool(document["by_hand"])
    able = bool(document.get("able", not by_hand))  # absent in files of before
    return Recipient(decode_key_hex(document["agreement_key"]), time_ms, by_hand, able)
