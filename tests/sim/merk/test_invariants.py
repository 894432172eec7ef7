"""Each law of a MERK world, with a history that breaks it and its nearest history that does not."""

import pytest

from tests.sim.merk.build import FRAME, HIM, ME, OTHER_FRAME, arrived, dialled, forwarded, sent, sized, taken, told
from waystation.core.instant import Instant
from waystation.protocols.merk.limits import DEFAULT_LIMITS
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.merk import observations as seen
from waystation.sim.merk.invariants import LEARNT_DIALS_MAX, MINUTE_US, merk_invariants
from waystation.sim.observations import DiskLost, Unfulfilled

STOLEN, INJECTED = seen.Stolen(FRAME), seen.Injected(FRAME)
OWED, NOT_OWED = seen.Due(FRAME, is_owed=True), seen.Due(FRAME, is_owed=False)
OUTCOME_OWED = seen.OutcomeDue(1, FRAME, is_owed=True)
MAIL_READ, MAIL_STORED, MAIL_DUE = seen.MailRead(ME, FRAME), seen.MailStored(ME, FRAME), seen.MailDue(ME)
MAIL_TAKEN, MAIL_GIVEN = seen.MailTaken(ME, FRAME, 1), seen.MailGiven(ME, FRAME, 1)
READ_REPORTED = seen.ReadReported(ME, FRAME)
WRITTEN, EXCUSED = seen.WrittenDue(FRAME, is_excused=False), seen.WrittenDue(FRAME, is_excused=True)


def broken(*history, step_us=0):
    """Return the law that a history breaks, or None."""
    watch = Watch(merk_invariants())
    try:
        for number, observation in enumerate(history):
            watch.observe(observation, Instant(number * step_us))
    except ViolationError as error:
        return error.invariant
    return None


@pytest.mark.parametrize(
    ("law", "history"),
    [
        ("delivered-once", [sent(), arrived(), arrived()]),
        ("delivered-once", [arrived()]),
        ("delivered-once", [taken(), taken()]),
        ("own-only", [sent(), arrived(target=HIM)]),
        ("own-only", [arrived(origin="client")]),
        ("own-only", [arrived(origin="nobody")]),
        ("own-only", [seen.Extended(1, 0x82)]),
        ("own-only", [seen.Dropped(ME, "bad_signature")]),
        ("authentic", [taken(is_theirs=False)]),
        ("authentic", [taken(auth="legacy", is_theirs=False)]),
        ("authentic", [seen.KeyShown(ME, is_true=False)]),
        ("path-delivers", [sent(), OWED]),
        ("path-delivers", [sent(), sent(), arrived(), OWED, OWED]),
        ("one-outcome", [sent(), told(), told()]),
        ("one-outcome", [sent(line=2), told()]),
        ("one-outcome", [sent(), OUTCOME_OWED]),
        ("one-outcome", [sent(), sent(), told(), OUTCOME_OWED, OUTCOME_OWED]),
        ("forwarding", [seen.Bundled(1, is_right=True), seen.Bundled(1, is_right=False)]),
        ("forwarding", [seen.Gathered(1, is_right=True), seen.Gathered(1, is_right=False)]),
        ("keeps-mail", [MAIL_STORED, MAIL_DUE]),
        ("keeps-mail", [MAIL_STORED, MAIL_READ, MAIL_READ]),
        ("keeps-mail", [MAIL_STORED, MAIL_READ, MAIL_TAKEN, MAIL_GIVEN]),
        ("read-is-taken", [READ_REPORTED, MAIL_READ]),
        ("read-is-taken", [MAIL_READ, READ_REPORTED, READ_REPORTED]),
        ("read-is-taken", [seen.MailRead(HIM, FRAME), READ_REPORTED]),
        ("confidential", [seen.Exposed(FRAME)]),
        ("true-outcome", [sent(), told(), WRITTEN]),
        ("true-outcome", [sent(), told(is_target_known=False)]),
        ("true-outcome", [sent(), told(3)]),
        ("true-outcome", [sent(), told(2)]),
        ("true-outcome", [sent(), told(4)]),
        ("true-outcome", [sent(), told(5, is_crowded=True)]),
        ("true-outcome", [sent(), told(1), arrived(), OWED]),
        ("own-only", [arrived(origin="peer")]),
        ("confidential", [taken(is_aimed=False)]),
        ("forwarding", [forwarded(is_own=False)]),
        ("forwarding", [forwarded(2)]),
        ("forwarding", [forwarded(is_invited=False)]),
        ("claims-draw-nothing", [forwarded(is_shown=False)]),
        ("claims-draw-nothing", [seen.Drawn(0, FRAME, is_known=True)]),
        ("guarded-dials", [dialled(is_from_client=True)]),
        ("guarded-dials", [dialled(only_public=False)]),
        ("guarded-dials", [dialled()] * (LEARNT_DIALS_MAX + 1)),
        ("remembers", [seen.Remembered(0, "ws://node-1.sim", is_stored=False)]),
        ("bounded", [sized(2**24)]),
        ("bounded", [sized(nodes=DEFAULT_LIMITS.nodes + 1)]),
        ("bounded", [sized(clients=2)]),
        ("bounded", [sized(places=6)]),
        ("bounded", [sized(settled=True)]),
        ("liveness", [Unfulfilled("somebody")]),
        ("liveness", [seen.Meshed(0, (1,))]),
    ],
)
def test_history_breaks_its_law(law, history):
    """Each of these histories breaks the law that it stands beside."""
    assert broken(*history) == law


