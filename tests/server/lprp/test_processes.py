"""A whole LPRP host in a process: what `make soak` tries for long (soak/), tried for a moment."""

import pytest

from soak.lprp import kills as lprp_kills
from soak.lprp import memory as lprp_memory

SEED = 7


def test_what_was_answered_survives_a_kill(tmp_path):
    """After SIGKILL at random moments under load every 202, 204 and 208 was true, and the file is whole."""
    told = lprp_kills.check(tmp_path, SEED, rounds=3)

    assert told.startswith("3 kills")
    assert not told.startswith("3 kills, 0 packets")


@pytest.mark.slow
def test_floods_leave_memory_flat(tmp_path):
    """Garbage, forgeries, replays and strangers cost no memory that stays, and friends are served after each."""
    told = lprp_memory.check(tmp_path, SEED, datagrams=4_000, addresses=2_000)

    assert told.count("MiB before and after each round") == 7
