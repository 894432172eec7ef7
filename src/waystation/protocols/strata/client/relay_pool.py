"""Decides which of several Strata relays a client publishes to, reads from, probes, tries and forgets.

``sdk.strata.many`` asks it before each act and connects. Each relay has a ``RelayWatch``, which learns from what
happens there. The owner connects and asks; nothing here does.
Spec: RFC-0004 7; specs/strata.md 18, 19.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from waystation.protocols.strata.client.bootstrap import BootstrapDocument, Snapshot, advise
from waystation.protocols.strata.client.watch import RelayWatch
from waystation.rules.relay_choice import (
    READS_MAX,
    Candidate,
    Notice,
    Probe,
    Profile,
    ProfileChoice,
    ReadTally,
    Sighting,
    Verdict,
    choose_profile,
    choose_publish,
    choose_reads,
    churn_due,
    duties_of,
    judge,
    next_probe_s,
    pick_probe,
    pick_untried,
    publish_delay_ms,
    surplus_backups,
)
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_state import Change, State, sample

__all__ = ["PublishPlan", "RelayPool"]

_RELAYS_MIN: Final = 2  # ours: one relay that lies or is away must not be the only one


class PublishPlan(NamedTuple):
    """Where and when to publish."""

    relays: Sequence[str]
    """Addresses, best first; none when there is no relay to use."""
    notices: tuple[Notice, ...]
    """What the user has to know."""
    delay_ms: int
    """What the privacy profile asks for."""


class RelayPool:
    """The relays of one client, by address."""

    def __init__(
        self,
        known: Sequence[RelayEntry],
        named: Iterable[str],
        *,
        profile: Profile,
        has_private_path: bool,
        bootstrap_urls: Iterable[str],
        bootstrap: BootstrapDocument | None,
        snapshots: Iterable[Snapshot],
        on_change: Callable[[str, Change], None],
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        """Observe relays.

        Args:
            known: From the table of scores.
            named: Addresses that the program has named.
            profile: What the user prefers.
            has_private_path: Whether connections run over a private network.
            bootstrap_urls: Relays to try now and then, for churn.
            bootstrap: A checked document; its relays are tried, too, and must bear the DIDs that it names.
            snapshots: Advice; the relays in it are tried, too, and their mean score counts a fifth of ours.
            on_change: Gets address and change whenever a relay's state moves.
            rng: Source of chance.
            clock: Unix seconds.
        """
        self._profile, self._has_private_path = profile, has_private_path
        listed = bootstrap.relays if bootstrap is not None else ()
        advised = [advice.relay for advice in advise(snapshots)]
        # Spec 17: only a document that gatekeepers signed pins; a snapshot is one author's advice.
        self._pins = {entry.url: entry.relay_id for entry in listed if entry.relay_id}
        # Spec 18, ``boot``: the mean score in snapshots.
        self._boot_scores = {entry.url: entry.score for entry in advised if entry.score is not None}
        self._bootstrap = (*bootstrap_urls, *(entry.url for entry in (*listed, *advised)))
        self._on_change, self._rng, self._clock = on_change, rng, clock
        self._named = dict.fromkeys(named)
        self._lasting = {entry.url for entry in known}
        """Relays that the table keeps whether they answer or not; the others may be a typing error."""
        now_s = int(clock())
        self.watches: dict[str, RelayWatch] = {}
        """The observer of each."""
        for entry in (*known, *(RelayEntry.new(url, now_s) for url in self._named if url not in self._lasting)):
            self._watch(entry)
        self._tally = ReadTally()
        self._probe: Probe | None = None
        self._probe_at = next_probe_s(now_s, rng)
        self._churned_at: int | None = now_s

    @property
    def entries(self) -> list[RelayEntry]:
        """Every relay known, by address."""
        return [self.watches[url].entry for url in sorted(self.watches)]

    @property
    def privacy(self) -> ProfileChoice:
        """Which privacy profile holds now, and why not the preferred one."""
        # Spec 19: SHIELDED needs two relays, HARDENED three; a banned one is none.
        usable = [entry for entry in self.entries if entry.standing.state is not State.BLACKLISTED]
        return choose_profile(self._profile, len(usable), self._has_private_path)

    @property
    def shows_identity(self) -> bool:
        """Whether a relay that is connected now learns who we are."""
        return not duties_of(self.privacy.profile).sparing_auth

    # Choices

    def plan_publish(self, *, everywhere: bool = False) -> PublishPlan:
        """Return where to publish a packet of now: to the best relays, or to all that are not banned."""
        privacy = self.privacy
        # Spec 18: publish to the best 2; a privacy profile may ask for more.
        best = max(_RELAYS_MIN, duties_of(privacy.profile).relays_advised)
        choice = choose_publish(self._candidates(), len(self.watches) if everywhere else best)
        # Whoever named the relays has nothing to act upon.
        is_own_choice = choice.notice is Notice.ONLY_PROBATION and self._named.keys() >= set(choice.relays)
        notices = privacy.notices if choice.notice is None or is_own_choice else (*privacy.notices, choice.notice)
        return PublishPlan(choice.relays, tuple(notices), publish_delay_ms(privacy.profile, self._rng))

    def why_none(self, purpose: str) -> str:
        """Return for people why there is no relay for a purpose, such as ``read from``, and what to do."""
        banned = [each.url for each in self.entries if each.standing.state is State.BLACKLISTED]
        if not banned:
            return f"there is no relay to {purpose}; add one first"
        return (
            f"there is no relay to {purpose}: {', '.join(banned)} is banned for what it sent or did not answer; "
            "`waystation strata relays pin URL` uses it all the same, `relays forget URL` starts anew"
        )

    def choose_reads(self) -> Sequence[str]:
        """Return the relays to read from; each is chosen as often as its score asks for."""
        # Spec 18: read from the best 2 or 3.
        wanted = min(max(_RELAYS_MIN, duties_of(self.privacy.profile).relays_advised), READS_MAX)
        choice = choose_reads(self._candidates(), self._tally, self._rng, wanted)
        # Spec 18: relays on probation get at most one read in ten, so reads are counted.
        self._tally = choice.tally
        return choice.relays

    def best_reads(self) -> Sequence[str]:
        """Return the relays to ask for one packet, one after the other."""
        return choose_reads(self._candidates(), self._tally, self._rng, READS_MAX).relays

    def _candidates(self) -> list[Candidate]:
        """Return all relays for a choice; one that the program named is its own choice, unless it is banned."""
        candidates = [entry.candidate for entry in self.entries]
        # What the user named counts as pinned, or a new relay of theirs would have to wait for its score.
        chosen = self._named.keys() - {each.relay for each in candidates if each.state is State.BLACKLISTED}
        return [each._replace(pinned=each.pinned or each.relay in chosen) for each in candidates]

    # Upkeep

    def evaluate(self) -> list[str]:
        """Judge every relay as of now; return those that are banned, and must not be used any more."""
        for watch in self.watches.values():
            watch.evaluate()
        standings = {url: watch.entry.standing for url, watch in self.watches.items()}
        # Spec 18: a pinned relay is flagged and stays in use.
        return [url for url, each in standings.items() if each.state is State.BLACKLISTED and not each.pinned]

    def drop_surplus(self) -> list[str]:
        """Forget the backups that are too many, and return them."""
        # Spec 18: keep 20 BACKUP.
        surplus = list(surplus_backups([entry.candidate for entry in self.entries]))
        for url in surplus:
            del self.watches[url]
        return surplus

    def churn(self) -> str | None:
        """Take one relay of the bootstrap lists on probation when it is time, and return it."""
        now_s = int(self._clock())
        active = sum(entry.standing.state is State.ACTIVE for entry in self.entries)
        # Spec 18: an untried relay every 6 h, sooner with fewer than 2 ACTIVE.
        if not churn_due(self._churned_at, active, now_s):
            return None
        # Also where none is left to try: the next look is hours away.
        self._churned_at = now_s
        known = {entry.url: entry.candidate for entry in self.entries}
        url = pick_untried(self._bootstrap, known, now_s, self._rng)
        if url is None:
            return None
        watch = self.watches.get(url)
        if watch is None:
            self._lasting.add(url)  # or it would be tried again sooner than in seven days
            self._watch(RelayEntry.new(url, now_s))
        else:
            standing, change = sample(watch.entry.standing, now_s)
            watch.entry = replace(watch.entry, standing=standing)
            if change is not None:
                self._on_change(url, change)
        return url

    def to_keep(self) -> Iterator[RelayEntry]:
        """Yield what the table of scores shall have: a relay that never answered may be a typing error."""
        for url, watch in self.watches.items():
            if url in self._lasting or watch.answered:
                yield watch.entry

    # Probes

    @property
    def is_probe_due(self) -> bool:
        """Whether it is time for ``next_probe``; ``plan_probe`` afterwards."""
        return self._clock() >= self._probe_at

    def plan_probe(self) -> None:
        """Draw when the next probe is due."""
        self._probe_at = next_probe_s(int(self._clock()), self._rng)

    def next_probe(self, connected: Iterable[str], sightings: list[Sighting]) -> Probe | None:
        """Return for which packet to ask which of the connected relays; None when nothing fits."""
        if self._probe is not None:
            return self._probe
        retention: dict[str, int | None] = dict.fromkeys(connected)
        return pick_probe(retention, sightings, int(self._clock()), self._rng)

    def judge(self, probe: Probe, *, present: bool) -> Verdict:
        """Learn from a relay's answer to a probe, and return what it means."""
        verdict, probe = judge(probe, present, int(self._clock()))
        # Spec 18: absent twice, 5 minutes apart, is missing.
        self._probe = probe if verdict is Verdict.ASK_AGAIN else None
        if verdict in {Verdict.FOUND, Verdict.MISSING}:
            self.watches[probe.relay].note_probe(found=verdict is Verdict.FOUND)
        return verdict

    def _watch(self, entry: RelayEntry) -> None:
        """Observe a relay, with what bootstrap data say of it; a DID that is pinned already stays."""
        if entry.url in self._boot_scores:
            entry.window.record_boot([self._boot_scores[entry.url]])
        # Spec 17: pin the DID met first; no list replaces one.
        entry = replace(entry, relay_id=entry.relay_id or self._pins.get(entry.url))
        self.watches[entry.url] = RelayWatch(entry, self._clock, self._on_change, is_named=entry.url in self._named)
