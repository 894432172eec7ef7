"""Choice among the relays that a client knows: which to publish to, read from, try, forget and probe.

Strata's client (``protocols.strata.client.relay_pool``) asks before each publication and read. Inputs are ``Candidate``
values, one per known relay. The caller passes the random generator, and ties are broken by name, so one seed gives one
selection. Section numbers refer to specs/strata.md; rules marked "ours" are not in it.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from waystation.rules.relay_state import State

__all__ = [
    "BACKUPS_MAX",
    "PUBLISH_FANOUT",
    "READS_MAX",
    "READS_MIN",
    "Candidate",
    "Duties",
    "Notice",
    "Probe",
    "Profile",
    "ProfileChoice",
    "PublishChoice",
    "ReadChoice",
    "ReadTally",
    "Sighting",
    "Verdict",
    "choose_profile",
    "choose_publish",
    "choose_reads",
    "churn_due",
    "duties_of",
    "judge",
    "next_probe_s",
    "pick_probe",
    "pick_untried",
    "publish_delay_ms",
    "surplus_backups",
]

PUBLISH_FANOUT: Final = 2
"""Relays a packet is published to (18)."""
READS_MIN: Final = 2
"""Relays a read goes to at least, as far as there are any (18)."""
READS_MAX: Final = 3
"""Relays a read goes to at most (18)."""
BACKUPS_MAX: Final = 20
"""Backups a client keeps (18)."""

_PROBATION_SHARE: Final = 10  # one read in ten (18)
_PROBATION_CHANCE: Final = 5  # ours: drawn more often than allowed, so that the tally and not luck sets the share
_TALLY_MAX: Final = 1_000  # ours: unused credit is halved, so that a quiet day does not pay for a burst
_CHURN_S: Final = 6 * 3_600  # 18
_CHURN_HURRY_S: Final = 300  # ours: a relay needs as long to leave probation, sooner means nothing
_ACTIVE_ENOUGH: Final = 2  # 18
_UNTRIED_S: Final = 7 * 86_400  # 18
_PROBE_EARLIEST_S: Final = 300  # 18: every 10 +- 5 min
_PROBE_LATEST_S: Final = 900
_PROBE_AGAIN_S: Final = 300  # 18
_PACKET_AGE_MIN_S: Final = 600  # 18
_PACKET_AGE_MAX_S: Final = 86_400
_OTHERS_MIN: Final = 2  # 18: seen from at least two other relays
_RANKS: Final = (State.ACTIVE, State.BACKUP, State.PROBATION, State.BLACKLISTED)


class Candidate(NamedTuple):
    """One relay, as far as a choice depends on it."""

    relay: str
    """Its URL, or whatever name the caller gives it; unique."""
    state: State
    score: float
    """0 to 1."""
    pinned: bool = False
    last_tried_s: int | None = None
    """Unix seconds of the last connect; None when it was never tried."""


class Notice(Enum):
    """A notice for the user about a choice."""

    ONLY_PROBATION = "only relays on probation are left"
    NO_RELAY = "no relay may be used for this"
    TOO_FEW_RELAYS = "too few relays for the privacy profile: the standard one is used"
    NO_PRIVATE_PATH = "no private network path: the shielded profile is used"
    FEWER_THAN_ADVISED = "the privacy profile advises more relays than there are"


class PublishChoice(NamedTuple):
    """Where a packet goes."""

    relays: tuple[str, ...]
    """Best first; empty with ``Notice.NO_RELAY``."""
    notice: Notice | None


class ReadTally(NamedTuple):
    """How many reads there were; handed back with each choice."""

    reads: int = 0
    on_probation: int = 0
    """Reads that a relay on probation had a part in while others were there."""


class ReadChoice(NamedTuple):
    """Whom a read asks."""

    relays: tuple[str, ...]
    notice: Notice | None
    tally: ReadTally
    """For the next read."""


def choose_publish(candidates: Iterable[Candidate], fan_out: int = PUBLISH_FANOUT) -> PublishChoice:
    """Return the best relays to publish to: active ones, then backups, then those on probation (18).

    Pinned relays count like others, but may be used, last of all, even when blacklisted. A relay on probation is never
    the only one, unless it is pinned: then it is the user's own choice.
    """
    usable = _usable(candidates)
    chosen = usable[:fan_out]
    if len(chosen) == 1 and chosen[0].state is State.PROBATION and not chosen[0].pinned:
        chosen = usable[:2] if len(usable) > 1 else []
    notice = _notice_on(chosen)
    return PublishChoice(tuple(each.relay for each in chosen), notice)


def choose_reads(
    candidates: Iterable[Candidate], tally: ReadTally, rng: random.Random, want: int = READS_MIN
) -> ReadChoice:
    """Return the best relays to read from (18).

    In at most a tenth of the reads, at random, one relay on probation takes the last place; while there is no
    other relay, those on probation serve alone.

    Args:
        candidates: Every relay known.
        tally: From the choice before.
        rng: Decides whether a relay on probation takes part, and which.
        want: 2 or 3.
    """
    assert READS_MIN <= want <= READS_MAX
    usable = _usable(candidates)
    trusted = [each for each in usable if each.state is not State.PROBATION]
    trial = [each for each in usable if each.state is State.PROBATION]
    if not trusted:
        chosen = trial[:want]
        return ReadChoice(tuple(each.relay for each in chosen), _notice_on(chosen), tally)
    chosen = trusted[:want]
    tries = bool(trial) and rng.randrange(_PROBATION_CHANCE) == 0 and _has_credit(tally)
    if tries:
        chosen = [*trusted[: want - 1], rng.choice(trial)]
    return ReadChoice(tuple(each.relay for each in chosen), None, _tallied(tally, tries))


def _usable(candidates: Iterable[Candidate]) -> list[Candidate]:
    allowed = [each for each in candidates if each.state is not State.BLACKLISTED or each.pinned]
    return sorted(allowed, key=lambda each: (_RANKS.index(each.state), -each.score, each.relay))


def _notice_on(chosen: Sequence[Candidate]) -> Notice | None:
    if not chosen:
        return Notice.NO_RELAY
    return Notice.ONLY_PROBATION if all(each.state is State.PROBATION for each in chosen) else None


def _has_credit(tally: ReadTally) -> bool:
    return _PROBATION_SHARE * (tally.on_probation + 1) <= tally.reads + 1


def _tallied(tally: ReadTally, tries: bool) -> ReadTally:
    reads, on_probation = tally.reads + 1, tally.on_probation + tries
    if reads < _TALLY_MAX:
        return ReadTally(reads, on_probation)
    return ReadTally(reads // 2, -(-on_probation // 2))


def churn_due(last_churn_s: int | None, active_count: int, now_s: int) -> bool:
    """Return whether it is time to try another relay: every 6 h, sooner with fewer than two active ones (18)."""
    if last_churn_s is None:
        return True
    return now_s - last_churn_s >= (_CHURN_S if active_count >= _ACTIVE_ENOUGH else _CHURN_HURRY_S)


def pick_untried(listed: Iterable[str], known: Mapping[str, Candidate], now_s: int, rng: random.Random) -> str | None:
    """Return a random relay of the bootstrap lists that was never tried, or not for seven days (18).

    Args:
        listed: Relays of the bootstrap lists; repeats do not raise a relay's chance.
        known: Relays of the local table, by name. Active and blacklisted ones are not taken.
        now_s: Unix seconds.
        rng: Makes the choice.

    Returns:
        A relay to put on probation, or None when every one was tried lately.
    """
    open_to_trial = [relay for relay in sorted(set(listed)) if _is_untried(known.get(relay), now_s)]
    return rng.choice(open_to_trial) if open_to_trial else None


def _is_untried(candidate: Candidate | None, now_s: int) -> bool:
    if candidate is None:
        return True
    if candidate.state in (State.ACTIVE, State.BLACKLISTED):
        return False
    return candidate.last_tried_s is None or now_s - candidate.last_tried_s >= _UNTRIED_S


def surplus_backups(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Return the backups to forget, worst first: those above ``BACKUPS_MAX``, never a pinned one (18)."""
    backups = [each for each in candidates if each.state is State.BACKUP]
    loose = sorted((each for each in backups if not each.pinned), key=lambda each: (each.score, each.relay))
    return tuple(each.relay for each in loose[: max(len(backups) - BACKUPS_MAX, 0)])


