"""Generates attackers that the pipeline must detect: each abuses one node in one hour, far beyond honest behaviour.

The generator (``workload.generator``) plays them over the honest load of a synthetic journal. Each goes into ``truth``
too, so that a test knows what the pipeline must find.
"""

from typing import Final

from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryFinished, Event, PacketJudged, Refused, WorkJudged
from waystation.journal.segment import date_of
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.scenarios import Parameters
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
                act(stage, node, person, at_us, stage.plan.scenarios[name])

    def _replay(self, stage: Stage, node: int, person: bytes, at_us: int, how: Parameters) -> None:
        n, again = how["per_minute"], max(1, how["per_minute"] // 4)
        for now_us in range(at_us, at_us + how["minutes"] * MINUTE_US, MINUTE_US):
            self._judge(stage, node, person, now_us, "duplicate", None, n)
            self._judge(stage, node, person, now_us + SECOND_US, "invalid_timestamp", "too_old", again)
        last_us = at_us + (how["minutes"] - 1) * MINUTE_US + SECOND_US
        self._name(stage, node, "replay", "strata", "peer", person, at_us, last_us, how["minutes"] * (n + again))

    def _burst(self, stage: Stage, node: int, person: bytes, at_us: int, how: Parameters) -> None:
        n, seconds = how["per_second"], how["seconds"]
        network = stage.plan.nodes[node].reference(stage.plan.week_of(at_us), self._network)
        for now_us in range(at_us, at_us + seconds * SECOND_US, SECOND_US):
            self._judge(stage, node, person, now_us, "rate_limited", "publish", n)
            stage.later(node, Refused(now_us, "node", None, "address_full", n, network))
        last_us = at_us + (seconds - 1) * SECOND_US
        self._name(stage, node, "burst", "strata", "peer", person, at_us, last_us, n * seconds)
        self._name(stage, node, "burst", "node", "source", network, at_us, last_us, n * seconds)

    def _farm(self, stage: Stage, node: int, person: bytes, at_us: int, how: Parameters) -> None:
        by, times = stage.plan.nodes[node], _times(at_us, how)
        for now_us in times:
            facts = stage.truth.capacity_day(by.node_id, date_of(now_us + by.skew_us).isoformat())
            stage.truth.worked(facts, _FARM_BITS)
            stage.later(node, WorkJudged(now_us, "lprp", person, "lease", "accepted", _FARM_BITS, 90_000))
        self._name(stage, node, "work_farming", "lprp", "peer", person, at_us, max(times, default=at_us), len(times))

    def _spend(self, stage: Stage, node: int, person: bytes, at_us: int, how: Parameters) -> None:
        outcome, times = Outcome.BAD_CAPABILITY, _times(at_us, how)
        for now_us in times:
            attempt = self._rng.randbytes(16)
            stage.later(node, DeliveryFinished(now_us, "bhumi", attempt, person, outcome, None, 0, 1))
            stage.truth.delivered(stage.hour(node, now_us), "bhumi", outcome.value, 1, 0)
        self._name(
            stage, node, "spent_capability", "bhumi", "peer", person, at_us, max(times, default=at_us), len(times)
        )

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


def _times(at_us: int, how: Parameters) -> list[int]:
    """Return when somebody acts who does so many times in each minute, a second apart."""
    minutes = range(at_us, at_us + how["minutes"] * MINUTE_US, MINUTE_US)
    return [minute_us + each * SECOND_US for minute_us in minutes for each in range(how["per_minute"])]


def _begin_us(plan: Plan, name: str) -> int:
    day = min(plan.scenarios.get(name, {}).get("day", 0), plan.days - 1)
    return plan.start_us + day * DAY_US + 9 * HOUR_US
