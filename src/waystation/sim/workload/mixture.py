"""Generates journal lines of older, newer or broken node versions, with canary words that must not pass the pipeline.

The writer mixes them into segments. A canary is a unique word in a place where a payload, a sender or a secret might
leak. The places are unknown fields, unknown attributes, free text, and lines that are not valid JSON. A canary in the
pipeline's output is a leak.
"""

from collections import Counter
from typing import Any, Final, NamedTuple

import msgspec

from waystation.sim.workload.plan import Plan

__all__ = ["Mixture"]

_PLACES: Final = (
    *("unknown field", "unknown attribute", "reason", "attribute", "unknown kind", "no JSON", "time", "reference"),
    "no kind",
)


class Mixture(NamedTuple):
    """What is put into every segment that is mixed."""

    canaries: tuple[str, ...]
    """One for each place, in the order of ``_PLACES``."""

    @classmethod
    def of(cls, plan: Plan) -> "Mixture":
        """Return the mixture of a workload; its canaries depend on the seed alone."""
        rng = plan.stream("canaries")
        return cls(tuple(f"CANARY{rng.randbytes(8).hex()}" for _ in _PLACES))

    def described(self) -> list[dict[str, str]]:
        """Return each canary and where it stands."""
        pairs = zip(self.canaries, _PLACES, strict=True)
        return [{"canary": canary, "where": place} for canary, place in pairs]

    def good(self, ts_us: int, first_seq: int) -> list[bytes]:
        """Return lines that are taken, numbered from ``first_seq``; what is foreign to the contract must fall away."""
        field, attribute, reason, value = self.canaries[:4]
        refused = {"protocol": "bhumi", "kind": "refused", "reason": "truncated"}
        link = {"dialled": "1", "duration_us": "60000000", "frames_out": "1", "frames_in": "1"}
        rows: list[dict[str, Any]] = [
            # As version 0.5 wrote them.
            {"protocol": "merk", "kind": "mesh_link_ended", "peer_ref": "ab" * 16, "attrs": link},
            {**refused, "attrs": {"n": "1"}},
            # As some later version may.
            {**refused, "attrs": {"n": "1"}, "payload_text": f"hello {field}", "trace": {"sender": field}},
            {**refused, "attrs": {"n": "1", "sender_id": attribute}},
            # As none should: text where a word belongs, and where a reference belongs.
            {**refused, "reason": f"said {reason} in words", "attrs": {"n": "1"}},
            {
                **refused,
                "protocol": "node",
                "reason": "address_full",
                "attrs": {"n": "1", "source_ref": f"from {value}"},
            },
        ]
        return [_line(row, ts_us, seq) for seq, row in enumerate(rows, first_seq)]

    def bad(self, ts_us: int, first_seq: int) -> list[bytes]:
        """Return lines that are not taken."""
        kind, nonsense, time, reference, kindless = self.canaries[4:]
        tail: dict[str, Any] = {"protocol": "bhumi", "attrs": {"n": "1"}}
        seqs = iter(range(first_seq, first_seq + 4))
        return [
            _line({**tail, "kind": "tea_served", "reason": kind}, ts_us, next(seqs)),
            f"this is no JSON, says {nonsense}\n".encode(),
            _line({**tail, "kind": "refused", "reason": "truncated", "ts": time}, ts_us, next(seqs)),
            _line({**tail, "kind": "refused", "reason": "truncated", "peer_ref": reference}, ts_us, next(seqs)),
            _line({**tail, "reason": kindless}, ts_us, next(seqs)),
        ]


GOOD_KINDS: Final = Counter({"mesh_link_ended": 1, "refused": 5})
"""Kinds of the lines that are taken, of one mixture."""

REJECTIONS: Final = Counter({"unknown_kind": 1, "unparsable": 2, "bad_reference": 1, "missing_kind": 1})
"""Why the others are not."""

SMUGGLED: Final = Counter({"reason": 1, "attribute": 1})
"""Texts where words belong, in lines that are taken."""


def _line(row: dict[str, Any], ts_us: int, seq: int) -> bytes:
    return _ENCODER.encode({"ts": ts_us, "seq": seq, **row}) + b"\n"


_ENCODER: Final = msgspec.json.Encoder()
