"""The tables of one host without the host, for the tests of the parts that work on them."""

from tests.protocols.lprp.build import BIG, HOST, NOW_MS, SENDER, TENANT
from tests.protocols.lprp.build_relay import AT_HOME, START, settings_of
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import DEFAULT_LIMITS, LprpLimits
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.relay.answers import Answers, Seen
from waystation.protocols.lprp.relay.challenges import Challenges
from waystation.protocols.lprp.relay.commands.lease import Leasing
from waystation.protocols.lprp.relay.commands.relay import Relaying
from waystation.protocols.lprp.relay.commands.whitelist import Listing
from waystation.protocols.lprp.relay.commands.work import Working
from waystation.protocols.lprp.relay.delivery import Delivery
from waystation.protocols.lprp.relay.intake import Arrival, Intake
from waystation.protocols.lprp.relay.ledger import Ledger
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.sources import Sources
from waystation.protocols.lprp.relay.tenants import Tenants
from waystation.store.memory import MemoryStore

LEASE_MS = 3_600_000


def limits_of(**limits):
    """Return limits in force, the defaults but for these."""
    return InForce(LprpLimits(**limits))


class Parts:
    """Everything that a host is put together from, on one store."""

    def __init__(
        self,
        *,
        store=None,
        tenants_max=10,
        is_open=True,
        rate_limits=True,
        banned=(),
        unlimited=(),
        limits=DEFAULT_LIMITS,
        **settings,
    ):
        self.store = store if store is not None else MemoryStore()
        self.facts, self.sent, self.banned = [], [], set(banned)
        self.extra_bits = {}
        self.settings = settings_of(lease_ms=LEASE_MS, **settings)
        self.limits = InForce(limits)
        self.sources, self.tenants = Sources(self.limits), Tenants(LEASE_MS, tenants_max)
        self.challenges, self.answers, self.seen = Challenges(self.limits), Answers(self.limits), Seen(self.limits)
        self.ledger = Ledger(self.store)
        self.loaded = self.ledger.load(self.tenants)
        self.delivery = Delivery(2_000, 5, lambda address, data: self.sent.append((address, data)))
        self.intake = Intake(
            BIG,
            HOST.public,
            self.tenants,
            self.challenges,
            self.limits,
            self.admits,
            lambda key: key in unlimited,
            rate_limits=rate_limits,
        )
        self.relaying = Relaying(
            self.tenants, self.ledger, self.seen, self.limits, admits=self.admits, note=self.facts.append
        )
        self.relaying.loaded()
        self.leasing = Leasing(
            self.tenants, self.ledger, self.delivery, is_open=is_open, admits=self.admits, note=self.facts.append
        )
        self.listing = Listing(self.ledger, self.limits)
        tables = (self.tenants, self.challenges, self.answers)
        self.working = Working(
            self.settings,
            HOST,
            BIG,
            tables,
            (self.relaying, self.leasing, self.listing),
            self.facts.append,
            self.limits,
            self.extra,
        )

    def extra(self, key, _now):
        """How many bits more an identity pays."""
        return self.extra_bits.get(key, 0)

    def admits(self, key):
        """Whether an identity is not banned."""
        return key not in self.banned

    def tenant(self, key=TENANT, wall_ms=NOW_MS):
        """Return somebody with a lease since then."""
        tenant, _ = self.tenants.grant(key.public, wall_ms)
        self.ledger.note_tenant(tenant)
        return tenant

    def letter(self, number=0, *, recipient=TENANT, payload=bytes(64), from_unlisted=False, accepted_ms=NOW_MS):
        """Put a letter into its recipient's mailbox and the ledger, as an acceptance does; return it."""
        packet = BIG.seal(SENDER, recipient.public, Command.RELAY, payload, NOW_MS + number)
        letter = QueuedPacket(
            packet.data, packet.signature, from_unlisted=from_unlisted, accepted_ms=accepted_ms + number, attempt=number
        )
        self.tenants.find(recipient.public, NOW_MS).mailbox.add(letter)
        self.ledger.note_accepted(letter)
        return letter

    def hear(self, address=AT_HOME, size=144, now=START):
        """Return a source after a datagram from it."""
        return self.sources.receive(address, size, now)

    def arrival(self, packet, address=AT_HOME, actor=None):
        """Return a packet that passed its checks, from there."""
        return Arrival(packet, actor or packet.sender, address, self.hear(address, len(packet.data)))

    def commit(self):
        """Write what changed; return the changes."""
        changes = self.ledger.changes()
        self.store.commit(changes)
        return changes

    def reborn(self, **options):
        """Return the next life, on the same store."""
        return Parts(store=self.store, **options)

    def rows(self, table):
        """Return the rows of a table as (key, value)."""
        return list(self.store.scan(f"lprp_{table}", count_max=100_000))
