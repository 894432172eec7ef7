"""What each protocol does about each fault: the rows that docs/operating.md prints and every run checks."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["OTHERS", "PROTOCOLS", "ROWS", "Cell", "Row", "render"]

PROTOCOLS: Final = ("bhumi", "bsp", "lprp", "merk", "strata")


class Cell(Enum):
    """What messages that are sent while a fault lasts come to; the value is how the table says it."""

    GOES_ON = "goes on"
    """Some are acknowledged."""
    WAITS = "waits"
    """None is acknowledged before the fault ends, and some are afterwards."""
    LATER = "later"
    """Each is acknowledged, some of them only after the fault; none is refused."""
    IN_PART = "in part"
    """Each is acknowledged, waits or is refused, as the store takes writes or not."""
    IF_ROOM = "if there is room"
    """Each is acknowledged, waits, is refused or ends with its connection; of one protocol it may be none at all."""
    REFUSES = "refuses"
    """None is acknowledged, and the sender learns at once that the node does not take it."""
    DOWN = "down"
    """None is acknowledged, whatever else becomes of them."""


class Row(NamedTuple):
    """One fault."""

    what: str
    """For people who operate a node."""
    cells: Mapping[str, Cell]
    """By protocol."""


_GOES_ON: Final = dict.fromkeys(PROTOCOLS, Cell.GOES_ON)
_DOWN: Final = dict.fromkeys(PROTOCOLS, Cell.DOWN)
_NO_STORE: Final = _GOES_ON | {"bsp": Cell.WAITS, "lprp": Cell.WAITS, "strata": Cell.REFUSES}
"""Bhumi and MERK keep nothing that must be on the disk first."""
_FLAPPING: Final = _GOES_ON | dict.fromkeys(("bsp", "lprp", "strata"), Cell.IN_PART)
_WRONG_TIME: Final = _GOES_ON | {"lprp": Cell.WAITS, "strata": Cell.REFUSES}
"""LPRP accepts only what was signed within minutes of the node's time; Strata what is older, but not by days."""

ROWS: Final[Mapping[str, Row]] = {
    "kill": Row("the process is killed, and started again", _DOWN),
    "power-cut": Row("the power is cut: what was not synced is lost", _DOWN),
    "stop": Row("the process stands still (SIGSTOP, a suspended machine)", _DOWN),
    "lock": Row("another program holds the lock of `store.sqlite` for 10 s", _NO_STORE),
    "full": Row("the disk is full", _NO_STORE),
    "failing-sync": Row("one fsync fails (EIO)", _GOES_ON),
    "failing-writes": Row("one write in 50 fails (EIO)", _FLAPPING),
    "failing-reads": Row("every read of the disk fails (EIO)", _FLAPPING),
    "slow-sync": Row("every fsync takes 2 s", _GOES_ON | dict.fromkeys(("bsp", "lprp", "strata"), Cell.LATER)),
    "hung-writes": Row("no write to the disk returns", _NO_STORE),
    "clock-ahead": Row("the clock steps an hour ahead, and back", _WRONG_TIME | {"strata": Cell.GOES_ON}),
    "clock-behind": Row("the clock steps an hour back, and ahead", _WRONG_TIME),
    "clock-days": Row("the clock steps five days ahead, and back", _WRONG_TIME),
    "descriptors": Row("idle connections take every file descriptor", _GOES_ON),
    "memory": Row(
        "the process gets no more memory (`MemoryMax=`, `ulimit -v`)", dict.fromkeys(PROTOCOLS, Cell.IF_ROOM)
    ),
    "home-moved": Row("the home is moved away, and back", _NO_STORE),
}
"""By the fault's name in ``soak.faults.kinds``."""

OTHERS: Final = (
    (
        "everything between clients and node is dropped",
        "both sides know it within 30 s, and all five are back within 10 s of the end",
        "tests/soak/test_silence.py",
    ),
    ("2,000 clients come back at once", "all are served within 10 s of two free cores", "tests/soak/test_herd.py"),
    (
        "`store.sqlite`, its log `-wal` or `node.key` is missing at the start",
        "the node does not start (exit 5) and says what to do; put back, everything acknowledged is there",
        "tests/server/whole/test_home_mark.py",
    ),
    (
        "`store.sqlite`, its `-wal` or its `-shm` is deleted under the running node, or the file is written over",
        "noticed at the next write, on an idle node within seconds; from then on nothing is acknowledged that needs it",
        "tests/server/whole/test_store_faults.py",
    ),
    (
        "a write never returns",
        "as in the table; SIGTERM ends the node within seconds (exit 5), and everything acknowledged is there",
        "tests/server/whole/test_store_faults.py",
    ),
    (
        "bytes of a row of the store have changed",
        "that row is left out and counted; readers go on and blame nobody",
        "tests/server/whole/test_damaged_rows.py",
    ),
    (
        "file descriptors run out",
        "new connections wait, those that stand go on, one line a minute in the log",
        "tests/server/whole/test_shortages.py",
    ),
    (
        "memory runs out",
        "what needs more is refused or waits, connections may end, one line a minute in the log; nobody crashes",
        "tests/server/whole/test_shortages.py",
    ),
    (
        "the home is lost, and a backup of the busy node is restored",
        "everything acknowledged before the backup is there",
        "tests/server/whole/test_backup_under_load.py",
    ),
)
"""Fault, what happens, and the test that tries it: what has no cell for each protocol."""

_HEAD: Final = """\
What happens to messages that are sent while something is wrong, with clients of all five protocols at one node. In
every cell nothing that was acknowledged is lost, nothing that is called not sent arrives, nothing arrives twice, the
node does not end by itself, and within 10 s of the end of the fault all five acknowledge again, without anybody's help.

"""
_TAIL: Final = """
`goes on`: acknowledged meanwhile. `waits`: acknowledged once it is over. `refuses`: the sender learns at once that the
node does not take it. `later`: acknowledged, as slowly as the disk is. `in part`: some go on, others wait or are
refused. `if there is room`: as in part, and of one protocol it may be none. `down`: nobody answers, and the clients
come back by themselves. `tests/soak/faults/test_table.py` tries each row, and
`python -m soak.run --only faults --minutes 30` all of them in any order.
"""


def render() -> str:
    """Return the table for docs/operating.md."""
    lines = [f"| fault | {' | '.join(PROTOCOLS)} |", "|---" * (len(PROTOCOLS) + 1) + "|"]
    lines += [f"| {row.what} | {' | '.join(row.cells[name].value for name in PROTOCOLS)} |" for row in ROWS.values()]
    others = ["| fault | what happens | tried by |", "|---|---|---|"]
    others += [f"| {what} | {happens} | `{test}` |" for what, happens, test in OTHERS]
    return _HEAD + "\n".join(lines) + "\n" + _TAIL + "\n" + "\n".join(others) + "\n"
