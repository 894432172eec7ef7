"""Whose agreement key is which: what is pinned, asked of the key directory once in a while."""

import asyncio
from typing import Final, NamedTuple

from waystation.protocols.merk.contents import Extended
from waystation.protocols.merk.messages import KeyAdvert
from waystation.protocols.merk.sealing import Auth, Opened
from waystation.sdk.merk_errors import KeyChangedError, KeyDiffersError, KeyUnknownError
from waystation.sdk.merk_recipients import Learned, Recipient, Recipients
from waystation.sdk.merk_standing import StandingConnection

__all__ = ["ASK_AGAIN_S", "Directory", "Found"]

ASK_AGAIN_S: Final = 60.0  # a recipient who connects for the first time, or with a new key, is noticed so soon
_HEARD_MAX: Final = 10_000
_ANSWERS_MAX: Final = 10_000


class Found(NamedTuple):
    """What is known about a recipient."""

    agreement_key: bytes | None
    """32 bytes, or None when nobody knows it."""
    is_ours: bool
    """Whether the recipient's client understands what only ours do."""


class Directory:
    """Looks up recipients."""

    def __init__(self, standing: StandingConnection, recipients: Recipients) -> None:
        """Ask over ``standing``; pin in ``recipients``."""
        self._standing = standing
        self._recipients = recipients
        self._asked_at: dict[bytes, float] = {}
        self._changed: dict[bytes, KeyAdvert] = {}
        self._heard: dict[bytes, None] = {}

    async def look_up(self, key: bytes, timeout_s: float, *, needed: bool = False, given: bytes | None = None) -> Found:
        """Return what is known about a recipient; the key directory is asked at most every ``ASK_AGAIN_S``.

        Args:
            key: 32 bytes.
            timeout_s: How long to wait for a connection.
            needed: Whether an agreement key must be there, and be the pinned one.
            given: An agreement key that a person has given; it is pinned unless the recipient has published another.

        Raises:
            KeyUnknownError: ``needed``, and nobody knows one.
            KeyDiffersError: The recipient has published another one than ``given``, or than was given before.
            KeyChangedError: ``needed``, and the recipient has another one than the pinned one.
            RelayUnreachableError: There is no connection within ``timeout_s``.
        """
        now_s = asyncio.get_running_loop().time()
        pinned = self._recipients.get(key)
        unknown = (needed and pinned is None) or self._is_news(pinned, given)
        if unknown or now_s >= self._asked_at.get(key, now_s - ASK_AGAIN_S) + ASK_AGAIN_S:
            advert = await self._standing.advert_of(key, timeout_s)
            if len(self._asked_at) >= _ANSWERS_MAX:
                self._asked_at.clear()
            self._asked_at[key] = now_s
            if given is not None:
                self._compare(key, given, advert)
            self._learn(advert)
        pinned, changed = self._recipients.get(key), self._changed.get(key)
        if needed and pinned is None:
            raise KeyUnknownError(key)
        if needed and pinned is not None and changed is not None:
            kind = KeyDiffersError if pinned.by_hand else KeyChangedError
            raise kind(key, pinned.agreement_key, changed.agreement_key)
        is_ours = key in self._heard or (pinned is not None and not pinned.by_hand)
        return Found(pinned.agreement_key if pinned is not None else None, is_ours)

    def accept(self, key: bytes) -> bool:
        """Pin the key that the directory told instead of the pinned one; return whether there is one."""
        advert = self._changed.pop(key, None)
        if advert is not None:
            self._recipients.trust(advert)
        return advert is not None

    def heard(self, opened: Opened) -> None:
        """Note from a proved message that its sender's client is one of ours."""
        if isinstance(opened.content, Extended) and opened.auth is not Auth.NONE:
            self._heard[opened.sender] = None
            if len(self._heard) > _HEARD_MAX:
                del self._heard[next(iter(self._heard))]

    def _is_news(self, pinned: Recipient | None, given: bytes | None) -> bool:
        return given is not None and (pinned is None or pinned.agreement_key != given)

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

    def _learn(self, advert: KeyAdvert | None) -> None:
        if advert is None:
            return
        if self._recipients.learn(advert) is Learned.CHANGED:
            self._changed[advert.key] = advert
        else:
            self._changed.pop(advert.key, None)
