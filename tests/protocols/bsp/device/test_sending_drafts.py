"""Laws of protocols.bsp.speaking about drafts, which are sent or abandoned later, and about versions and groups."""

import pytest

from tests.protocols.bsp.build import id_at, ids
from tests.protocols.bsp.build_device import KEPT, Bench, Flags, P, Q, audit, told
from waystation.protocols.bsp.device.links import Mode, stream_terms
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED

MEASURED = stream_terms("plain")
MODES = (Mode.INTERACTIVE, Mode.BATCH)


# Drafts


def test_draft_marks_nothing_before_it_is_sent():
    """Flags, offers and acknowledgements stay until ``sent``; then they are as after ``speak``."""
    bench = Bench(mode=Mode.BATCH)
    mine = bench.added(b"mine")
    theirs = bench.message(b"theirs")
    bench.hear(theirs, Offer(ids(1)))
    bench.commit()

    draft = bench.device.draft(P, KEPT, bench.now)
    before = bench.flags(mine), bench.flags(bench.id_of(theirs)), bench.offered(id_at(0))
    bench.device.sent(draft, bench.now)

    assert before == (Flags(), Flags(hold=True, ack=True), True)
    assert bench.flags(mine) == Flags(count=1, next_ms=8_000)
    assert bench.flags(bench.id_of(theirs)) == Flags(hold=True)
    assert not bench.offered(id_at(0))
    audit(bench.device)


def test_abandoned_draft_can_be_made_again():
    """Everything is as if it had not been made: the same records come out, over any way."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(b"mine")
    bench.hear(bench.message(b"theirs"), Offer(ids(1)))
    bench.commit()

    draft = bench.device.draft(P, KEPT, bench.now)
    audit(bench.device, [draft])
    bench.device.abandon(draft, bench.now)
    audit(bench.device)
    bench.up()

    assert bench.device.is_due(P, bench.now)
    assert bench.device.send_due(P, bench.now) == draft.records


def test_draft_holds_its_rows_back_from_the_next():
    """What one draft says, another at the same time does not repeat."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(bytes(100), 1)
    bench.added(bytes(101), 2)

    first = bench.device.draft(P, KEPT, bench.now, 150)
    second = bench.device.draft(P, KEPT, bench.now, 150)
    bench.device.sent(second, bench.now)
    bench.device.abandon(first, bench.now)
    again = bench.device.draft(P, KEPT, bench.now)

    assert [len(draft.records) for draft in (first, second, again)] == [1, 1, 1]
    assert first.records == again.records != second.records


def test_draft_of_what_went_out_before():
    """``again`` says once more whatever the peer is not known to hold, and nothing else."""
    bench = Bench(mode=Mode.BATCH)
    held, lost = bench.added(b"held"), bench.added(b"lost")
    first = bench.device.draft(P, KEPT, bench.now)
    bench.device.sent(first, bench.now)
    bench.hear(Ack((held,)))

    assert bench.device.draft(P, KEPT, bench.now).records == []
    assert bench.device.draft(P, KEPT, bench.now, again=True).bodies[0].vertex.message_id == lost


def test_draft_may_be_about_what_changed_meanwhile():
    """Acknowledged, deleted or unshared while it is under way: what is over stays over."""
    bench = Bench(mode=Mode.BATCH)
    names = [bench.added(bytes([n]), n) for n in range(3)]
    draft = bench.device.draft(P, KEPT, bench.now)
    bench.hear(Ack((names[0],)))
    bench.device.delete(bench.group_id, names[1])

    bench.device.sent(draft, bench.now)

    assert bench.flags(names[0]).hold
    assert bench.flags(names[1]) == Flags()
    assert bench.flags(names[2]) == Flags(count=1, next_ms=8_000)
    audit(bench.device)


@pytest.mark.parametrize("profile", [SEED, BRIAR])
def test_records_bear_the_version_of_their_profile(profile):
    """Every record of both profiles begins with its version."""
    bench = Bench(profile=profile)
    bench.added(b"1")
    requested = bench.added(b"2")
    bench.up()
    bench.hear(Request((requested,)), bench.message(b"3"), Offer(ids(1)))
    bench.commit()

    said = bench.device.send_due(P, bench.now)

    assert [(record[0], record[1]) for record in said] == [(profile.version, kind) for kind in (0, 3, 1, 2)]


def test_peers_are_told_nothing_of_each_others_groups():
    """A group that Q does not share never reaches it, by offer, body or acknowledgement."""
    bench = Bench(mode=Mode.BATCH)
    secret = bench.added(b"secret", group_id=bench.other_id)
    bench.added(b"open")
    bench.up(Q)
    bench.up(P)
    bench.hear(Request((secret,)), Message(bench.other_id, 1, b"secret"), peer=Q)
    bench.commit()

    assert told(bench.say(Q)) == [("Message", b"open")]
    assert len(bench.say(P)) == 2
