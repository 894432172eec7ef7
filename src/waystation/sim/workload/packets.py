"""Generates Strata packets with real signatures: published at one node, replicated to the others, and archived.

The generator plays it; the archive gets the bytes. Each packet is signed once and shared by all nodes, because signing
dominates the cost. Honest irregularities are included. A packet arrives from two relays, a client publishes again after
a lost answer, or an author posts too fast.
"""

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Final

from waystation.crypto.signing import KeyPair
from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import PacketJudged
from waystation.journal.segment import date_of
from waystation.sim.workload.plan import DAY_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.stage import Stage

if TYPE_CHECKING:
    from waystation.protocols.strata.packet import Packet

__all__ = ["AUTHORS", "Packets", "author_of"]

AUTHORS: Final = 40
_SHARE: Final = 0.10
_MARK: Final = b'"signature":"0x'
_SIGNATURE_CHARS: Final = 128
_TYPES: Final = ("POST", "POST", "POST", "POST", "MESSAGE", "ATTESTATION")
_LIFE_S: Final = 90 * 86_400
_HURRY: Final = 0.01


def author_of(seed: int, number: int) -> KeyPair:
    """Return the key of an author."""
    return KeyPair.from_seed(hashlib.sha256(f"{seed}/author/{number}".encode()).digest())


