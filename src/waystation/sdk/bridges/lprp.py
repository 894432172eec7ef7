"""Carries BSP bundles (sealed records) over LPRP: each is one message, kept by a host until the recipient stored it.

``waystation bsp --lprp`` and programs give it to ``BspPeer.attach``. The two devices need not be online at the same
time. A bundle is repeated after a day at the earliest. Records travel in batches, because an answer may take hours.
Peers are put on our whitelist, so they do proof of work for their first bundles only. A bundle of a peer that the
device does not know yet is kept in memory for a while. If the host reports a full mailbox or a missing lease for the
recipient, the bundle does not count as sent.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import LinkTerms, Mode
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX
from waystation.sdk.backoff import Backoff
from waystation.sdk.bridges.carrier import BUNDLE_BEGINS, RelayCarrier, ignore
from waystation.sdk.bsp.carrier import CarrierSession
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.identity import put_key
from waystation.sdk.lprp import (
    KEY_FILE,
    ClientSettings,
    HostUnreachable,
    HostUrl,
    LprpTenant,
    Message,
    Outcome,
    WhitelistFailedError,
    WorkPool,
)

__all__ = ["LPRP_BUNDLE_BYTES_MAX", "LPRP_TERMS", "BspOverLprp", "HostUnreachable"]

_DAY_MS: Final = 86_400_000
LPRP_TERMS: Final = LinkTerms("lprp", base_ms=_DAY_MS, cap_ms=7 * _DAY_MS, outlives=True, mode=Mode.BATCH)
"""People come back within half a day, so a day is twice the latency (BSP-D11); who stays away for longer than a lease,
6.2 days, has lost his mailbox, and for him a copy a week is enough."""
LPRP_BUNDLE_BYTES_MAX: Final = 37_888
"""128 packets of 296 bytes, half of a mailbox (specs/lprp.md 7): one bundle does not shut everybody else out, and one
message of any length fits."""
_CARRY_S: Final = 240.0  # without the whitelist the longest bundle takes minutes of work; with it, seconds
_EARLY_MAX: Final = 64  # bundles of unknown senders, 2.3 MiB; each has cost its sender work
_LOOK_S: Final = 0.5  # as often as a tenant looks at its folder
_AGAIN_FIRST_S: Final = 1.0
_AGAIN_CAP_S: Final = 60.0


class BspOverLprp(RelayCarrier):
    """Carries bundles as the one tenant of a folder, which it holds while it is open."""

    def __init__(
        self,
        home: Path | str,
        host: HostUrl | str | None = None,
        *,
        key_pair: KeyPair | None = None,
        identities: Identities | None = None,
        pool: WorkPool | None = None,
        settings: ClientSettings | None = None,
        on_event: Callable[[object], None] | None = None,
        on_message: Callable[[Message], None] | None = None,
        carry_s: float = _CARRY_S,
        again_first_s: float = _AGAIN_FIRST_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """Describe a carrier.

        Args:
            home: Folder of the tenant, made if absent.
            host: ``lprp://KEY@host:4810``; None means the host that this folder used last.
            key_pair: The device's, to be the tenant's as well; None takes the folder's own, whatever it is.
            identities: Who the peers are at the host; None means by the same keys.
            pool: Processes for work; None means our own.
            settings: Of the protocol; None means the defaults.
            on_event: Gets ``CarrierFailure`` and the events of ``LprpTenant``.
            on_message: Gets messages that are no bundles; they are done when it returns.
            carry_s: How long one bundle may take, work included.
            again_first_s: First pause after our disk or the host's whitelist said no; doubled up to a minute.
            look_s: How soon a peer that the device has met is on the whitelist.

        Raises:
            LocalError: ``host`` is no such address.
        """
        super().__init__("LPRP", LPRP_TERMS, LPRP_BUNDLE_BYTES_MAX, identities, on_event)
        self._home = Path(home)
        self._key_pair = key_pair
        self._on_message = on_message if on_message is not None else ignore
        self._carry_s = carry_s
        self._again_first_s = again_first_s
        self._look_s = look_s
        self.tenant: Final = LprpTenant(home, host, keep_trying=True, pool=pool, settings=settings, on_event=on_event)
        """The tenant, for its status and whitelist; open while the carrier is."""
        self._early: deque[tuple[PublicKey, bytes]] = deque(maxlen=_EARLY_MAX)
        self._whitelist: dict[PublicKey, None] = {}
        self._has_new_friends = asyncio.Event()

    async def open(self, session: CarrierSession) -> None:
        """Begin to hold a lease and to take what arrives; a host that is away is no error.

        Raises:
            HomeBusyError: Another program listens with this folder.
            LocalError: The folder has another key than the device, or no host was ever named.
            HostError: The folder cannot be used.
        """
        self._session = session
        if self._key_pair is not None:
            put_key(self._home / KEY_FILE, self._key_pair)
        await self._stack.enter_async_context(self.tenant)
        for work in (self._receive(), self._look_at_peers(), self._befriend()):
            self._begin(work)

    async def _send(self, peer: PublicKey, bundle: bytes) -> None:
        """Leave a bundle at the host, and return once all of it is on the host's disk."""
        self._make_friend(peer)
        sent = await self.tenant.send(self._identities.relay_key_of(peer), bundle, timeout_s=self._carry_s)
        if sent.outcome is Outcome.UNANSWERED:
            raise RelayUnreachableError(f"{self.tenant.host}: {sent.outcome.sentence}")
        if not sent.ok:
            raise self._not_carried(peer, sent.outcome.sentence)

    # Receiving

    async def _receive(self) -> None:
        """Take messages; one that our disk has not taken stays in the inbox, and comes again after a pause."""
        backoff, is_over = self._backoff(), False
        while not is_over:
            try:
                async with contextlib.aclosing(self.tenant.messages()) as messages:
                    async for message in messages:
                        await self._on_any(message)
                        backoff.reset()
                    is_over = True
            except HostError as error:
                await self._pause(backoff, error)

    async def _on_any(self, message: Message) -> None:
        if not message.sealed or not message.data.startswith(BUNDLE_BEGINS):
            self._on_message(message)
            return
        sender = self._identities.peer_of(message.sender)
        if await self._session.take(message.data) is None and sender not in self._session.peers():
            self._early.append((sender, message.data))

    async def _look_at_peers(self) -> None:
        """Put peers on the whitelist as they are met, and hand in what they sent before."""
        while True:
            known = self._session.peers()
            for peer in known:
                self._make_friend(peer)
            for _ in range(len(self._early)):
                sender, bundle = self._early.popleft()
                if sender not in known or not await self._take(bundle, sender):
                    self._early.append((sender, bundle))
            await asyncio.sleep(self._look_s)

    # The whitelist

    def _make_friend(self, peer: PublicKey) -> None:
        friend = self._identities.relay_key_of(peer)
        if friend not in self._whitelist:
            self._whitelist[friend] = None
            self._has_new_friends.set()

    async def _befriend(self) -> None:
        """Put peers on the whitelist, and go on asking a host that is away."""
        backoff = self._backoff()
        while True:
            await self._has_new_friends.wait()
            self._has_new_friends.clear()
            try:
                listed = self.tenant.whitelist()
                new = [friend for friend in self._whitelist if friend not in listed]
                # Who finds no room goes on working for each packet.
                await self.tenant.allow(*new[: WHITELIST_KEYS_MAX - len(listed)])
                backoff.reset()
            except (WhitelistFailedError, HostError) as error:
                self._has_new_friends.set()
                await self._pause(backoff, error)

    def _backoff(self) -> Backoff:
        return Backoff(random.SystemRandom(), first_s=self._again_first_s, cap_s=_AGAIN_CAP_S)
