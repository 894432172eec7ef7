"""Actors who must be found: each does one thing in one hour at one node, far beyond what honest people do."""

from typing import Final

from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryFinished, Event, PacketJudged, Refused, WorkJudged
from waystation.journal.segment import date_of
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import Actor

__all__ = ["Attackers"]

_PACKET_BYTES: Final = 400
_FARM_BITS: Final = 12


class Attackers:
    """Everybody who misuses a node."""

    def __init__(self, plan: Plan) -> None:
        self._plays = {
            "replay_attacker": self._replay,
            "burst_flooder": self._burst,
            "work_farmer": self._farm,
            "spent_capabilities": self._spend,
        }
        self._rng = plan.stream("attackers")
        self._persons = {name: self._rng.randbytes(32) for name in self._plays}
        self._network = self._rng.randbytes(6)
        self._begin_us = {name: _begin_us(plan, name) for name in self._plays}

    def play(self, stage: Stage) -> None:
        """Let those attack whose time has come."""
        for order, (name, act) in enumerate(self._plays.items()):
            at_us = self._begin_us[name]
            if name in stage.plan.scenarios and stage.begin_us <= at_us < stage.end_us:
                node = order % len(stage.plan.nodes)
                person = stage.plan.nodes[node].reference(stage.plan.week_of(at_us), self._persons[name])
                act(stage, node, person, at_us)

    def _replay(self, stage: Stage, node: int, person: bytes, at_us: int) -> None:
        n = stage.plan.param("replay_attacker", "per_minute") or 0
        minutes = stage.plan.param("replay_attacker", "minutes") or 0
        for minute in range(minutes):
            now_us = at_us + minute * MINUTE_US
            self._judge(stage, node, person, now_us, "duplicate", None, n)
            self._judge(stage, node, person, now_us + SECOND_US, "invalid_timestamp", "too_old", max(1, n // 4))
        last_us = at_us + (minutes - 1) * MINUTE_US + SECOND_US
        self._name(stage, node, "replay", "strata", "peer", person, at_us, last_us, minutes * (n + max(1, n // 4)))

    def _burst(self, stage: Stage, node: int, person: bytes, at_us: int) -> None:
        n = stage.plan.param("burst_flooder", "per_second") or 0
        seconds = stage.plan.param("burst_flooder", "seconds") or 0
        network = stage.plan.nodes[node].reference(stage.plan.week_of(at_us), self._network)
        for second in range(seconds):
            now_us = at_us + second * SECOND_US
            self._judge(stage, node, person, now_us, "rate_limited", "publish", n)
            stage.later(node, Refused(now_us, "node", None, "address_full", n, network))
        last_us = at_us + (seconds - 1) * SECOND_US
        self._name(stage, node, "burst", "strata", "peer", person, at_us, last_us, n * seconds)
        self._name(stage, node, "burst", "node", "source", network, at_us, last_us, n * seconds)

    def _farm(self, stage: Stage, node: int, person: bytes, at_us: int) -> None:
        n = stage.plan.param("work_farmer", "per_minute") or 0
        minutes = stage.plan.param("work_farmer", "minutes") or 0
        by = stage.plan.nodes[node]
        for minute in range(minutes):
            for each in range(n):
                now_us = at_us + minute * MINUTE_US + each * SECOND_US
                facts = stage.truth.capacity_day(by.node_id, date_of(now_us + by.skew_us).isoformat())
                stage.truth.worked(facts, _FARM_BITS)
                stage.later(node, WorkJudged(now_us, "lprp", person, "lease", "accepted", _FARM_BITS, 90_000))
        last_us = at_us + (minutes - 1) * MINUTE_US + (n - 1) * SECOND_US
        self._name(stage, node, "work_farming", "lprp", "peer", person, at_us, last_us, n * minutes)

    def _spend(self, stage: Stage, node: int, person: bytes, at_us: int) -> None:
        n = stage.plan.param("spent_capabilities", "per_minute") or 0
        minutes = stage.plan.param("spent_capabilities", "minutes") or 0
        for minute in range(minutes):
            for each in range(n):
                now_us = at_us + minute * MINUTE_US + each * SECOND_US
                outcome, attempt = Outcome.BAD_CAPABILITY, self._rng.randbytes(16)
                stage.later(node, DeliveryFinished(now_us, "bhumi", attempt, person, outcome, None, 0, 1))
                stage.truth.delivered(stage.hour(node, now_us), "bhumi", outcome.value, 1, 0)
        last_us = at_us + (minutes - 1) * MINUTE_US + (n - 1) * SECOND_US
        self._name(stage, node, "spent_capability", "bhumi", "peer", person, at_us, last_us, n * minutes)

    def _judge(
        self, stage: Stage, node: int, person: bytes, at_us: int, verdict: str, detail: str | None, n: int
    ) -> None:
        size = n * _PACKET_BYTES
        event: Event = PacketJudged(at_us, "strata", verdict, detail, person, None, "client", size, n)
        stage.later(node, event)
        stage.truth.judged(stage.hour(node, at_us), verdict, detail, n, size)

    def _name(
        self, stage: Stage, node: int, rule: str, protocol: str, kind: str, ref: bytes, first: int, last: int, n: int
    ) -> None:
        by = stage.plan.nodes[node]
        times = (first + by.skew_us, last + by.skew_us)
        stage.truth.actors.append(Actor(rule, protocol, kind, by.node_id, ref.hex(), *times, n))


def _begin_us(plan: Plan, name: str) -> int:
    day = min(plan.scenarios.get(name, {}).get("day", 0), plan.days - 1)
    return plan.start_us + day * DAY_US + 9 * HOUR_US
