"""An LPRP client that requests leases and edits whitelists until the host is killed, and records every answer."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.lprp.driver import Signer, ask, ask_and_work, command_of, lease
from soak.lprp.nodes import LprpNode, is_tenant
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.whitelist import comparison, whitelist_hash

LISTERS: Final = 4
CONTACTS: Final = tuple(bytes([number]) * 32 for number in range(1, 33))
TOGGLED_MAX: Final = 3
OLD_LEASES: Final = 5
FIRST_LISTER: Final = 10_001
FIRST_NEWCOMER: Final = 100_001
_PADDING: Final = bytes(64)


@dataclass
class Lister:
    """A tenant whose whitelist changes."""

    signer: Signer
    agreed: frozenset[bytes] = frozenset()
    """What the host has answered that it has."""
    asked: frozenset[bytes] | None = None
    """What it may have, because its answer did not arrive."""


class Changer:
    """One line to a host, some listers, and ever new tenants."""

    def __init__(self, node: LprpNode, rng: random.Random) -> None:
        """Give the listers their leases; the host runs."""
        self.granted: list[Signer] = []
        """Newcomers that the host has given a lease."""
        self.changes = 0
        """Changes of whitelists that it has agreed to."""
        self._node = node
        self._rng = rng
        self._line = node.line("127.0.98.1")
        self._over = threading.Event()
        self._unchecked = 0
        self._listers = [Lister(Signer(FIRST_LISTER + number, node.key)) for number in range(LISTERS)]
        self._newcomers = 0
        for lister in self._listers:
            lease(self._line, lister.signer)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Ask and change in a thread of its own, as long as this lasts."""
        self._over.clear()
        faults: list[BaseException] = []

        def work() -> None:
            try:
                while not self._over.is_set():
                    self._change(self._rng.choice(self._listers))
                    self._newcomer()
            except BaseException as error:  # noqa: BLE001 - raised where the law is
                faults.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        if faults:
            raise faults[0]

    def check(self) -> None:
        """See that the host has every lease it gave, and the whitelists it agreed to."""
        old = self.granted[: self._unchecked]
        for signer in self.granted[self._unchecked :] + self._rng.sample(old, min(OLD_LEASES, len(old))):
            assert is_tenant(self._line, signer), "a lease that was granted is gone"
        self._unchecked = len(self.granted)
        for lister in self._listers:
            if lister.asked is not None and self._has(lister, lister.asked):
                lister.agreed = lister.asked
            assert self._has(lister, lister.agreed), "a whitelist went back"
            lister.asked = None

    def close(self) -> None:
        """Close its line."""
        self._line.close()

    def _has(self, lister: Lister, keys: frozenset[bytes]) -> bool:
        packet = lister.signer.seal(Command.UPDATE_WHITELIST, comparison(keys))
        return command_of(ask(self._line, packet)) == Command.WHITELIST_DONE

    def _change(self, lister: Lister) -> None:
        if lister.asked is not None:
            return
        keys = self._rng.sample(CONTACTS, self._rng.randint(1, TOGGLED_MAX))
        lister.asked = lister.agreed.symmetric_difference(keys)
        payload = whitelist_hash(lister.asked) + b"".join(keys)
        answer = self._settle(lister.signer, lister.signer.seal(Command.UPDATE_WHITELIST, payload))
        if answer is not None:
            assert answer == Command.WHITELIST_DONE, f"{answer:#x}"
            lister.agreed, lister.asked = lister.asked, None
            self.changes += 1

    def _newcomer(self) -> None:
        signer = Signer(FIRST_NEWCOMER + self._newcomers, self._node.key)
        self._newcomers += 1
        answer = self._settle(signer, signer.seal(Command.ASK_LEASE, _PADDING))
        if answer is not None:
            assert answer == Command.LEASE_GRANTED, f"{answer:#x}"
            self.granted.append(signer)

    def _settle(self, signer: Signer, packet: Packet) -> int | None:
        return ask_and_work(self._line, signer, packet, self._over.is_set)
