"""Machines that make one mistake each about a disk that refuses, for the tests of the simulator's laws."""

from waystation.core.errors import StoreFault
from waystation.core.packets import PacketPage
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.strata.relay.intake import Verdict
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.relay.replication import Place


class _TakesRefusalForCommit:
    """Takes what the store refused for stored."""

    def not_committed(self, ticket, now):
        super().committed(ticket, now)


class StrataTakesRefusalForCommit(_TakesRefusalForCommit, StrataRelay):
    """Says OK to what the store refused."""


class LprpTakesRefusalForCommit(_TakesRefusalForCommit, LprpRelay):
    """Says 202 to what the store refused."""


class BspTakesRefusalForCommit(_TakesRefusalForCommit, BspMachine):
    """Acknowledges what the store refused."""


class _HearsNothing:
    """Goes on waiting for an answer that it was given."""

    def not_committed(self, ticket, now):
        """Ignore that the store refused."""


class StrataHearsNothing(_HearsNothing, StrataRelay):
    """Never answers for a packet that the store refused."""


class LprpHearsNothing(_HearsNothing, LprpRelay):
    """Commits nothing any more once the store refused."""


class BspHearsNothing(_HearsNothing, BspMachine):
    """Commits nothing any more once the store refused."""


class _LosesRefused:
    """Asks again for what is newer, and not for what was refused."""

    def not_committed(self, ticket, now):
        super().not_committed(ticket, now)
        self._commits._changes = ()


class LprpLosesRefused(_LosesRefused, LprpRelay):
    """Answers once a later commit is on disk."""


class BspLosesRefused(_LosesRefused, BspMachine):
    """Acknowledges once a later commit is on disk."""


class MerkTakesRefusalForCommit(_TakesRefusalForCommit, MerkRelay):
    """Never writes down what the store refused."""


class StrataUndoesNothing(StrataRelay):
    """Says that a packet is not stored, and believes for ever that it is on its way: a copy is a duplicate."""

    def not_committed(self, ticket, now):
        ids = {candidate.packet.packet_id for candidate, _ in self._intake._committing.get(ticket, ())}
        super().not_committed(ticket, now)
        self._intake._pending_ids |= ids


class StrataReadsOn(StrataRelay):
    """Lets the cursor of an upstream pass a packet that the store refused."""

    def _report_verdict(self, candidate, verdict, now):
        is_replica = isinstance(candidate.origin, Place)
        is_lost = verdict.refusal is not None and verdict.refusal.detail == "not_stored"
        super()._report_verdict(candidate, Verdict(duplicate=True) if is_replica and is_lost else verdict, now)


class _EmptyWhenUnread:
    """Reads of a packet table, of which a page that cannot be read is empty."""

    def __init__(self, packets):
        self._packets = packets

    def entries(self, query):
        try:
            return self._packets.entries(query)
        except StoreFault:
            return PacketPage([], None)

    def __getattr__(self, name):
        return getattr(self._packets, name)


class StrataEndsUnread(StrataRelay):
    """Takes a page that it cannot read for the end of history."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._delivery._packets = _EmptyWhenUnread(self._delivery._packets)


class StrataAlwaysRefuses(StrataRelay):
    """Blames its disk for what that has taken."""

    def committed(self, ticket, now):
        if ticket in self._intake._committing:
            super().not_committed(ticket, now)
        else:
            super().committed(ticket, now)