@pytest.mark.parametrize(
    "history",
    [
        [sent(), sent(), arrived(), arrived()],
        [sent(), INJECTED, arrived(), arrived()],
        [taken(is_plain=True), taken(is_plain=True)],
        [arrived(origin="resigned")],
        [forwarded()],
        [seen.Drawn(0, FRAME, is_known=False)],
        [seen.Dropped(ME, "duplicate")],
        [taken(auth="none", is_theirs=False)],
        [seen.KeyShown(ME, is_true=True)],
        [sent(), arrived(), OWED],
        [sent(), NOT_OWED],
        [sent(), STOLEN, OWED],
        [sent(), told(), OUTCOME_OWED],
        [sent(), seen.OutcomeDue(1, FRAME, is_owed=False)],
        [sent(), sent(OTHER_FRAME), told(), OUTCOME_OWED],
        [sent(), told(), arrived(), WRITTEN],
        [sent(), told(), EXCUSED],
        [sent(), STOLEN, told(), WRITTEN],
        [sent(), STOLEN, told(is_target_known=False)],
        [sent(), told(3, is_silence_likely=True)],
        [sent(), told(3, is_target_shaky=True)],
        [sent(), told(2, is_crowded=True)],
        [sent(), told(2, is_target_shaky=True)],
        [sent(), told(1), NOT_OWED],
        [seen.Remembered(0, "ws://node-1.sim", is_stored=True)],
        [dialled(only_public=False, is_private_allowed=True)],
        [dialled(only_public=False, is_configured=True)],
        [dialled()] * LEARNT_DIALS_MAX,
        [dialled(is_configured=True)] * (LEARNT_DIALS_MAX + 1),
        [sized(nodes=DEFAULT_LIMITS.nodes, places=5)],
        [sized(settled=True, connections=0, clients=0, addresses=3, adverts=2)],
        [seen.Meshed(0, ())],
        [seen.Gathered(1, is_right=True)] * 2,
        [seen.Bundled(1, is_right=True)] * 2,
        [MAIL_STORED, MAIL_READ, MAIL_DUE],
        [MAIL_READ, READ_REPORTED],
        [MAIL_READ, MAIL_STORED, MAIL_DUE],
        [MAIL_STORED, seen.MailDue(HIM)],
        [MAIL_STORED, DiskLost(0, frozenset({("merk_mail", ME)})), MAIL_DUE],
        [MAIL_STORED, MAIL_GIVEN, MAIL_READ, MAIL_GIVEN, MAIL_TAKEN],
        [MAIL_READ, MAIL_TAKEN, MAIL_GIVEN._replace(life=2)],
    ],
)
def test_nearest_history_breaks_nothing(history):
    """These differ from the broken ones in one thing."""
    assert broken(*history) is None


def test_dials_are_counted_by_minute_and_life():
    """What was dialled more than a minute ago, or by another life of the node, counts no more."""
    dials = [dialled()] * (2 * LEARNT_DIALS_MAX)

    assert broken(*dials, step_us=MINUTE_US // LEARNT_DIALS_MAX) is None
    assert broken(*dials[:LEARNT_DIALS_MAX], dialled()._replace(life=2)) is None