class Packets:
    """What is published and where it gets to."""

    def __init__(self, plan: Plan) -> None:
        self._rng = plan.stream("packets")
        self._authors = [author_of(plan.seed, number) for number in range(AUTHORS)]
        self._dids = [author.public for author in self._authors]
        a_day = min(plan.signed_per_day, round(plan.events * _SHARE / plan.days / (len(plan.nodes) + 0.5)))
        self._a_slot = a_day * plan.slot_us // DAY_US
        self._seqs = [0] * len(plan.nodes)
        self._drops = plan.stream("silent dropper")
        self._forgeries = plan.param("bad_signatures", "packets") or 0
        self._forge_rng = plan.stream("bad signatures")
        self._forge_slot = plan.slots // 2
        self.expected = self._a_slot * (1.0 + 0.3 * (len(plan.nodes) > 1)) + 1
        """About how many events a node has of these in a slot."""

    def play(self, stage: Stage) -> None:
        """Let a slot's packets be published."""
        for _ in range(self._a_slot):
            self._publish(stage)
        if stage.slot == self._forge_slot:
            for _ in range(self._forgeries):
                self._forge(stage)

    def _publish(self, stage: Stage) -> None:
        rng, plan = self._rng, stage.plan
        at_us = stage.begin_us + int(rng.random() * plan.slot_us)
        origin, number = rng.randrange(len(plan.nodes)), int(rng.random() ** 2 * AUTHORS)
        packet = self._make(
            at_us, number, rng.choice(_TYPES), rng.getrandbits(60), rng.random() < 0.05, rng.randrange(4)
        )
        delays = [rng.randrange(50_000, 20 * MINUTE_US if rng.random() < 0.05 else 5 * SECOND_US) for _ in plan.nodes]
        twice = [rng.random() < 0.3 for _ in plan.nodes]
        hurry, dropped = rng.random() < _HURRY, self._drops.random()
        if plan.is_quiet(at_us):
            return
        self._accept(stage, origin, None, packet, number, at_us)
        if hurry:
            self._turn_down(stage, origin, packet, number, at_us + SECOND_US)
            self._turn_down(stage, origin, packet, number, at_us + SECOND_US, ("rate_limited", "publish"), n=2)
        for node in range(len(plan.nodes)):
            if node == origin:
                continue
            if self._is_dropped(plan, node, number, dropped):
                day = date_of(packet.timestamp * SECOND_US).isoformat()
                drops = stage.truth.dropped.setdefault(plan.nodes[node].node_id, {})
                drops.setdefault(day, []).append(packet.packet_id.hex())
                continue
            self._accept(stage, node, origin, packet, number, at_us + delays[node])
            if twice[node] and len(plan.nodes) > 2:
                self._turn_down(stage, node, packet, number, at_us + delays[node] + 2 * SECOND_US, client=False)

    def _make(self, at_us: int, number: int, content_type: str, chance: int, mortal: bool, behind_s: int) -> "Packet":
        from waystation.protocols.strata.packet import make_packet  # noqa: PLC0415 - a workload without it needs no Strata

        # Never before midnight: a packet belongs to the date on which it was published.
        second = at_us // SECOND_US
        timestamp = max(second - behind_s, second - second % (DAY_US // SECOND_US))
        content = {"type": content_type, "text": f'{chance:015x} "ü" \u2028'}
        expires_at = second + _LIFE_S if mortal else None
        return make_packet(self._authors[number], content, timestamp=timestamp, expires_at=expires_at)

    def _accept(
        self,
        stage: Stage,
        node: int,
        source: int | None,
        packet: "Packet",
        number: int,
        at_us: int,
        *,
        is_reported: bool = True,
    ) -> None:
        plan = stage.plan
        by, week = plan.nodes[node], plan.week_of(at_us)
        mine_us = at_us + by.skew_us
        self._seqs[node] += 1
        relay = None if source is None else by.reference(week, plan.nodes[source].key_pair.public)
        content_type = str(packet.body["content"]["type"])
        origin, size = "client" if source is None else "peer", len(packet.canonical)
        judged = PacketJudged(
            at_us,
            "strata",
            "accepted",
            None,
            by.reference(week, self._dids[number]),
            relay,
            origin,
            size,
            1,
            by.reference_once(week, packet.packet_id),
            content_type,
            packet.timestamp,
            mine_us // SECOND_US,
            packet.expires_at,
            self._seqs[node],
            None,
            None,
            900 + at_us % 5_000,
        )
        stored = ArchivedPacket(
            *(at_us, "strata", packet.packet_id, mine_us // SECOND_US, packet.author_id, content_type),
            *(packet.timestamp, packet.expires_at, self._dids[number], packet.canonical),
        )
        if is_reported:
            hour = stage.hour(node, at_us)
            stage.later(node, judged, partial(stage.truth.judged, hour, "accepted", None, 1, size))
        day = stage.truth.archived[by.node_id].setdefault(date_of(mine_us).isoformat(), [])
        stage.later(node, stored, partial(day.append, packet.packet_id.hex()))

    def _turn_down(
        self,
        stage: Stage,
        node: int,
        packet: "Packet",
        number: int,
        at_us: int,
        verdict: tuple[str, str | None] = ("duplicate", None),
        *,
        n: int = 1,
        client: bool = True,
    ) -> None:
        """Let a node see a packet ``n`` times, from a client or the next node, and not accept it."""
        plan, by = stage.plan, stage.plan.nodes[node]
        week, other = plan.week_of(at_us), (node + 1) % len(plan.nodes)
        relay = None if client else by.reference(week, plan.nodes[other].key_pair.public)
        author, source = by.reference(week, self._dids[number]), "client" if client else "peer"
        size = n * len(packet.canonical)
        event = PacketJudged(at_us, "strata", *verdict, author, relay, source, size, n)
        stage.later(node, event, partial(stage.truth.judged, stage.hour(node, at_us), *verdict, n, size))

    def _forge(self, stage: Stage) -> None:
        """Put a packet with another packet's signature into an archive, as a broken or lying node would."""
        rng = self._forge_rng
        at_us = stage.begin_us + int(rng.random() * stage.plan.slot_us * 0.9)
        number = rng.randrange(AUTHORS)
        good, other = (self._make(at_us, number, "POST", rng.getrandbits(60), False, 0) for _ in range(2))
        head, _, tail = good.canonical.partition(_MARK)
        foreign = other.canonical.partition(_MARK)[2][:_SIGNATURE_CHARS]
        forged = good._replace(canonical=head + _MARK + foreign + tail[_SIGNATURE_CHARS:])
        self._accept(stage, 0, None, forged, number, at_us, is_reported=False)
        stage.truth.bad_signatures.append(good.packet_id.hex())

    def _is_dropped(self, plan: Plan, node: int, number: int, draw: float) -> bool:
        percent = plan.param("silent_dropper", "percent")
        if percent is None or node != len(plan.nodes) - 1:
            return False
        author = plan.param("silent_dropper", "author")
        return number == author if author != -1 else draw * 100 < percent