class Sighting(NamedTuple):
    """A packet the client has received, as far as a probe can use it."""

    packet_id: str
    timestamp_s: int
    """The packet's own, Unix seconds."""
    expires_at_s: int | None
    public: bool
    """Whether its type is a public one."""
    seen_on: tuple[str, ...]
    """Relays it came from."""


class Probe(NamedTuple):
    """One question to one relay: do you have this packet?"""

    relay: str
    packet_id: str
    usable_until_s: int
    """From here on the relay may rightly have dropped the packet, and the probe means nothing."""
    absent_at_s: int | None = None
    """When the packet was absent first."""


class Verdict(Enum):
    """What an answer to a probe means."""

    FOUND = "found"
    MISSING = "missing"
    """Absent twice; counts in the integrity, but is no violation: a relay may decline by policy."""
    ASK_AGAIN = "ask_again"
    """Absent once; ask again 300 s after ``Probe.absent_at_s``."""
    VOID = "void"
    """The packet may have gone rightly meanwhile."""


def next_probe_s(now_s: int, rng: random.Random) -> int:
    """Return when the next probe is due: in 5 to 15 minutes (18)."""
    return now_s + rng.randint(_PROBE_EARLIEST_S, _PROBE_LATEST_S)


def pick_probe(
    retention_s: Mapping[str, int | None], sightings: Sequence[Sighting], now_s: int, rng: random.Random
) -> Probe | None:
    """Return a random packet that a random relay ought to have (18).

    Args:
        retention_s: The relays to choose from, with the seconds for which each claims to keep packets (None: no claim).
        sightings: Packets received lately.
        now_s: Unix seconds.
        rng: Makes both choices.

    Returns:
        What to ask, or None when no packet fits any relay: public, unexpired, 10 min to 24 h old, below the relay's
        retention, and seen on at least two others.

    Cost: O(relays * sightings).
    """
    relays = sorted(retention_s)
    rng.shuffle(relays)
    for relay in relays:
        fitting = [each for each in sightings if _fits(each, relay, retention_s[relay], now_s)]
        if fitting:
            sighting = rng.choice(fitting)
            return Probe(relay, sighting.packet_id, _usable_until_s(sighting, retention_s[relay]))
    return None


