"""BSP over LPRP: each bundle is one sealed message, left at a host until its recipient has it on disk.

The host keeps what it has accepted, so a recipient may be away for days and nobody has to be there at the same time:
a bundle is repeated after a day at the earliest. It travels in batch, since each question and answer may take a night.
Peers are put on our whitelist, so that a peer works for its first bundles at most. A bundle of somebody whom the device
does not know yet waits in memory for a while: whoever is met a minute later need not wait for a day. That a host is
full of mail for somebody who is away, or that the peer has no lease there, is told at once, and nothing then counts as
sent.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.links import LinkTerms, Mode
from waystation.protocols.lprp.whitelist import WHITELIST_KEYS_MAX
from waystation.sdk.bhumi_retry import Backoff
from waystation.sdk.bsp_carrier import Desk
from waystation.sdk.bsp_identities import Identities, put_key
from waystation.sdk.bsp_trouble import CarrierFailure, NotCarriedError
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.lprp import (
    KEY_FILE,
    ClientSettings,
    HostUrl,
    LprpTenant,
    Message,
    Outcome,
    WhitelistFailedError,
    WorkPool,
)

__all__ = ["LPRP_BUNDLE_BYTES_MAX", "LPRP_TERMS", "BspOverLprp"]

_DAY_MS: Final = 86_400_000
LPRP_TERMS: Final = LinkTerms("lprp", base_ms=_DAY_MS, cap_ms=7 * _DAY_MS, outlives=True, mode=Mode.BATCH)
"""People come back within half a day, so a day is twice the latency (BSP-D11); who stays away for longer than a lease,
6.2 days, has lost his mailbox, and for him a copy a week is enough."""
LPRP_BUNDLE_BYTES_MAX: Final = 37_888
"""128 packets of 296 bytes, half of a mailbox (specs/lprp.md 7): one bundle does not shut everybody else out, and one
message of any length fits."""
_BUNDLE_BEGINS: Final = b"BSPF"  # specs/bsp.md 5
_CARRY_S: Final = 240.0  # a stranger's longest bundle takes minutes of work; a friend's, seconds
_EARLY_MAX: Final = 64  # bundles of strangers, 2.3 MiB; each has cost its sender work
_LOOK_S: Final = 0.5  # as often as a tenant looks at its folder
_AGAIN_FIRST_S: Final = 1.0
_AGAIN_CAP_S: Final = 60.0


class BspOverLprp:
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
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
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
            on_event: Gets ``CarrierFailure`` and all that ``LprpTenant`` tells.
            on_message: Gets messages that are no bundles; they are done when it returns.
            rng: Source of keys, ids and padding; anything but the default is for tests.
            clock: Unix seconds.
            carry_s: How long one bundle may take, work included.
            again_first_s: First pause after our disk or the host's whitelist said no; doubled up to a minute.
            look_s: How soon somebody whom the device has met is on the whitelist.

        Raises:
            LocalError: ``host`` is no such address.
        """
        self._home = Path(home)
        self._key_pair = key_pair
        self._identities = identities or Identities()
        self._tell = on_event if on_event is not None else _ignore
        self._on_message = on_message if on_message is not None else _ignore
        self._rng = rng or random.SystemRandom()
        self._carry_s = carry_s
        self._again_first_s = again_first_s
        self._look_s = look_s
        self._tenant = LprpTenant(
            home,
            host,
            keep_trying=True,
            pool=pool,
            settings=settings,
            on_event=on_event,
            rng=rng,
            clock=clock,
        )
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._early: deque[tuple[PublicKey, bytes]] = deque(maxlen=_EARLY_MAX)
        self._friends: dict[PublicKey, None] = {}
        self._has_new_friends = asyncio.Event()

    @property
    def terms(self) -> LinkTerms:
        """The same for every host."""
        return LPRP_TERMS

    @property
    def bundle_bytes_max(self) -> int:
        """37 KiB."""
        return LPRP_BUNDLE_BYTES_MAX

    @property
    def tenant(self) -> LprpTenant:
        """The tenant, for its status and whitelist; open while the carrier is."""
        return self._tenant

    def reaches(self, peer: PublicKey) -> bool:  # noqa: ARG002 - the host says whether it has a lease
        """Return True: whether the peer is a tenant of the host, only a bundle tells."""
        return True

    async def open(self, desk: Desk) -> None:
        """Begin to hold a lease and to take what arrives; a host that is away is no error.

        Raises:
            HomeBusyError: Another program listens with this folder.
            LocalError: The folder has another key than the device, or no host was ever named.
            HostError: The folder cannot be used.
        """
        if self._key_pair is not None:
            put_key(self._home / KEY_FILE, self._key_pair)
        await self._stack.enter_async_context(self._tenant)
        work = (self._receive(desk), self._look_at_peers(desk), self._befriend())
        self._tasks += [asyncio.create_task(each) for each in work]

    async def close(self) -> None:
        """Let go of the folder; what has arrived and was not taken comes at the next start. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def carry(self, peer: PublicKey, bundle: bytes) -> None:
        """Leave a bundle at the host, and return once all of it is on the host's disk.

        Raises:
            LocalError: The bundle is too long.
            RelayUnreachableError: The host is silent.
            RemoteError: It did not take the bundle, or not all of it.
        """
        if len(bundle) > LPRP_BUNDLE_BYTES_MAX:
            raise LocalError(f"a bundle over LPRP has at most {LPRP_BUNDLE_BYTES_MAX} bytes, this has {len(bundle)}")
        self._make_friend(peer)
        target = self._identities.relay_key_of(peer)
        try:
            sent = await self._tenant.send(target, bundle, timeout_s=self._carry_s)
        except LocalError as error:
            raise NotCarriedError("LPRP", peer, str(error)) from error
        if sent.outcome is Outcome.UNANSWERED:
            raise RelayUnreachableError(f"{self._tenant.host}: {sent.outcome.sentence}")
        if not sent.accepted:
            raise NotCarriedError("LPRP", peer, sent.outcome.sentence)

    # Receiving

    async def _receive(self, desk: Desk) -> None:
        """Take messages; one that our disk has not taken stays in the inbox, and comes again after a pause."""
        backoff, is_over = self._backoff(), False
        while not is_over:
            try:
                async with contextlib.aclosing(self._tenant.messages()) as messages:
                    async for message in messages:
                        await self._take(desk, message)
                        backoff.reset()
                    is_over = True
            except HostError as error:
                self._tell(CarrierFailure("lprp", None, str(error)))
                await asyncio.sleep(backoff.next_s())

    async def _take(self, desk: Desk, message: Message) -> None:
        if not message.sealed or not message.data.startswith(_BUNDLE_BEGINS):
            self._on_message(message)
            return
        sender = self._identities.peer_of(message.sender)
        if await desk.take(message.data) is None and sender not in desk.peers():
            self._early.append((sender, message.data))

    async def _look_at_peers(self, desk: Desk) -> None:
        """Put peers on the whitelist as they are met, and hand in what they sent before."""
        while True:
            known = desk.peers()
            for peer in known:
                self._make_friend(peer)
            for _ in range(len(self._early)):
                sender, bundle = self._early.popleft()
                if sender in known:
                    await self._hand_in(desk, sender, bundle)
                else:
                    self._early.append((sender, bundle))
            await asyncio.sleep(self._look_s)

    async def _hand_in(self, desk: Desk, sender: PublicKey, bundle: bytes) -> None:
        try:
            await desk.take(bundle)
        except HostError as error:
            self._early.append((sender, bundle))
            self._tell(CarrierFailure("lprp", sender, str(error)))

    # The whitelist

    def _make_friend(self, peer: PublicKey) -> None:
        friend = self._identities.relay_key_of(peer)
        if friend not in self._friends:
            self._friends[friend] = None
            self._has_new_friends.set()

    async def _befriend(self) -> None:
        """Put peers on the whitelist, and go on asking a host that is away."""
        backoff = self._backoff()
        while True:
            await self._has_new_friends.wait()
            self._has_new_friends.clear()
            try:
                listed = self._tenant.whitelist()
                new = [friend for friend in self._friends if friend not in listed]
                # Who finds no room goes on working for each packet.
                await self._tenant.allow(*new[: WHITELIST_KEYS_MAX - len(listed)])
                backoff.reset()
            except (WhitelistFailedError, HostError) as error:
                self._tell(CarrierFailure("lprp", None, str(error)))
                self._has_new_friends.set()
                await asyncio.sleep(backoff.next_s())

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=self._again_first_s, cap_s=_AGAIN_CAP_S)


def _ignore(_event: object) -> None:
    """Do nothing; for what nobody watches."""
