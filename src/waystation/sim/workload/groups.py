"""Generates message groups of Bramble Sync (BSP): messages with dependencies, which reach each node in its own order.

The generator plays them. A message that arrives before its dependencies waits. References change weekly and cannot be
linked across weeks, so each week describes a group anew. One group continues across the change; its first message then
depends on an unknown one. Invalid messages and their dependants form a separate tree, so the root and distance of each
are known.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from waystation.journal.events import MessageChanged, MessageHeld, MessageStored
from waystation.sim.workload.graphs import depth_of, parts_of
from waystation.sim.workload.plan import DAY_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.stage import Stage

__all__ = ["GROUPS", "Groups"]

GROUPS: Final = 4
_SHARE: Final = 0.10
_MESSAGES_MAX: Final = 100_000
_DELAY_US: Final = 3 * MINUTE_US
_ORPHANS: Final = 0.005
_DELETED: Final = 0.02
_HEADS_MAX: Final = 3


@dataclass(slots=True)
class _View:
    """What one node knows of one group in one week."""

    known: dict[int, tuple[int, ...]] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    missing: int = 0
    order: int = 0
    holders_seen: set[bytes] = field(default_factory=set)
    converge_us: int = 0
    invalid: list[dict[str, Any]] = field(default_factory=list)
    depended_on: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Group:
    """One group as its members made it in one week."""

    number: int
    week: int
    group_id: bytes
    heads: list[int] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    ready_us: dict[tuple[int, int], int] = field(default_factory=dict)
    """Node and message to when it was delivered there, of the last few messages."""
    deleted_messages: set[int] = field(default_factory=set)
    views: list[_View] = field(default_factory=list)


class Groups:
    """All groups at all nodes; a person outside writes and keeps copies too."""

    def __init__(self, plan: Plan) -> None:
        self._rng = plan.stream("groups")
        self._bad_rng = plan.stream("bsp_invalid_root")
        per_message = len(plan.nodes) * (1.2 + len(plan.nodes))
        a_slot = plan.slot_events * len(plan.nodes) * _SHARE / per_message
        self._a_slot = max(1, min(round(a_slot), _MESSAGES_MAX // plan.slots))
        self._person = self._rng.randbytes(32)
        self._ids = [self._rng.randbytes(32) for _ in range(GROUPS)]
        self._groups: dict[tuple[int, int], _Group] = {}
        day = min(plan.param("bsp_invalid_root", "day") or 0, plan.days - 1)
        self._bad_slot = day * DAY_US // plan.slot_us
        self.expected = self._a_slot * (1.2 + len(plan.nodes))
        """About how many events a node has of these in a slot."""

    def play(self, stage: Stage) -> None:
        """Let a slot's messages be written."""
        plan, rng = stage.plan, self._rng
        times = sorted(stage.begin_us + int(rng.random() * plan.slot_us) for _ in range(self._a_slot))
        for at_us in times:
            number, author, orphan = rng.randrange(GROUPS), rng.randrange(len(plan.nodes) + 1), rng.random() < _ORPHANS
            if not plan.is_quiet(at_us):
                self._write(stage, self._group(plan, number, plan.week_of(at_us)), author, at_us, orphan)
        if stage.slot == self._bad_slot and "bsp_invalid_root" in plan.scenarios:
            self._spoil(stage)

    def describe(self, plan: Plan) -> list[dict[str, Any]]:
        """Return what is true of each group at each node, by week."""
        return [
            self._describe_view(plan, group, node)
            for _, group in sorted(self._groups.items())
            for node in range(len(plan.nodes))
            if group.views[node].states
        ]

    def _group(self, plan: Plan, number: int, week: int) -> _Group:
        group = self._groups.get((number, week))
        if group is None:
            views = [_View() for _ in plan.nodes]
            group = self._groups[number, week] = _Group(number, week, self._ids[number], views=views)
        return group

    def _write(self, stage: Stage, group: _Group, author: int, at_us: int, orphan: bool) -> None:
        rng, message = self._rng, len(group.ids)
        group.ids.append(rng.randbytes(32))
        joined = rng.randrange(1, _HEADS_MAX + 1)
        above = tuple(group.heads[-joined:])
        gone = rng.random() < _DELETED
        unseen = rng.randbytes(32)
        if orphan:  # something went missing on its way: this one waits for ever, and nothing builds on it
            self._arrive(stage, group, author, message, at_us, (), missing=unseen, waits=True)
            return
        # A group that goes on over a change of keys depends on what nobody knows by its new name.
        foreign = unseen if message == 0 and group.number == 0 and group.week > 0 else None
        self._arrive(stage, group, author, message, at_us, above, missing=foreign)
        group.heads = [*(head for head in group.heads if head not in above), message]
        if gone and above and above[0] not in group.deleted_messages:
            group.deleted_messages.add(above[0])
            self._delete(stage, group, above[0], at_us + 4 * _DELAY_US)

    def _arrive(
        self,
        stage: Stage,
        group: _Group,
        author: int,
        message: int,
        at_us: int,
        above: tuple[int, ...],
        *,
        missing: bytes | None = None,
        waits: bool = False,
    ) -> None:
        """Let a message come to every node, and let every node learn who else holds it."""
        plan, rng = stage.plan, self._rng
        size, created_ms = rng.randrange(100, 2_000), at_us // 1_000 - rng.randrange(2_000)
        for node in range(len(plan.nodes)):
            stored_us = at_us if node == author else at_us + rng.randrange(SECOND_US, _DELAY_US)
            view, refer = group.views[node], partial(plan.nodes[node].reference_once, group.week)
            ready_us = max((group.ready_us.get((node, each), 0) for each in above), default=0)
            early = ready_us > stored_us
            group.ready_us[node, message] = max(stored_us, ready_us)
            state = "waiting" if waits or early else "delivered"
            view.order += not waits
            refs = b"".join(refer(group.ids[each]) for each in above) + (refer(missing) if missing else b"")
            names = (refer(group.group_id), refer(group.ids[message]))
            order = view.order if state == "delivered" else 0
            source = None if node == author else refer(self._holder(plan, author))
            stored = MessageStored(
                *(stored_us, "bsp", source, state, size, *names, refs, created_ms, order),
            )
            stage.later(node, stored)
            if early and not waits:
                stage.later(node, MessageChanged(ready_us, "bsp", "delivered", None, *names, view.order))
            view.known[message] = above
            view.states[message] = "waiting" if waits else "delivered"
            view.missing += missing is not None
            if not waits:
                view.depended_on.update(above)
            self._hold(stage, group, node, message, stored_us)

    def _holder(self, plan: Plan, author: int) -> bytes:
        return self._person if author == len(plan.nodes) else plan.nodes[author].key_pair.public

    def _hold(self, stage: Stage, group: _Group, node: int, message: int, stored_us: int) -> None:
        plan, rng, view = stage.plan, self._rng, group.views[node]
        refer = partial(plan.nodes[node].reference_once, group.week)
        for other in range(len(plan.nodes) + 1):
            if other == node:
                continue
            peer = refer(self._holder(plan, other))
            held_us = stored_us + rng.randrange(1, _DELAY_US)
            offered = rng.randrange(1, held_us - stored_us + 1)
            names = (peer, refer(group.group_id), refer(group.ids[message]))
            stage.later(node, MessageHeld(held_us, "bsp", *names, rng.randrange(1, 4), offered, None, offered // 2))
            view.holders_seen.add(peer)
            view.converge_us = max(view.converge_us, held_us - stored_us)

    def _delete(self, stage: Stage, group: _Group, message: int, at_us: int) -> None:
        for node, view in enumerate(group.views):
            refer = partial(stage.plan.nodes[node].reference_once, group.week)
            names = (refer(group.group_id), refer(group.ids[message]))
            stage.later(node, MessageChanged(at_us, "bsp", "deleted", None, *names, 0))
            view.states[message] = "deleted"

    def _spoil(self, stage: Stage) -> None:
        """Write messages that are invalid by themselves, and trees of others upon them."""
        plan, rng = stage.plan, self._bad_rng
        at_us = stage.begin_us + 5 * MINUTE_US
        group = self._group(plan, 1 % GROUPS, plan.week_of(at_us))
        for _ in range(plan.param("bsp_invalid_root", "roots") or 0):
            tree: list[tuple[int, int]] = []
            for _ in range(1 + (plan.param("bsp_invalid_root", "descendants") or 0)):
                above, distance = rng.choice(tree) if tree else (-1, -1)
                group.ids.append(rng.randbytes(32))
                tree.append((len(group.ids) - 1, distance + 1))
                self._arrive_invalid(stage, group, tree[0][0], tree[-1], above, at_us)
                at_us += SECOND_US

    def _arrive_invalid(
        self, stage: Stage, group: _Group, root: int, message: tuple[int, int], above: int, at_us: int
    ) -> None:
        number, distance = message
        reason = "invalid_dependency" if distance else "invalid_in_context"
        for node, view in enumerate(group.views):
            refer = partial(stage.plan.nodes[node].reference_once, group.week)
            names = (refer(group.group_id), refer(group.ids[number]))
            refs = refer(group.ids[above]) if distance else b""
            source = refer(self._person)
            stored = (at_us, "bsp", source, "invalid", 300, *names, refs, at_us // 1_000, 0)
            stage.later(node, MessageStored(*stored))
            stage.later(node, MessageChanged(at_us + 1, "bsp", "invalid", reason, *names, 0))
            view.known[number] = (above,) if distance else ()
            view.states[number] = "invalid" if distance else "invalid_root"
            entry = {"message_ref": names[1].hex(), "root_ref": refer(group.ids[root]).hex(), "distance": distance}
            view.invalid.append(entry)

    def _describe_view(self, plan: Plan, group: _Group, node: int) -> dict[str, Any]:
        view, by = group.views[node], plan.nodes[node]
        counts = dict.fromkeys(("delivered", "waiting", "deleted", "invalid_root", "invalid"), 0)
        for state in view.states.values():
            counts[state] += 1
        heads = [
            message
            for message, state in view.states.items()
            if state == "delivered" and message not in view.depended_on
        ]
        return {
            "node_id": by.node_id,
            "group_ref": by.reference_once(group.week, group.group_id).hex(),
            "week": group.week,
            "messages": len(view.states),
            **{name: counts[name] for name in ("delivered", "waiting", "deleted", "invalid_root")},
            "invalid_transitive": counts["invalid"],
            "missing": view.missing,
            "depth": depth_of(dict(sorted(view.known.items()))),
            "components": parts_of(view.known),
            "fork_width": len(heads),
            "peers": len(view.holders_seen),
            "converge_us": view.converge_us or None,
            "invalid": sorted(view.invalid, key=lambda each: str(each["message_ref"])),
        }
