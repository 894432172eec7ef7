"""A GroupCommit for tests, over a store that is as slow as they say."""

import threading

from waystation.core.records import Record
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import monotonic_now
from waystation.store.memory import MemoryStore


class GatedStore(MemoryStore):
    """A store whose disk is as slow as the test says, and which remembers its groups."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.groups = []
        self.threads = set()

    def commit(self, records):
        """Commit once the gate is open."""
        self.gate.wait()
        self.threads.add(threading.current_thread().name)
        self.groups.append([record.key for record in records])
        super().commit(records)


def record(number):
    """Return the record of a number."""
    return Record("echo", b"%d" % number, b"kept")


class Told:
    """A GroupCommit and what it answered."""

    def __init__(self, store, health=None):
        self.answers = []
        """(number, whether it is on disk) in the order of the answers."""
        self.commits = GroupCommit(store, FailureLog(monotonic_now), health)

    def ask(self, *numbers, owner="echo"):
        """Ask for records together; the answer is noted under the last number."""
        self.commits.ask(owner, [record(number) for number in numbers], lambda kept: self.note(numbers, kept))

    def note(self, numbers, kept):
        self.answers.append((numbers[-1] if numbers else 0, kept))
