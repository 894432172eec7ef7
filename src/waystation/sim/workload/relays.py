"""Generates the nodes' observations of Bhumi relays: honest ones, and one relay for each kind of misbehaviour.

The generator plays it. Each relay follows its own timeline. The expected verdicts are derived from that timeline, with
margins, and without the pipeline's score.
"""

import hashlib
from random import Random
from typing import Final

from waystation.journal.events import RelayObserved
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.stage import Stage

__all__ = ["HONEST_RELAYS", "Relays"]

HONEST_RELAYS: Final = 3
_SHARE: Final = 0.06
_SEEN_MAX: Final = 4  # other nodes that a node watches
_BAD_PER_HOUR: Final = 4.0
_RETRY_US: Final = 10 * MINUTE_US  # from one connect to a dead relay to the next
_BLOB_BYTES: Final = 2_097_152


class _Relay:
    """One relay and how it behaves; ``habit`` is ``good`` or the name of a scenario."""

    def __init__(self, relay_id: str, habit: str, rng: Random, from_us: int) -> None:
        self.relay_id, self.habit, self.rng, self.from_us = relay_id, habit, rng, from_us


class Relays:
    """All observations of all nodes."""

    def __init__(self, plan: Plan) -> None:
        self._relays = [
            _good(plan, hashlib.sha256(f"{plan.seed}/relay/{n}".encode()).hexdigest()[:16])
            for n in range(HONEST_RELAYS)
        ]
        honest = [(node, relay) for node in range(len(plan.nodes)) for relay in self._relays]
        for by in plan.nodes:
            relay = _good(plan, by.node_id)
            dropper = "silent_dropper" in plan.scenarios and by.index == len(plan.nodes) - 1
            relay.habit = "silent_dropper" if dropper else "good"
            watchers = [(by.index + step) % len(plan.nodes) for step in range(1, min(len(plan.nodes), 1 + _SEEN_MAX))]
            honest += [(node, relay) for node in watchers]
            self._relays += [relay] if watchers else []
        hours = plan.slot_us / HOUR_US
        self._probes = max(round(plan.slot_events * len(plan.nodes) * _SHARE / len(honest)) - 4, round(hours / 3), 1)
        self._bad_probes = max(self._probes, round(_BAD_PER_HOUR * hours))
        bad = [_bad(plan, name) for name in _HABITS if name in plan.scenarios]
        self._relays += bad
        self._watched = honest + [(node, relay) for node in range(len(plan.nodes)) for relay in bad]
        self.expected = (self._probes + 4) * len(honest) / len(plan.nodes)
        """About how many events a node has of honest relays in a slot."""

    def play(self, stage: Stage) -> None:
        """Let a slot's relays be looked at."""
        for node, relay in self._watched:
            if relay.habit == "dead_relay":
                self._watch_dead(stage, node, relay)
            elif relay.habit == "slow_relay":
                self._watch_slow(stage, node, relay)
            else:
                self._watch_good(stage, node, relay, self._probes)
                if relay.habit == "flapping_relay":
                    self._flap(stage, node, relay)
                elif relay.habit == "tampering_relay" and node == 0:
                    self._tamper(stage, relay)

    def describe(self, plan: Plan) -> dict[str, dict[str, object]]:
        """Return what must become of each relay."""
        return {relay.relay_id: _truth_of(plan, relay) for relay in self._relays}

    def _watch_good(self, stage: Stage, node: int, relay: _Relay, probes: int, until_us: int | None = None) -> None:
        rng = relay.rng
        span_us = (until_us or stage.end_us) - stage.begin_us
        for _ in range(probes):
            at_us = stage.begin_us + int(rng.random() * span_us)
            _see(stage, node, relay, at_us, "rtt", latency_us=rng.randrange(40_000, 120_000))
        at_us = stage.begin_us + int(rng.random() * span_us / 2)
        if rng.random() < 0.02:  # it happens
            _see(stage, node, relay, at_us, "connect", "failed")
        _see(stage, node, relay, at_us + SECOND_US, "connect")
        _see(stage, node, relay, stage.begin_us + span_us - 1, "span", duration_us=span_us)
        duration_us = rng.randrange(300_000, 700_000)
        _see(stage, node, relay, at_us + 9 * SECOND_US, "blob", carried=_BLOB_BYTES, duration_us=duration_us)
        missing = relay.habit == "silent_dropper" and rng.random() * 100 < (
            stage.plan.param("silent_dropper", "percent") or 0
        )
        _see(stage, node, relay, at_us + 20 * SECOND_US, "known_hash", "missing" if missing else "ok")

    def _watch_slow(self, stage: Stage, node: int, relay: _Relay) -> None:
        rng, plan = relay.rng, stage.plan
        latency_us = (plan.param("slow_relay", "latency_ms") or 0) * 1_000
        _see(stage, node, relay, stage.begin_us + SECOND_US, "connect")
        for _ in range(self._bad_probes):
            at_us = stage.begin_us + MINUTE_US + int(rng.random() * (plan.slot_us - 2 * MINUTE_US))
            if rng.random() * 100 < (plan.param("slow_relay", "timeout_percent") or 0):
                _see(stage, node, relay, at_us, "rtt", "failed")
            else:
                _see(stage, node, relay, at_us, "rtt", latency_us=latency_us * rng.randrange(7, 14) // 10)
        _see(stage, node, relay, stage.begin_us + MINUTE_US, "blob", carried=_BLOB_BYTES, duration_us=60 * SECOND_US)
        _see(stage, node, relay, stage.end_us - 1, "span", duration_us=plan.slot_us)

    def _watch_dead(self, stage: Stage, node: int, relay: _Relay) -> None:
        rng = relay.rng
        if stage.end_us <= relay.from_us:
            self._watch_good(stage, node, relay, self._bad_probes)
            return
        if stage.begin_us < relay.from_us:
            self._watch_good(stage, node, relay, self._bad_probes, relay.from_us - MINUTE_US)
        dead_us = max(relay.from_us, stage.begin_us)
        for at_us in range(dead_us, stage.end_us, _RETRY_US):
            _see(stage, node, relay, at_us + rng.randrange(_RETRY_US), "connect", "failed")
        for at_us in range(dead_us, stage.end_us, HOUR_US):
            _see(stage, node, relay, at_us + HOUR_US - 1, "span", "failed", duration_us=HOUR_US)

    def _flap(self, stage: Stage, node: int, relay: _Relay) -> None:
        """Let it fail a few times an hour, at one node after the other, and be there again at once."""
        rng, plan = relay.rng, stage.plan
        for hour_us in range(max(stage.begin_us, relay.from_us), stage.end_us, HOUR_US):
            if (hour_us // HOUR_US) % len(plan.nodes) != node:
                continue
            at_us = hour_us + 2 * MINUTE_US + rng.randrange(50 * MINUTE_US)
            fails = plan.param("flapping_relay", "fails_per_hour") or 0
            for index in range(fails):
                _see(stage, node, relay, at_us + index * SECOND_US, "connect", "failed")
            _see(stage, node, relay, at_us + fails * SECOND_US, "reconnect")
            _see(stage, node, relay, at_us + fails * SECOND_US + 1, "connect")

    def _tamper(self, stage: Stage, relay: _Relay) -> None:
        plan, step_us = stage.plan, (stage.plan.param("tampering_relay", "every_hours") or 24) * HOUR_US
        for attack_us in range(relay.from_us, plan.end_us, step_us):
            if stage.begin_us <= attack_us < stage.end_us:
                for index in range(plan.param("tampering_relay", "violations") or 0):
                    at_us = attack_us + index * 30 * SECOND_US
                    _see(stage, 0, relay, at_us, "validity", "failed", reason="bad_signature")


def _see(
    stage: Stage,
    node: int,
    relay: _Relay,
    at_us: int,
    probe: str,
    outcome: str = "ok",
    *,
    reason: str | None = None,
    latency_us: int | None = None,
    carried: int | None = None,
    duration_us: int | None = None,
) -> None:
    known = (at_us, "strata", relay.relay_id, probe, outcome, reason, latency_us, carried, duration_us, 1)
    # A span's last moment, or what was begun before the end, belongs into the slot that it is about.
    stage.later(node, RelayObserved(*known) if at_us < stage.end_us else RelayObserved(stage.end_us - 1, *known[1:]))


def _good(plan: Plan, relay_id: str) -> _Relay:
    return _Relay(relay_id, "good", plan.stream(f"relay {relay_id}"), plan.start_us)


def _bad(plan: Plan, habit: str) -> _Relay:
    relay_id = hashlib.sha256(f"{plan.seed}/{habit}".encode()).hexdigest()[:16]
    day = min(plan.scenarios[habit].get("from_day", 0), plan.days - 1)
    from_us = plan.start_us + day * DAY_US + (6 * HOUR_US if habit in _LATER else 0)
    return _Relay(relay_id, habit, plan.stream(f"relay {habit}"), from_us)


def _truth_of(plan: Plan, relay: _Relay) -> dict[str, object]:
    word = _WORDS[relay.habit]
    phases = [{"from_us": relay.from_us, "until_us": plan.end_us, "phase": word}]
    if relay.from_us > plan.start_us:
        phases.insert(0, {"from_us": plan.start_us, "until_us": relay.from_us, "phase": "good"})
    tolerance_us = HOUR_US if relay.habit == "tampering_relay" else 0
    if relay.habit == "dead_relay":
        tolerance_us = (plan.param("dead_relay", "tolerance_hours") or 0) * HOUR_US
    banned = relay.habit in _LATER
    return {
        "habit": relay.habit,
        "timeline": phases,
        "blacklisted_by_us": relay.from_us + tolerance_us if banned else None,
        "never_active_after_us": relay.from_us + tolerance_us if banned or relay.habit == "slow_relay" else None,
        "active_at_end": True if relay.habit == "good" else (False if banned or relay.habit == "slow_relay" else None),
        "never_blacklisted": not banned,
        "transitions_max": plan.param("flapping_relay", "transitions_max") if relay.habit == "flapping_relay" else None,
    }


_HABITS: Final = ("slow_relay", "flapping_relay", "tampering_relay", "dead_relay")
_LATER: Final = ("tampering_relay", "dead_relay")
_WORDS: Final = {
    "good": "good",
    "slow_relay": "slow",
    "flapping_relay": "flapping",
    "tampering_relay": "tampering",
    "dead_relay": "dead",
    "silent_dropper": "silent dropper",
}
