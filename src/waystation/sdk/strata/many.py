"""A client of several Strata relays: it publishes to the best ones, reads from several, and verifies what they send.

Each relay's own client checks its packets. This module delivers each packet once, with the earliest ``received_at`` of
any relay. Observations of relays are stored in the table of scores and decide which one is used next. Probes find those
that drop packets silently. Churn tries relays from bootstrap data. Spec: RFC-0004 7; specs/strata.md 7, 18, 19.
"""

import asyncio
import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from waystation.core.errors import LocalError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.strata.client.bootstrap import BootstrapDocument, Snapshot
from waystation.protocols.strata.client.events import PacketDropped, Violation
from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.client.relay_pool import RelayPool
from waystation.protocols.strata.client.sightings import SIGHTINGS_MAX, Sightings
from waystation.protocols.strata.client.watch import Pinged, RelayWatch
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet, parse_packet_id
from waystation.rules.relay_choice import (
    Probe,
    Profile,
    ProfileChoice,
    Verdict,
)
from waystation.rules.relay_state import EVALUATION_S, Change
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.life import Life, Reading
from waystation.sdk.relay_list import Connected, Disconnected
from waystation.sdk.relay_scores import RelayEntry, RelayScores
from waystation.sdk.renamed import warn_renamed
from waystation.sdk.store_news import StoreFailed, StoreRecovered, StoreWatch
from waystation.sdk.strata.fan_out import failures_of, fan_out
from waystation.sdk.strata.fetch import as_packet_id
from waystation.sdk.strata.merge import merge
from waystation.sdk.strata.outcome import Sent, sent_of
from waystation.sdk.strata.places import Place, Places
from waystation.sdk.strata.relay import IN_DOUBT_S, Receipt, RelayClient
from waystation.sdk.strata.subscription import Delivery, Subscription, check_filters
from waystation.transport.http_get import TlsContext
from waystation.transport.silence import SILENCE_S

__all__ = ["EVERYTHING", "ManyRelays"]

EVERYTHING: Final = Filters()
"""Filters that restrict nothing."""

_PROBE_WAIT_S: Final = 10.0


