"""Laws of BSP about devices whose disk has lost messages."""

import pytest

from tests.sim.bsp.test_invariants import ACK, CHILD, DELIVERED, GROUP, MADE, ROOT, record, see, sent, told
from waystation.sim.bsp import invariants as laws
from waystation.sim.bsp import observations as seen
from waystation.sim.disk import Row
from waystation.sim.observations import DiskLost

LOST = DiskLost("a", frozenset({Row("bsp_messages", GROUP + ROOT)}))
STATE = DiskLost("a", frozenset({Row("bsp_states", GROUP + ROOT)}))
ELSEWHERE = LOST._replace(node="b")
FLAGS = DiskLost("a", frozenset({Row("bsp_flags", GROUP + ROOT)}))


@pytest.mark.parametrize(("loss", "excuses"), [(LOST, True), (STATE, True), (ELSEWHERE, False), (FLAGS, False)])
def test_lost_message_may_be_named_forgotten_and_reported_again(loss, excuses):
    """That holds for the device whose disk lost it, and for the rows of the message."""
    began = seen.Started("a", {})

    assert see(laws.OnDiskFirst, loss, sent(record(ACK, ROOT), unstored=(ROOT,))) == (
        None if excuses else "on-disk-first"
    )
    assert see(laws.CausalOrder, *MADE, told(ROOT, 1), loss, began) == (None if excuses else "causal-order")
    assert see(laws.CausalOrder, *MADE, told(ROOT, 1), loss, told(ROOT, 2)) == (None if excuses else "causal-order")
    assert see(laws.CausalOrder, *MADE, loss, told(CHILD, 2)) == (None if excuses else "causal-order")


@pytest.mark.parametrize("loss", [LOST, ELSEWHERE])
def test_lost_message_and_what_depends_on_it_may_be_missing(loss):
    """Whoever lost it, others may have had it from nobody else."""
    both = seen.Compared(GROUP, {"a": {}, "b": {ROOT: DELIVERED, CHILD: DELIVERED}})
    other = seen.Compared(GROUP, {"a": {}, "b": {bytes(32): DELIVERED}})

    assert see(laws.Agreed, *MADE, both) == "agreed"
    assert see(laws.Agreed, *MADE, loss, both) is None
    assert see(laws.Agreed, *MADE, loss, other) == "agreed"
    assert see(laws.Agreed, *MADE, FLAGS, both) == "agreed"
