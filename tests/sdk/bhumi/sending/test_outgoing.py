"""Laws of sending.outgoing: a permission is used once, none is thrown away, and each request has one owner."""

import asyncio
import contextlib

import pytest

from tests.sdk.build import ALICE, PREIMAGE, know_alice
from waystation.core.errors import LocalError
from waystation.sdk.bhumi import BhumiState, Outcome, PendingKind, Reply
from waystation.sdk.bhumi.sending.outgoing import HEAD_BYTES, HEADS_MAX, OUTCOMES_MAX, REFUSED_PER_PEER_MAX, Outgoing
from waystation.sdk.bhumi.sending.owner import owned

P = [bytes([number]) * 32 for number in range(1, 200)]


@contextlib.contextmanager
def kept(tmp_path, *rights, owner="me"):
    """Give what a sender keeps, with permissions to send to Alice."""
    with contextlib.closing(BhumiState(tmp_path)) as state:
        know_alice(state, *rights)
        yield state, Outgoing(state, owner)


def take(outgoing, payload=b"bytes", **options):
    return outgoing.take(ALICE.public, PendingKind.MESSAGE, lambda _: payload, **options)


def rights(state):
    return [bytes(row[0]) for row in state.all("SELECT preimage FROM theirs ORDER BY refused, position")]


def test_two_programs_take_two_permissions(tmp_path):
    """Two programs with one folder never take the same permission; the third finds none."""
    with kept(tmp_path, P[0], P[1]) as (_, one), contextlib.closing(BhumiState(tmp_path)) as again:
        two = Outgoing(again, "other")
        taken = [take(outgoing) for outgoing in (one, two, one)]

        assert [each and each.preimage for each in taken] == [P[0], P[1], None]
        assert [each.owner for each in again.pending()] == ["me", "other"]


def test_request_that_cannot_be_written_costs_nothing(tmp_path):
    """What writing raises leaves the permission where it was."""

    def refuse(_):
        raise LocalError("no words")

    with kept(tmp_path, P[0]) as (state, outgoing):
        with pytest.raises(LocalError):
            outgoing.take(ALICE.public, PendingKind.MESSAGE, refuse)
        assert (rights(state), state.pending()) == ([P[0]], [])


def test_refused_permission_goes_behind_and_is_bounded(tmp_path):
    """A permission that no relay knows is used when no other is left; of very many the oldest leave."""
    with kept(tmp_path, P[0], P[1]) as (state, outgoing):
        outgoing.put_behind(take(outgoing))
        state.gain(ALICE.public, [P[2]])
        order = rights(state)
        counted = state.peer(ALICE.public).rights
        for preimage in P[3 : 3 + REFUSED_PER_PEER_MAX + 5]:
            state.give_back(preimage, ALICE.public)
            outgoing.put_behind(take(outgoing))

        assert (order, counted) == ([P[1], P[2], P[0]], 2)
        assert len(rights(state)) == REFUSED_PER_PEER_MAX + 2
        assert P[0] not in rights(state)


def test_heads_are_kept_until_the_answer(tmp_path):
    """What left under a permission that is used again is known by its head, newest first; the oldest leave."""
    with kept(tmp_path, PREIMAGE) as (state, outgoing):
        for number in range(HEADS_MAX + 3):
            outgoing.give_back(take(outgoing, bytes([number]) * 500), was_out=True)
        unsent = take(outgoing, b"never left")
        outgoing.give_back(unsent, was_out=False)
        heads = outgoing.heads(PREIMAGE)
        outgoing.finish(unsent, ())

        assert heads == [bytes([number]) * HEAD_BYTES for number in reversed(range(3, HEADS_MAX + 3))]
        assert (outgoing.heads(PREIMAGE), state.next_right(ALICE.public)) == ([], PREIMAGE)


def test_living_owner_keeps_its_request(tmp_path):
    """A request is left behind when its owner is dead, and then one program alone takes it over."""

    async def scenario():
        with kept(tmp_path, PREIMAGE, owner="") as (state, nobody):
            async with owned(tmp_path) as alive:
                begun = Outgoing(state, alive)
                take(begun)
                while_alive = nobody.left_behind(), [each.preimage for each in begun.left_behind()]
            (left,) = nobody.left_behind()
            claims = [Outgoing(state, name).claim(left) for name in ("one", "two")]
            return while_alive, [claim and claim.owner for claim in claims]

    assert asyncio.run(scenario()) == (([], [PREIMAGE]), ["one", None])


def test_outcomes_are_given_once_and_bounded(tmp_path):
    """An outcome that nobody waited for is there for whoever asks first; of very many the oldest leave."""
    with kept(tmp_path, PREIMAGE) as (_, outgoing):
        pending = take(outgoing)
        for number in range(OUTCOMES_MAX + 2):
            outgoing.keep_outcome(pending, Reply(Outcome.FAILED, 1, str(number).encode()), "a note")
        first, *others = outgoing.take_outcomes()

        assert (first.reply, first.note, len(others)) == (Reply(Outcome.FAILED, 1, b"2"), "a note", OUTCOMES_MAX - 1)
        assert outgoing.take_outcomes() == []
