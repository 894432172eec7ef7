"""Which relays a client takes: order, shares, exclusions, and chance within its bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.rules.relay_choice import (
    BACKUPS_MAX,
    READS_MAX,
    READS_MIN,
    Candidate,
    Notice,
    Probe,
    Profile,
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
from waystation.rules.relay_state import State

T0 = 1_700_000_000
HOUR = 3_600
DAY = 24 * HOUR
ACTIVE = [Candidate("a1", State.ACTIVE, 0.9), Candidate("a2", State.ACTIVE, 0.7), Candidate("a3", State.ACTIVE, 0.8)]
BACKUP = [Candidate("b1", State.BACKUP, 0.99), Candidate("b2", State.BACKUP, 0.4)]
TRIAL = [Candidate("p1", State.PROBATION, 0.5), Candidate("p2", State.PROBATION, 0.6)]
BANNED = [Candidate("x1", State.BLACKLISTED, 1.0)]
PINNED_BANNED = [Candidate("x2", State.BLACKLISTED, 0.1, pinned=True)]
CANDIDATES = st.lists(
    st.builds(
        Candidate, st.text("abcdefgh", min_size=1), st.sampled_from(State), st.floats(0, 1), st.booleans(), st.none()
    ),
    max_size=8,
    unique_by=lambda each: each.relay,
)


@pytest.mark.parametrize(
    ("candidates", "fan_out", "expected", "notice"),
    [
        (BANNED + TRIAL + BACKUP + ACTIVE, 2, ("a1", "a3"), None),
        (BANNED + TRIAL + BACKUP + ACTIVE[:1], 2, ("a1", "b1"), None),
        (TRIAL + BACKUP, 3, ("b1", "b2", "p2"), None),
        (TRIAL + ACTIVE[:1], 2, ("a1", "p2"), None),
        (TRIAL, 2, ("p2", "p1"), Notice.ONLY_PROBATION),
        (TRIAL, 1, ("p2", "p1"), Notice.ONLY_PROBATION),
        (TRIAL[:1], 2, (), Notice.NO_RELAY),
        ([TRIAL[0]._replace(pinned=True)], 2, ("p1",), Notice.ONLY_PROBATION),
        (BANNED, 2, (), Notice.NO_RELAY),
        (BANNED + PINNED_BANNED, 2, ("x2",), None),
        (PINNED_BANNED + TRIAL, 2, ("p2", "p1"), Notice.ONLY_PROBATION),
        ([], 2, (), Notice.NO_RELAY),
    ],
)
def test_publish_goes_to_the_best(candidates, fan_out, expected, notice):
    """Active relays by score, then backups, then probation; blacklisted ones only when pinned, and last."""
    assert choose_publish(candidates, fan_out) == (expected, notice)


@given(CANDIDATES, st.integers(1, 4))
def test_publish_laws(candidates, fan_out):
    """Whatever is known: no unpinned blacklisted relay, and no unpinned relay on probation alone."""
    by_name = {each.relay: each for each in candidates}
    chosen = [by_name[relay] for relay in choose_publish(candidates, fan_out).relays]

    assert all(each.state is not State.BLACKLISTED or each.pinned for each in chosen)
    assert len(chosen) != 1 or chosen[0].state is not State.PROBATION or chosen[0].pinned
    assert len(set(chosen)) == len(chosen) <= max(fan_out, 2)


def reads(candidates, count, want=2, seed=1):
    rng, tally, chosen = random.Random(seed), ReadTally(), []
    for _ in range(count):
        choice = choose_reads(candidates, tally, rng, want)
        tally = choice.tally
        chosen.append(choice.relays)
    return chosen


@pytest.mark.parametrize(("want", "best"), [(2, ("a1", "a3")), (3, ("a1", "a3", "a2"))])
def test_reads_go_to_the_best(want, best):
    """Two or three of the best relays are asked; the last place may go to one on probation, the first never."""
    chosen = reads(ACTIVE + BACKUP + TRIAL + BANNED, 300, want)

    assert set(chosen) == {best, (*best[:-1], "p1"), (*best[:-1], "p2")}


@pytest.mark.parametrize("seed", range(4))
def test_a_tenth_of_reads_tries_probation(seed):
    """Never have more than a tenth of the reads so far asked a relay on probation, in the long run nearly that many."""
    tried = [relays[-1] in ("p1", "p2") for relays in reads(ACTIVE + TRIAL, 3_000, seed=seed)]
    so_far = 0
    for number, each in enumerate(tried, 1):
        so_far += each
        assert 10 * so_far <= number

    assert so_far > 240


@pytest.mark.parametrize(("tally", "may_try"), [((9, 0), True), ((8, 0), False), ((19, 1), True), ((18, 1), False)])
def test_tenth_read_is_the_first_that_may_try_probation(tally, may_try):
    """The tenth read may ask a relay on probation, the ninth may not, whatever chance says."""
    choices = [choose_reads(ACTIVE + TRIAL, ReadTally(*tally), random.Random(seed)) for seed in range(50)]

    assert any(choice.tally.on_probation > tally[1] for choice in choices) is may_try


def test_numbers_are_those_of_the_specification():
    """A publish goes to two relays unless told otherwise, a read to two or three; twenty backups are kept."""
    assert len(choose_publish(ACTIVE).relays) == 2
    assert (READS_MIN, READS_MAX, BACKUPS_MAX) == (2, 3, 20)


def test_quiet_times_do_not_pay_for_a_burst():
    """After many reads without any relay on probation, unused credit is bounded."""
    rng, tally = random.Random(3), ReadTally()
    for _ in range(20_000):
        tally = choose_reads(ACTIVE, tally, rng).tally
    burst = 0
    for _ in range(2_000):
        choice = choose_reads(ACTIVE + TRIAL, tally, rng)
        tally, burst = choice.tally, burst + (choice.relays[-1] in ("p1", "p2"))

    assert tally.reads < 1_000
    assert burst <= 200 + 100


def test_probation_reads_alone_when_nothing_else_is_there():
    """A new client reads from relays on probation, is told so, and uses up no share."""
    choice = choose_reads(TRIAL + BANNED, ReadTally(5, 0), random.Random(1))

    assert choice == (("p2", "p1"), Notice.ONLY_PROBATION, ReadTally(5, 0))
    assert choose_reads(BANNED, ReadTally(), random.Random(1)).notice is Notice.NO_RELAY


@given(CANDIDATES, st.integers(0, 2**32), st.sampled_from([2, 3]))
def test_read_laws(candidates, seed, want):
    """Whatever is known: no unpinned blacklisted relay, none twice, no more than wanted, and one seed one choice."""
    by_name = {each.relay: each for each in candidates}
    choice = choose_reads(candidates, ReadTally(100, 0), random.Random(seed), want)
    chosen = [by_name[relay] for relay in choice.relays]

    assert all(each.state is not State.BLACKLISTED or each.pinned for each in chosen)
    assert len(set(choice.relays)) == len(chosen) <= want
    assert choice == choose_reads(candidates[::-1], ReadTally(100, 0), random.Random(seed), want)


@pytest.mark.parametrize(
    ("last_s", "active", "due"),
    [
        (None, 5, True),
        (T0 - 6 * HOUR, 2, True),
        (T0 - 6 * HOUR + 1, 2, False),
        (T0 - 300, 1, True),
        (T0 - 299, 1, False),
        (T0 - 300, 2, False),
    ],
)
def test_churn_is_due(last_s, active, due):
    """Another relay is tried every six hours, and after five minutes already with fewer than two active ones."""
    assert churn_due(last_s, active, T0) is due


def test_untried_relays_are_picked_alike():
    """Relays untried for seven days qualify, active, banned and lately tried ones do not; each gets its turn."""
    known = {
        "old": Candidate("old", State.BACKUP, 0.2, last_tried_s=T0 - 7 * DAY),
        "lately": Candidate("lately", State.BACKUP, 0.2, last_tried_s=T0 - 7 * DAY + 1),
        "waiting": Candidate("waiting", State.PROBATION, 0.5),
        "active": Candidate("active", State.ACTIVE, 0.9, last_tried_s=T0 - 8 * DAY),
        "banned": Candidate("banned", State.BLACKLISTED, 0.0, last_tried_s=T0 - 8 * DAY),
    }
    rng, listed = random.Random(5), [*known, "new", "new", "new"]
    picked = [pick_untried(listed, known, T0, rng) for _ in range(900)]

    assert set(picked) == {"old", "waiting", "new"}
    assert all(200 < picked.count(relay) < 400 for relay in ("old", "waiting", "new"))
    assert pick_untried(["lately", "active"], known, T0, rng) is None


def test_worst_backups_above_twenty_go():
    """Of 23 backups the three worst that are not pinned are dropped; twenty stay, whatever else is known."""
    backups = [Candidate(f"b{number:02}", State.BACKUP, number / 100) for number in range(BACKUPS_MAX + 3)]
    backups[1] = backups[1]._replace(pinned=True)

    assert surplus_backups([*backups[::-1], *ACTIVE, *TRIAL]) == ("b00", "b02", "b03")
    assert surplus_backups([*backups[:BACKUPS_MAX], *ACTIVE]) == ()
    assert surplus_backups([each._replace(pinned=True) for each in backups]) == ()


def sighting(age_s=HOUR, expires_in_s=None, public=True, seen_on=("r1", "r2"), packet_id="id"):
    expires_at_s = None if expires_in_s is None else T0 + expires_in_s
    return Sighting(packet_id, T0 - age_s, expires_at_s, public, seen_on)


@pytest.mark.parametrize(
    ("seen", "retention_s", "asked"),
    [
        (sighting(), None, True),
        (sighting(age_s=600), None, True),
        (sighting(age_s=599), None, False),
        (sighting(age_s=DAY), None, True),
        (sighting(age_s=DAY + 1), None, False),
        (sighting(), HOUR + 1, True),
        (sighting(), HOUR, False),
        (sighting(expires_in_s=1), None, True),
        (sighting(expires_in_s=0), None, False),
        (sighting(public=False), None, False),
        (sighting(seen_on=("r1",)), None, False),
        (sighting(seen_on=("r1", "r1")), None, False),
        (sighting(seen_on=("r1", "probed")), None, False),
        (sighting(seen_on=("r1", "probed", "r2")), None, True),
    ],
)
def test_probe_asks_only_what_the_relay_ought_to_have(seen, retention_s, asked):
    """A packet is public, unexpired, 10 min to 24 h old, within the retention and on two others, or not asked for."""
    probe = pick_probe({"probed": retention_s}, [seen], T0, random.Random(1))

    assert (probe is not None) is asked
    assert not asked or (probe.relay, probe.packet_id) == ("probed", "id")


def test_probes_spread_over_relays_and_packets():
    """Every relay and every fitting packet is asked for now and then, none that does not fit."""
    seen = [sighting(packet_id=name) for name in ("one", "two", "three")] + [sighting(packet_id="no", public=False)]
    rng = random.Random(8)
    probes = [pick_probe({"p": None, "q": DAY, "short": 60}, seen, T0, rng) for _ in range(300)]

    assert {probe[:2] for probe in probes} == {(relay, name) for relay in "pq" for name in ("one", "two", "three")}


def test_absent_twice_is_missing():
    """The first absence asks again, one five minutes later is missing; sooner it tells nothing more."""
    probe = pick_probe({"p": None}, [sighting()], T0, random.Random(1))
    first, kept = judge(probe, False, T0 + 7)

    assert (first, kept.absent_at_s) == (Verdict.ASK_AGAIN, T0 + 7)
    assert judge(kept, False, T0 + 306) == (Verdict.ASK_AGAIN, kept)
    assert judge(kept, False, T0 + 307) == (Verdict.MISSING, kept)


def test_present_is_found_at_either_time():
    """A packet that is there at the first or the second question is found."""
    probe = Probe("p", "id", T0 + HOUR)

    assert judge(probe, True, T0)[0] is Verdict.FOUND
    assert judge(probe._replace(absent_at_s=T0), True, T0 + 400)[0] is Verdict.FOUND


@pytest.mark.parametrize("absent_at_s", [None, T0])
def test_absence_after_the_end_is_void(absent_at_s):
    """A packet that expired or left the retention meanwhile is held against nobody."""
    probe = pick_probe({"p": None}, [sighting(expires_in_s=310)], T0, random.Random(1))._replace(
        absent_at_s=absent_at_s
    )

    assert judge(probe, False, T0 + 310)[0] is Verdict.VOID
    assert judge(probe, False, T0 + 309)[0] is not Verdict.VOID


def test_oldest_packet_can_be_asked_for_twice():
    """A packet 24 h old at the first question still counts at the second."""
    probe = pick_probe({"p": None}, [sighting(age_s=DAY)], T0, random.Random(1))
    _, kept = judge(probe, False, T0)

    assert judge(kept, False, T0 + 300)[0] is Verdict.MISSING


def test_probes_come_every_five_to_fifteen_minutes():
    """Over 10,000 draws the pause stays in its range and reaches both ends."""
    rng = random.Random(2)
    pauses = [next_probe_s(T0, rng) - T0 for _ in range(10_000)]

    assert (min(pauses), max(pauses)) == (300, 900)


@pytest.mark.parametrize(
    ("profile", "low", "high"),
    [(Profile.STANDARD, 0, 0), (Profile.SHIELDED, 200, 1_200), (Profile.HARDENED, 800, 2_500)],
)
def test_jitter_stays_in_its_range(profile, low, high):
    """Over 1,000 draws a publish waits as long as its profile says, and comes near both ends."""
    rng = random.Random(4)
    delays = [publish_delay_ms(profile, rng) for _ in range(1_000)]

    assert low <= min(delays) <= low + 20
    assert high - 20 <= max(delays) <= high


@pytest.mark.parametrize(
    ("preferred", "relays", "private", "profile", "notices"),
    [
        (Profile.STANDARD, 0, False, Profile.STANDARD, ()),
        (Profile.SHIELDED, 2, False, Profile.SHIELDED, ()),
        (Profile.SHIELDED, 1, True, Profile.STANDARD, (Notice.TOO_FEW_RELAYS,)),
        (Profile.HARDENED, 3, True, Profile.HARDENED, ()),
        (Profile.HARDENED, 2, True, Profile.HARDENED, (Notice.FEWER_THAN_ADVISED,)),
        (Profile.HARDENED, 3, False, Profile.SHIELDED, (Notice.NO_PRIVATE_PATH,)),
        (Profile.HARDENED, 1, True, Profile.STANDARD, (Notice.TOO_FEW_RELAYS,)),
        (Profile.HARDENED, 1, False, Profile.STANDARD, (Notice.NO_PRIVATE_PATH, Notice.TOO_FEW_RELAYS)),
    ],
)
def test_profile_falls_back_with_notice(preferred, relays, private, profile, notices):
    """A profile that cannot be kept gives way to a weaker one, never without a notice."""
    assert choose_profile(preferred, relays, private) == (profile, notices)


def test_profiles_ask_for_more_in_turn():
    """Each profile asks for at least what the one before it does; only the last needs a private path and batching."""
    standard, shielded, hardened = (duties_of(profile) for profile in Profile)

    assert all(low <= middle <= high for low, middle, high in zip(standard, shielded, hardened, strict=True))
    assert (hardened.private_path, hardened.batching) == (True, True)
    assert (shielded.private_path, shielded.batching, shielded.coarse_filters) == (False, False, True)
