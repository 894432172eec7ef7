"""Counts the refusals of an LPRP relay; ``take`` returns them as ``Refused`` facts and begins anew.

``LprpRelay`` notes each refusal, and takes them once per iteration of the event loop. Some name a peer: the network
where a limit of signature checks or of answers was met, the owner of a full queue, the signer of a refused lease or
whitelist. The sender of a refused 102 is never named, because the fact beside it names the recipient (NODE-NAMED).
Beyond ``NAMED_MAX`` names, as in a flood of false addresses or fresh keys, refusals are counted without one.
"""

from typing import Final

from waystation.core.effects import Effect
from waystation.core.facts import Refused
from waystation.core.networks import network_of
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["NAMED_MAX", "OF_NETWORKS", "RefusedCounts"]

NAMED_MAX: Final = 32
OF_NETWORKS: Final = frozenset({Refusal.VERIFY_FAILURES, Refusal.VERIFY_RATE, Refusal.VERIFY_BACKLOG})
"""Limits of signature checks; who sent the packet is not known yet."""
_OF_RECIPIENTS: Final = frozenset({Refusal.QUEUE_FULL, Refusal.STRANGERS_FULL})
"""Limits of a queue, met by its owner; whoever filled it is not named."""
_OF_SIGNERS: Final = (Command.LEASE_REFUSED, Command.WHITELIST_DIFFERS)


class RefusedCounts:
    """Refusals since the last ``take``."""

    __slots__ = ("_by_name", "_counts")

    def __init__(self) -> None:
        """Start with none."""
        self._counts: dict[Refusal, int] = {}
        self._by_name: dict[tuple[Refusal, bytes | None, str], int] = {}

    def note(self, refusal: Refusal | None) -> None:
        """Count a refusal of nobody in particular; None is none."""
        if refusal is not None:
            self._counts[refusal] = self._counts.get(refusal, 0) + 1

    def note_datagram(self, refusal: Refusal, prefix: str) -> None:
        """Count a refusal of a datagram whose sender is not known yet; ``prefix`` is its network."""
        if refusal in OF_NETWORKS:
            self._note_named(refusal, None, prefix)
        else:
            self.note(refusal)

    def note_reply(self, refusal: Refusal | None, about: Packet) -> None:
        """Count what a signed packet is refused for: its signer met the limit, or the queue of its recipient did."""
        # NODE-NAMED: a full queue is its owner's; naming the sender would tie the two together.
        if refusal in _OF_RECIPIENTS:
            self._note_named(refusal, about.recipient, "")
        elif refusal is not None and refusal.command in _OF_SIGNERS:
            self._note_named(refusal, about.sender, "")
        else:
            self.note(refusal)

    def note_silence(self, command: Command, prefix: str) -> None:
        """Count a refusing answer that is not sent, since its network had its share."""
        # NODE-NAMED: a refused 102 is about a recipient, so not even the sender's network is named.
        self._note_named(Refusal.REFUSAL_RATE, None, "" if command is Command.RELAY_REFUSED else prefix)

    def take(self) -> list[Effect]:
        """Return and forget what was counted, as facts."""
        if not (self._counts or self._by_name):
            return []
        counts, self._counts = self._counts, {}
        named, self._by_name = self._by_name, {}
        facts: list[Effect] = [Refused("lprp", None, refusal.value, times) for refusal, times in counts.items()]
        for (refusal, key, prefix), times in named.items():
            network = network_of(prefix).encode() if prefix else b""
            facts.append(Refused("lprp", key, refusal.value, times, network or None))
        return facts

    def _note_named(self, refusal: Refusal, key: bytes | None, prefix: str) -> None:
        name = (refusal, key, prefix)
        # Addresses and keys are free to invent; beyond the limit the count alone is kept.
        if name in self._by_name or len(self._by_name) < NAMED_MAX:
            self._by_name[name] = self._by_name.get(name, 0) + 1
        else:
            self.note(refusal)