class ManyRelays:
    """A client of several relays; use it in ``async with``."""

    def __init__(
        self,
        scores: RelayScores,
        urls: Iterable[str] = (),
        *,
        only: bool = False,
        identity: Identity | None = None,
        tls: TlsContext | None = None,
        book: KeyBook | None = None,
        profile: Profile = Profile.STANDARD,
        has_private_path: bool = False,
        bootstrap_urls: Iterable[str] = (),
        bootstrap: BootstrapDocument | None = None,
        snapshots: Iterable[Snapshot] = (),
        on_change: Callable[[str, Change], None] | None = None,
        on_connection: Callable[[str, Connected | Disconnected], None] | None = None,
        on_store: Callable[[StoreFailed | StoreRecovered], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe the client; relays of the table are known, ``urls`` are added to it once they have answered.

        Args:
            scores: The table, opened by the caller and closed by it.
            urls: WebSocket addresses.
            only: Use ``urls`` and no other relay of the table.
            identity: Signs; None only reads.
            tls: Context for all of them.
            book: Keys of authors.
            profile: What the user prefers; see ``privacy`` for what holds.
            has_private_path: Whether connections run over a private network.
            bootstrap_urls: Relays to try now and then, for churn.
            bootstrap: A checked document; its relays are tried, too, and must bear the DIDs that it names.
            snapshots: Advice; the relays in it are tried, too, and their mean score counts a fifth of ours.
            on_change: Gets address and change whenever a relay's state moves.
            on_connection: Gets address and what happened whenever a relay is reached, lost, or not reached.
            on_store: Gets what becomes of the disk; a refusal ends nothing.
            rng: Source of chance.
            clock: Unix seconds.
            silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.
        """
        self._scores, self._identity, self._tls, self._silence_s = scores, identity, tls, silence_s
        urls = list(urls)
        self._clock = clock
        self._rng = rng if rng is not None else random.SystemRandom()
        known = [entry for entry in scores.list() if not only or entry.url in set(urls)]
        self._pool = RelayPool(
            known,
            urls,
            profile=profile,
            has_private_path=has_private_path,
            bootstrap_urls=bootstrap_urls,
            bootstrap=bootstrap,
            snapshots=snapshots,
            on_change=on_change or (lambda _url, _change: None),
            rng=self._rng,
            clock=clock,
        )
        self._on_connection = on_connection or (lambda _url, _event: None)
        self._disk = StoreWatch(on_store or (lambda _event: None))
        skew = bootstrap.clock_skew_s if bootstrap is not None else None
        # Spec 4.2: the skew of bootstrap data comes before ours (STRATA-BOOTSTRAP).
        self.book = book if book is not None else KeyBook(skew=skew)
        self._clients: dict[str, RelayClient] = {}
        self._sightings = Sightings()
        self._left_out: OrderedDict[bytes, None] = OrderedDict()
        self._life = Life("the Strata client")
        self._task: asyncio.Task[None] | None = None
        self._partings: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._life.open()
        self._task = asyncio.get_running_loop().create_task(self._maintain())
        return self

    def reconnect(self) -> None:
        """Try every relay without a connection now, as after a change of the network; connections that stand stay."""
        self._life.check()
        for client in self._clients.values():
            client.reconnect()

    async def __aexit__(self, *_: object) -> None:
        self._life.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._scores.unlocked()
        self._disk.attempt(self._save)
        for client in list(self._clients.values()):
            await client.aclose()
        self._clients.clear()
        await asyncio.gather(*self._partings)
        self._raise_failure()

    def _check(self) -> None:
        self._life.check()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    @property
    def public_key(self) -> PublicKey:
        """The key that signs; raises LocalError without an identity."""
        return PublicKey(self._signer.key_pair.public)

    @property
    def _signer(self) -> Identity:
        if self._identity is None:
            raise LocalError("publishing content needs an identity that signs it")
        return self._identity

    @property
    def entries(self) -> list[RelayEntry]:
        """Every relay known, by address."""
        return self._pool.entries

    @property
    def privacy(self) -> ProfileChoice:
        """Which privacy profile holds now, and why not the preferred one; the preference itself stays."""
        return self._pool.privacy

    def received_at(self, packet_id: bytes) -> int | None:
        """Return the earliest time at which any relay says that it saw a packet."""
        return self._sightings.received_at(packet_id)

    @property
    def left_out(self) -> int:
        """How many packets came that could not be verified and no relay has delivered in a form that could."""
        return len(self._left_out)

    # Publishing

    async def send(
        self,
        content: Mapping[str, Any] | Packet,
        *,
        timeout_s: float = IN_DOUBT_S,
        everywhere: bool = False,
        **fields: Any,
    ) -> Sent:
        """Publish to the best relays, after the delay that the privacy profile asks for.

        Args:
            content: A packet as it is; or what becomes one of now, signed by the identity.
            timeout_s: How long to ask a relay that has not answered, again when a connection has ended.
            everywhere: Publish to all relays known, as for a key event: one that lacks it refuses what the key signs.
            fields: Of the packet; see ``Identity.packet``.

        Raises:
            RelayUnreachableError: There is no relay to use, or none can be reached.
            LocalError: There is no identity, or ``content`` is no mapping with a ``type``.
        """
        self._check()
        now_s = int(self._clock())
        packet = content if isinstance(content, Packet) else self._signer.packet(content, timestamp=now_s, **fields)
        plan = self._pool.plan_publish(everywhere=everywhere)
        if not plan.relays:
            raise RelayUnreachableError(self._pool.why_none("publish to"))
        await asyncio.sleep(plan.delay_ms / 1_000)
        outcomes = await fan_out({url: self._publish(url, packet, timeout_s) for url in plan.relays})
        receipts = tuple(each for each in outcomes.values() if isinstance(each, Receipt))
        for receipt in receipts:
            self._sightings.note(packet, receipt.relay, None)
        return sent_of(packet, receipts, failures_of(outcomes), plan.notices)

    async def publish(self, content: Mapping[str, Any] | Packet, **fields: Any) -> Sent:
        """Publish, and raise as ``Sent.check``; the old name of ``send``."""
        warn_renamed("ManyRelays.publish and post", "ManyRelays.send")
        return (await self.send(content, **fields)).check()

    post = publish

    async def _publish(self, url: str, packet: Packet, timeout_s: float) -> Receipt:
        client = self._client(url)
        await client.reached()
        return await client.publish(packet, timeout_s=timeout_s)

    # Reading

    def messages(
        self,
        filters: Filters = EVERYTHING,
        *,
        limit: int | None = None,
        follow: bool = True,
        count: int = 0,
        resume: str | None = None,
        keep_trying: bool = False,
    ) -> Reading[Delivery]:
        """Return an iterator over packets, each once, whichever relay has it first; see ``RelayClient.subscribe``.

        A later word of an earlier ``received_at`` is kept for ``received_at``.

        Args:
            filters: What is wanted.
            limit: At most so many stored packets of each relay; None for all of them.
            follow: Go on with new packets.
            count: End after so many packets; 0 for no end.
            resume: A name under which the file of scores keeps how far each relay was read. The next program with this
                name and these filters goes on behind the last packet that this one was done with, which is when it
                asked for another or met the end.
            keep_trying: Wait for a relay instead of failing when none can be reached at first.

        Raises:
            RelayUnreachableError: There is no relay, or none can be reached.
            LocalError: ``resume`` belongs to other filters, or ``filters`` are none.
            WaystationError: Every relay has refused; the first one's reason.
        """
        self._check()
        check_filters(filters)
        source = self._deliveries(filters, limit, follow, count, resume, keep_trying)
        return Reading(set(), "messages() of the Strata client", lambda: source, resumes=False)

    def subscribe(self, filters: Filters = EVERYTHING, **options: Any) -> Reading[Delivery]:
        """Return an iterator over packets; the old name of ``messages``."""
        warn_renamed("ManyRelays.subscribe", "ManyRelays.messages")
        return self.messages(filters, **options)

    async def _deliveries(
        self, filters: Filters, limit: int | None, follow: bool, count: int, resume: str | None, keep_trying: bool
    ) -> AsyncGenerator[Delivery, None]:
        chosen = self._pool.choose_reads()
        if not chosen:
            raise RelayUnreachableError(self._pool.why_none("read from"))
        with contextlib.ExitStack() as stack:
            places = None
            if resume is not None:
                await self._scores.unlocked()  # the same file; its tables may have to be made
                places = stack.enter_context(contextlib.closing(Places(self._scores.path, resume, filters)))
            relays = chosen if keep_trying else await self._reached(chosen, patient=follow)
            subscriptions = [self._subscription(url, filters, limit, follow, places) for url in relays]
            given = OrderedDict.fromkeys(places.given() if places is not None else ())
            given_count = 0
            async with contextlib.aclosing(merge(subscriptions)) as arrivals:
                async for item in arrivals:
                    packet_id = item.packet.packet_id
                    self._left_out.pop(packet_id, None)
                    earliest = self._sightings.note(item.packet, item.relay, item.received_at)
                    is_new = packet_id not in given
                    if is_new:
                        given[packet_id] = None
                        if len(given) > SIGHTINGS_MAX:
                            given.popitem(last=False)
                        yield item._replace(received_at=earliest if earliest is not None else item.received_at)
                        given_count += 1
                    if places is not None:
                        if self._disk.failure is None:  # else every packet would wait for a lock that lasts
                            await places.unlocked()
                        place = Place(item.cursor, item.received_at) if item.cursor is not None else None
                        self._disk.attempt(partial(places.move, item.relay, place, packet_id if is_new else None))
                    if given_count == count > 0:
                        return

    def _subscription(
        self, url: str, filters: Filters, limit: int | None, follow: bool, places: Places | None
    ) -> Subscription:
        place = None if places is None else places.of(url)
        cursor, received_at = (None, None) if place is None else place
        client = self._client(url)
        return client.subscribe(filters, cursor=cursor, received_at=received_at, limit=limit, follow=follow)

    async def get(self, packet_id: bytes | str) -> Delivery | None:
        """Return a packet from the first of the best relays that has it; its id as 32 bytes or as ``0x…``.

        Raises:
            LocalError: That is no packet id.
            WaystationError: No relay has it, and one could not be asked or lied.
        """
        self._check()
        packet_id = as_packet_id(packet_id)
        failure: WaystationError | None = None
        for url in self._pool.best_reads():
            try:
                found = await self._client(url).get(packet_id)
            except WaystationError as error:
                failure = error
                continue
            if found is not None:
                self._sightings.note(found.packet, url, found.received_at)
                return found
        if failure is not None:
            raise failure
        return None

    async def _reached(self, urls: Sequence[str], *, patient: bool) -> list[str]:
        """Return those of the relays that can be reached; with ``patient`` all of them, if any can.

        Raises:
            RelayUnreachableError: None can.
        """
        tried = [self._client(url).reached() for url in urls]
        outcomes = await asyncio.gather(*tried, return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if len(failures) == len(urls):
            raise failures[0]
        return [url for url, outcome in zip(urls, outcomes, strict=True) if patient or outcome is None]

    # Upkeep

    def evaluate(self) -> None:
        """Judge every relay as of now; close those that are banned, forget surplus backups, save the table."""
        for url, client in self._clients.items():
            if client.ping_ms is not None:
                self._pool.watches[url].note(Pinged(client.ping_ms))
            client.ping()
        for url in self._pool.evaluate():
            self._part_with(url)
        for url in self._pool.drop_surplus():
            self._part_with(url)
            self._scores.forget(url)
        self._save()

    def churn(self) -> str | None:
        """Take one relay of the bootstrap lists on probation when it is time, and return it."""
        url = self._pool.churn()
        if url is not None:
            self._client(url)
        return url

    async def probe(self) -> tuple[str, Verdict] | None:
        """Ask one relay for a packet that it ought to have, and return what came of it; None when nothing fits."""
        probe = self._pool.next_probe(self._clients, self._sightings.for_probes())
        present = await self._has(probe) if probe is not None else None
        return None if probe is None or present is None else (probe.relay, self._pool.judge(probe, present=present))

    async def _has(self, probe: Probe) -> bool | None:
        """Return whether a relay has a packet, by HTTP and then by SUBSCRIBE; None when it could not be asked."""
        packet_id = parse_packet_id(probe.packet_id)
        assert packet_id is not None
        client, packet = self._client(probe.relay), self._sightings.packet(packet_id)
        try:
            if await client.get(packet_id) is not None:
                return True
        except WaystationError:
            pass  # a relay need not have HTTP; the WebSocket decides
        if packet is None or not client.connected:
            return None
        one = Filters((packet.author_id,), (packet.content_type,), packet.timestamp, packet.timestamp)
        try:
            async with asyncio.timeout(_PROBE_WAIT_S), client.subscribe(one, follow=False) as found:
                return any([each.packet.packet_id == packet_id async for each in found])
        except (WaystationError, TimeoutError):
            return None

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(EVALUATION_S)
            await self._scores.unlocked()
            self._disk.attempt(self.evaluate)
            self.churn()
            if self._pool.is_probe_due:
                await self.probe()
                self._pool.plan_probe()

    def _client(self, url: str) -> RelayClient:
        """Return the client of a relay, connecting it if it is not yet."""
        if url not in self._clients:
            watch = self._pool.watches[url]
            client = RelayClient(
                url,
                identity=self._identity,
                authenticate=self._pool.shows_identity,
                server_id=watch.entry.relay_id,
                tls=self._tls,
                book=self.book,
                on_event=partial(self._observe, watch),
                rng=self._rng,
                clock=self._clock,
                silence_s=self._silence_s,
            )
            self._clients[url] = client
            watch.want()
            client.start()
        return self._clients[url]

    def _observe(self, watch: RelayWatch, event: object) -> None:
        watch.note(event)
        if isinstance(event, Violation | PacketDropped) and self._sightings.packet(event.packet_id or b"") is None:
            self._left_out[event.packet_id or b""] = None
            if len(self._left_out) > SIGHTINGS_MAX:
                self._left_out.popitem(last=False)
        if isinstance(event, Connected | Disconnected):
            self._on_connection(watch.entry.url, event)

    def _part_with(self, url: str) -> None:
        client = self._clients.pop(url, None)
        if client is not None:
            parting = asyncio.get_running_loop().create_task(client.aclose())
            self._partings.add(parting)  # the loop itself holds tasks weakly
            parting.add_done_callback(self._partings.discard)

    def _save(self) -> None:
        for entry in self._pool.to_keep():
            self._scores.save(entry)
