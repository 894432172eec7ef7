"""Generates events of single nodes: starts, resource samples, leases, proofs of work, subscriptions and refusals.

The generator plays it. The store grows by a fixed amount per day plus a little noise, so the growth that the pipeline
must detect is known.
"""

from typing import Final

from waystation.journal.events import (
    AnonymousCounted,
    LeaseChanged,
    NodeSampled,
    NodeStarted,
    NodeStopped,
    Refused,
    SubscriptionEnded,
    SubscriptionOpened,
    WorkJudged,
)
from waystation.journal.segment import date_of
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US, Plan
from waystation.sim.workload.stage import Stage

__all__ = ["NodeEvents"]

VERSION: Final = "0.7.0"
_PROTOCOLS: Final = ("bhumi", "lprp", "merk", "strata", "bsp")
_REFUSALS: Final = (
    *(("bhumi", "truncated"), ("bhumi", "oversize"), ("lprp", "clock"), ("lprp", "not_a_tenant")),
    *(("merk", "auth_timeout"), ("bsp", "handshake_timeout")),
)
_CHANGES: Final = ("granted", "renewed", "renewed", "renewed", "expired", "revived", "forgotten")
_STORE_BYTES: Final = 10_000_000_000
_LEASES_A_DAY: Final = 3  # accepted leases of one tenant: more would be farming


