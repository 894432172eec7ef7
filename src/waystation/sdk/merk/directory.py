"""Finds the agreement key of a recipient: the pinned one, compared with the relay's key directory now and then.

``MerkClient`` calls ``look_up`` before it encrypts: a public key goes in, ``Found`` or an error comes out. A key that
differs from the pinned one is never used without the user's consent, since the relay or a thief could have put it
there.
"""

import asyncio
import math
from typing import Final, NamedTuple

from waystation.protocols.merk.messages import KeyAdvert
from waystation.protocols.merk.payload.contents import Extended
from waystation.protocols.merk.payload.sealing import Auth, Opened
from waystation.sdk.errors import KeyChangedError, KeyDiffersError, KeyUnknownError
from waystation.sdk.merk.recipients import Recipients
from waystation.sdk.merk.relays import MerkRelays
from waystation.sdk.store_news import StoreWatch

__all__ = ["ASK_AGAIN_S", "Directory", "Found"]

ASK_AGAIN_S: Final = 60.0  # a recipient who connects for the first time, or with a new key, is noticed so soon
_SENDERS_MAX: Final = 10_000
_ANSWERS_MAX: Final = 10_000
_UNPINNED_MAX: Final = 1_000
_FIRST_CONTACT_S: Final = (0.1, 0.3, 0.6)  # who connects now publishes a key one message behind that


class Found(NamedTuple):
    """What is known about a recipient."""

    agreement_key: bytes | None
    """32 bytes, or None when it is unknown."""
    is_ours: bool
    """Whether the recipient's client understands what only ours do."""


class Directory:
    """Looks up recipients."""

    def __init__(self, relays: MerkRelays, recipients: Recipients, disk: StoreWatch) -> None:
        """Ask over ``relays``; pin in ``recipients``, and report a refusal to ``disk``."""
        self._disk = disk
        self._relays = relays
        self._recipients = recipients
        self._asked_at: dict[bytes, float] = {}
        self._changed: dict[bytes, KeyAdvert] = {}
        self._senders: dict[bytes, None] = {}
        self._unpinned: dict[bytes, bytes] = {}

    async def look_up(self, key: bytes, timeout_s: float, *, needed: bool = False, given: bytes | None = None) -> Found:
        """Return what is known about a recipient; the key directory is asked at most every ``ASK_AGAIN_S``.

        Args:
            key: 32 bytes.
            timeout_s: How long to wait for a connection.
            needed: Whether an agreement key must be there, and be the pinned one.
            given: An agreement key that a person has given; it is pinned unless the recipient has published another.

        Raises:
            KeyUnknownError: ``needed``, and none is known.
            KeyDiffersError: The recipient has published another one than ``given``, or than was given before.
            KeyChangedError: ``needed``, and the recipient has another one than the pinned one.
            RelayUnreachableError: There is no connection within ``timeout_s``.
        """
        now_s = asyncio.get_running_loop().time()
        pinned = self._recipients.get(key)
        is_news = given is not None and (pinned is None or pinned.agreement_key != given)
        is_due = now_s - self._asked_at.get(key, -math.inf) >= ASK_AGAIN_S
        if is_news or is_due or (needed and pinned is None):
            advert = await self._relays.advert_of(key, timeout_s)
            if advert is None and needed and given is None and pinned is None:
                advert = await self._ask_again(key, timeout_s)
            if len(self._asked_at) >= _ANSWERS_MAX:
                self._asked_at.clear()
            self._asked_at[key] = now_s
            if given is not None:
                self._compare(key, given, advert)
            if advert is not None and self._learn(advert):
                self._changed[key] = advert
            elif advert is not None:
                self._changed.pop(key, None)
        pinned, changed = self._recipients.get(key), self._changed.get(key)
        if needed and pinned is None:
            raise KeyUnknownError(key)
        if needed and pinned is not None and changed is not None:
            kind = KeyDiffersError if pinned.by_hand else KeyChangedError
            raise kind(key, pinned.agreement_key, changed.agreement_key)
        return Found(pinned.agreement_key if pinned is not None else None, self.is_able(key))

    def is_able(self, key: bytes) -> bool:
        """Return whether a client is known to use the bound form, so that less of it is refused (MERK-BOUND)."""
        pinned = self._recipients.get(key)
        return key in self._senders or (pinned is not None and pinned.able)

    async def key_for_receipt(self, key: bytes, timeout_s: float) -> bytes | None:
        """Return the agreement key of who wrote to us, without pinning it: unknown senders must not fill the pins.

        Raises:
            RelayUnreachableError: There is no connection within ``timeout_s``.
        """
        pinned = self._recipients.get(key)
        if pinned is not None:
            return pinned.agreement_key
        known = self._unpinned.get(key)
        if known is None:
            advert = await self._relays.advert_of(key, timeout_s)
            if advert is None:
                return None
            known = self._unpinned[key] = advert.agreement_key
            if len(self._unpinned) > _UNPINNED_MAX:
                del self._unpinned[next(iter(self._unpinned))]
        return known

    def accept(self, key: bytes) -> bool:
        """Pin the key that the directory has instead of the pinned one; return whether there is one."""
        advert = self._changed.pop(key, None)
        if advert is not None:
            self._recipients.trust(advert)
        return advert is not None

    def note_sender(self, opened: Opened) -> None:
        """Note from a bound message that its sender's client is one of ours."""
        if isinstance(opened.content, Extended) and opened.auth is Auth.BOUND:
            self._senders[opened.sender] = None
            if len(self._senders) > _SENDERS_MAX:
                del self._senders[next(iter(self._senders))]

    async def _ask_again(self, key: bytes, timeout_s: float) -> KeyAdvert | None:
        """Ask for a recipient that may have connected this moment."""
        for pause_s in _FIRST_CONTACT_S:
            await asyncio.sleep(pause_s)
            advert = await self._relays.advert_of(key, timeout_s)
            if advert is not None:
                return advert
        return None

    def _learn(self, advert: KeyAdvert) -> bool:
        """Return as ``Recipients.learn``; a pin that the disk refuses holds all the same."""
        is_newer: list[bool] = []
        self._disk.attempt(lambda: is_newer.append(self._recipients.learn(advert)))
        return any(is_newer)

    def _compare(self, key: bytes, given: bytes, advert: KeyAdvert | None) -> None:
        """Pin a key that a person has given, unless the recipient's own word is another one.

        Raises:
            KeyDiffersError: It is; nothing is pinned.
        """
        pinned = self._recipients.get(key)
        if advert is not None and advert.agreement_key != given:
            if pinned is not None and pinned.agreement_key == given and advert.time_ms < pinned.time_ms:
                return  # what the recipient has said before it said the pinned one
            if pinned is None or pinned.agreement_key != advert.agreement_key:
                self._changed[key] = advert  # for ``accept``
            raise KeyDiffersError(key, given, advert.agreement_key)
        self._recipients.set_by_hand(key, given)
        self._changed.pop(key, None)