def judge(probe: Probe, present: bool, now_s: int) -> tuple[Verdict, Probe]:
    """Return what an answer means, and the probe as it is to be kept for ``Verdict.ASK_AGAIN``."""
    if present:
        return Verdict.FOUND, probe
    if now_s >= probe.usable_until_s:
        return Verdict.VOID, probe
    if probe.absent_at_s is None:
        return Verdict.ASK_AGAIN, probe._replace(absent_at_s=now_s)
    return (Verdict.MISSING if now_s - probe.absent_at_s >= _PROBE_AGAIN_S else Verdict.ASK_AGAIN), probe


def _fits(sighting: Sighting, relay: str, retention_s: int | None, now_s: int) -> bool:
    age_s = now_s - sighting.timestamp_s
    return (
        sighting.public
        and _PACKET_AGE_MIN_S <= age_s <= _PACKET_AGE_MAX_S
        and now_s < _usable_until_s(sighting, retention_s)
        and len(set(sighting.seen_on) - {relay}) >= _OTHERS_MIN
    )


def _usable_until_s(sighting: Sighting, retention_s: int | None) -> int:
    # A packet without an end of its own is asked for again five minutes after its first day at the latest.
    kept_s = 2 * _PACKET_AGE_MAX_S if retention_s is None else retention_s
    end_s = sighting.timestamp_s + kept_s
    return end_s if sighting.expires_at_s is None else min(end_s, sighting.expires_at_s)


class Profile(Enum):
    """How much a client does against observers (19); all but STANDARD are opt-in and experimental."""

    STANDARD = "standard"
    SHIELDED = "shielded"
    HARDENED = "hardened"


class Duties(NamedTuple):
    """What a profile asks of a client (19)."""

    relays_min: int
    """For reads and for publishes; with fewer the profile does not hold."""
    relays_advised: int
    jitter_min_ms: int
    """Least delay before a publish."""
    jitter_max_ms: int
    coarse_filters: bool
    """Subscribe to more than is wanted and pick locally."""
    sparing_auth: bool
    """AUTH only where a relay demands it, with separate identities."""
    private_path: bool
    """A private network path is a must."""
    batching: bool


_DUTIES: Final = {
    Profile.STANDARD: Duties(1, 1, 0, 0, False, False, False, False),
    Profile.SHIELDED: Duties(2, 2, 200, 1_200, True, True, False, False),
    Profile.HARDENED: Duties(2, 3, 800, 2_500, True, True, True, True),
}


class ProfileChoice(NamedTuple):
    """What holds now; the stored preference stays what it is."""

    profile: Profile
    notices: tuple[Notice, ...]
    """To be shown to the user."""


def duties_of(profile: Profile) -> Duties:
    """Return what a profile asks of a client."""
    return _DUTIES[profile]


def choose_profile(preferred: Profile, relays_count: int, has_private_path: bool) -> ProfileChoice:
    """Return the profile that can be kept now, falling back with a notice for each reason (19).

    Args:
        preferred: What the user has chosen; it is to be tried again whenever the other arguments change.
        relays_count: Relays that may be read from and published to.
        has_private_path: Whether connections run over Tor, a VPN or the like.
    """
    profile, notices = preferred, []
    if _DUTIES[profile].private_path and not has_private_path:
        profile = Profile.SHIELDED
        notices.append(Notice.NO_PRIVATE_PATH)
    if profile is not Profile.STANDARD and relays_count < _DUTIES[profile].relays_min:
        profile = Profile.STANDARD
        notices.append(Notice.TOO_FEW_RELAYS)
    if profile is not Profile.STANDARD and relays_count < _DUTIES[profile].relays_advised:
        notices.append(Notice.FEWER_THAN_ADVISED)
    return ProfileChoice(profile, tuple(notices))


def publish_delay_ms(profile: Profile, rng: random.Random) -> int:
    """Return how many milliseconds a publish waits: none, 200 to 1200 or 800 to 2500 (19)."""
    duties = _DUTIES[profile]
    return rng.randint(duties.jitter_min_ms, duties.jitter_max_ms)