class NodeEvents:
    """Everything that needs no other node."""

    def __init__(self, plan: Plan) -> None:
        self._rng = plan.stream("house")
        self._tenants = [self._rng.randbytes(32) for _ in range(max(50, plan.events // 2_000))]
        self._networks = [self._rng.randbytes(6) for _ in range(200)]
        self._growth = {node.node_id: self._rng.randrange(50, 500) * 1_000_000 for node in plan.nodes}
        self._leases = round(plan.slot_events * 0.02)
        self._works = round(plan.slot_events * 0.02)
        self._subscriptions = round(plan.slot_events * 0.01)
        self._refusals = round(plan.slot_events * 0.01)
        self._worked: dict[tuple[int, int], int] = {}
        fixed = self._leases + self._works + 2 * self._subscriptions + self._refusals
        self.expected = fixed + 2 * plan.slot_us / plan.sample_us
        """About how many events a node has of these in a slot."""

    def play(self, stage: Stage) -> None:
        """Let a slot pass."""
        # What grows is the store, and its journal by a tenth of that.
        stage.truth.growth = {node_id: grown + grown // 10 for node_id, grown in self._growth.items()}
        for node in range(len(stage.plan.nodes)):
            if stage.slot == 0 or (node, stage.slot - 1) in stage.plan.kills:
                stage.out[node].append(NodeStarted(stage.begin_us, VERSION))
            self._sample(stage, node)
            self._let_in(stage, node)
            self._subscribe(stage, node)
            self._refuse(stage, node)
            if stage.slot == stage.plan.slots - 1 and node < len(stage.plan.nodes) - 1:
                stage.out[node].append(NodeStopped(stage.end_us - 1, "signal"))

    def _sample(self, stage: Stage, node: int) -> None:
        rng, step_us, plan = self._rng, stage.plan.sample_us, stage.plan
        node_id = plan.nodes[node].node_id
        for at_us in range(stage.begin_us + step_us - MINUTE_US // 2, stage.end_us, step_us):
            busy = 1_000 + int(800 * abs((at_us // HOUR_US) % 24 - 12) / 12)
            grown = (at_us - plan.start_us) * self._growth[node_id] // DAY_US
            sample = NodeSampled(
                at_us,
                rng.randrange(busy // 10, busy // 5),
                rng.randrange(busy, 3 * busy),
                rng.randrange(busy, 3 * busy) * 700,
                rng.randrange(busy, 3 * busy) * 900,
                rng.randrange(1_000_000, 30_000_000),
                rng.randrange(60_000_000, 90_000_000),
                _STORE_BYTES + grown + rng.randrange(100_000),
                1_000_000 + grown // 10,
            )
            stage.out[node].append(sample)
            self._note(stage, node, sample)
            protocol = _PROTOCOLS[at_us // step_us % 5]
            opened = rng.randrange(40)
            stage.out[node].append(AnonymousCounted(at_us, protocol, opened, rng.randrange(opened + 1)))

    def _note(self, stage: Stage, node: int, sample: NodeSampled) -> None:
        facts = self._day(stage, node, sample.ts_us)
        facts["samples"] += 1
        facts["peak_connections"] = max(facts["peak_connections"], sample.connections)
        stage.truth.minutes[stage.plan.nodes[node].node_id, self._date(stage, node, sample.ts_us)].append(
            sample.messages
        )
        facts["memory_bytes"] = max(facts["memory_bytes"], sample.memory_bytes)
        for name in ("messages", "bytes_in", "bytes_out", "cpu_us"):
            facts[name] += getattr(sample, name)
        facts["store_bytes"] = sample.store_bytes + sample.journal_bytes

    def _let_in(self, stage: Stage, node: int) -> None:
        rng, plan, out = self._rng, stage.plan, stage.out[node]
        week, day = plan.week_of(stage.begin_us), (stage.begin_us - plan.start_us) // DAY_US
        named = plan.nodes[node].reference
        for _ in range(self._leases):
            tenant = named(week, rng.choice(self._tenants))
            at_us = self._at(stage)
            out.append(LeaseChanged(at_us, "lprp", tenant, rng.choice(_CHANGES), rng.randrange(9)))
        for _ in range(self._works):
            number = rng.randrange(len(self._tenants))
            at_us, bits, lucky = self._at(stage), rng.randrange(12, 18), rng.random()
            done = self._worked.get((number, day), 0)
            if lucky < 0.06:
                turned = WorkJudged(at_us, "lprp", None, "relay", "too_few_bits", None, None, 1)
                out.append(turned)
                self._day(stage, node, at_us)["pow_turned_down"] += 1
                continue
            leased = lucky > 0.5 and done < _LEASES_A_DAY
            self._worked[number, day] = done + leased
            worker = named(week, self._tenants[number]) if leased else None
            work = "lease" if leased else "relay"
            out.append(WorkJudged(at_us, "lprp", worker, work, "accepted", bits, rng.randrange(20_000, 900_000)))
            stage.truth.worked(self._day(stage, node, at_us), bits)

    def _subscribe(self, stage: Stage, node: int) -> None:
        rng, out = self._rng, stage.out[node]
        for _ in range(self._subscriptions):
            at_us = self._at(stage)
            conn = rng.randbytes(8) if rng.random() < 0.5 else None
            times = 1 if conn else rng.randrange(1, 5)
            out.append(SubscriptionOpened(at_us, "strata", conn, 0, times))
            lasts_us = min(rng.randrange(1, HOUR_US), stage.end_us - 1 - at_us)
            ended = (rng.randrange(100), rng.randrange(50), rng.random() < 0.01, lasts_us, times)
            out.append(SubscriptionEnded(at_us + lasts_us, "strata", conn, *ended[:2], int(ended[2]), *ended[3:]))

    def _refuse(self, stage: Stage, node: int) -> None:
        rng, plan, out = self._rng, stage.plan, stage.out[node]
        for _ in range(self._refusals):
            at_us = self._at(stage)
            if rng.random() < 0.2:
                source = plan.nodes[node].reference(plan.week_of(at_us), rng.choice(self._networks))
                out.append(Refused(at_us, "node", None, "address_full", rng.randrange(1, 3), source))
            else:
                protocol, reason = rng.choice(_REFUSALS)
                out.append(Refused(at_us, protocol, None, reason, rng.randrange(1, 5)))

    def _at(self, stage: Stage) -> int:
        return stage.begin_us + int(self._rng.random() * stage.plan.slot_us)

    def _day(self, stage: Stage, node: int, at_us: int) -> dict[str, int]:
        return stage.truth.capacity_day(stage.plan.nodes[node].node_id, self._date(stage, node, at_us))

    def _date(self, stage: Stage, node: int, at_us: int) -> str:
        return date_of(at_us + stage.plan.nodes[node].skew_us).isoformat()
