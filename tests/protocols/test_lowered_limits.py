"""A full table whose limit was lowered loses two entries for each that comes; no input waits for all the rest."""

from dataclasses import replace

import pytest

from tests.protocols.bhumi.build import ALICE, limits_of, preimage
from tests.protocols.merk.net import START, WALL_MS, Net, in_force, key_of
from tests.protocols.strata.build import in_force as strata_limits
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.bhumi.relay.cache import ResponseCache
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.relay.key_directory import KeyDirectory
from waystation.protocols.merk.relay.lookups import Lookups
from waystation.protocols.merk.session import Session, State
from waystation.protocols.merk.wire import make_advert
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.limits import Kind, Limits, Rank, Scope
from waystation.protocols.strata.relay.trust import TrustBudget
from waystation.store.memory import MemoryStore

FULL, LOWERED = 9, 3


class Table:
    """A table that is filled one entry at a time."""

    def __init__(self, add, size, lower):
        self.add = add
        self.size = size
        self.lower = lower


def merk_places():
    """Clients whose node is remembered."""
    limits = in_force(places=FULL)
    found, node = Lookups(limits), Session(Peer(1), State.PEER, START)
    return Table(
        lambda number: found.found(number.to_bytes(32, "big"), node, START),
        lambda: found.places_count,
        lambda: lower(limits, places=LOWERED),
    )


def merk_distrust():
    """Clients about which a node was wrong."""
    limits = in_force(distrusted_per_node=FULL)
    found, node = Lookups(limits), Session(Peer(1), State.PEER, START)
    return Table(
        lambda number: found.distrust(node, number.to_bytes(32, "big"), START),
        lambda: len(node.distrusted),
        lambda: lower(limits, distrusted_per_node=LOWERED),
    )


def merk_adverts():
    """Agreement keys that were published."""
    limits = in_force(adverts=FULL)
    keys = KeyDirectory(limits)
    return Table(
        lambda number: keys.keep(make_advert(key_of(f"key {number}"), b"a" * 32, WALL_MS), WALL_MS),
        lambda: len(keys),
        lambda: lower(limits, adverts=LOWERED),
    )


def merk_connects():
    """Addresses whose connections are counted."""
    net = Net()
    node = net.node(limits=MerkLimits(connect_addresses=FULL))
    return Table(
        lambda number: net.connect(node, address=f"192.0.2.{number}"),
        lambda: len(node.relay._handshakes._connects),
        lambda: node.relay.use_limits(MerkLimits(connect_addresses=LOWERED)),
    )


def strata_scopes():
    """Identities and addresses whose requests are counted."""
    limits = strata_limits(scopes=FULL)
    counted = Limits(limits, enabled=True)
    return Table(
        lambda number: counted.take(Scope(f"192.0.2.{number}", Rank.ANONYMOUS), Kind.PUBLISH, Instant(0)),
        lambda: len(counted),
        lambda: lower(limits, scopes=LOWERED),
    )


def strata_trust():
    """Authors whose edges are counted."""
    limits = strata_limits(trust_authors=FULL)
    budget = TrustBudget(MemoryStore().packets, limits)
    return Table(
        lambda number: budget.spend(f"did:a:{number}", strong=True, received_at=1),
        lambda: len(budget._drawn),
        lambda: lower(limits, trust_authors=LOWERED),
    )


def strata_manifests():
    """Software whose keys are remembered."""
    drive = Drive(limits=StrataLimits(client_manifests=FULL))
    clients = drive.relay._intake._clients
    return Table(
        lambda number: clients._manifest(f"did:strata:app_{number}"),
        lambda: len(clients._manifests),
        lambda: drive.relay.use_limits(StrataLimits(client_manifests=LOWERED)),
    )


def bhumi_answers():
    """Answers that are kept for a repeated request."""
    limits = limits_of(cached_responses=FULL)
    kept = ResponseCache(300_000, limits)
    return Table(
        lambda number: kept.keep_acked(bytes(ALICE.public), preimage(number), b"reply", Instant(1)),
        lambda: len(kept),
        lambda: lower(limits, cached_responses=LOWERED),
    )


def bhumi_answer_bytes():
    """The same by their bytes, of which one answer more leaves than comes."""
    limits = limits_of(cached_bytes=FULL * 5)
    kept = ResponseCache(300_000, limits)
    return Table(
        lambda number: kept.keep_acked(bytes(ALICE.public), preimage(number), b"reply", Instant(1)),
        lambda: len(kept),
        lambda: lower(limits, cached_bytes=LOWERED * 5),
    )


def lower(holder, **limits):
    """Replace limits in force."""
    holder.now = replace(holder.now, **limits)


@pytest.mark.parametrize(
    "table",
    [
        merk_places,
        merk_distrust,
        merk_adverts,
        merk_connects,
        strata_scopes,
        strata_trust,
        strata_manifests,
        bhumi_answers,
        bhumi_answer_bytes,
    ],
)
def test_full_table_shrinks_by_one_with_each_entry_that_comes(table):
    """As many entries as before are kept, then one less each time, down to the limit."""
    full = table()
    for number in range(1, FULL + 3):
        full.add(number)
    before = full.size()
    full.lower()
    sizes = []
    for number in range(100, 100 + FULL - LOWERED + 2):
        full.add(number)
        sizes.append(full.size())

    assert before == FULL
    assert sizes == [8, 7, 6, 5, 4, 3, 3, 3]
