"""The results of publishing a packet: receipts of the relays that stored it, and the failure of each other relay.

``ManyRelays.send`` returns a ``Sent``. The same packet may be published again in every case, since its id is the hash
of its content and relays know duplicates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from waystation.protocols.strata.packet import Packet
from waystation.rules.relay_choice import Notice
from waystation.sdk import outcome
from waystation.sdk.errors import OutcomeUnknownError, RelayUnreachableError, WaystationError
from waystation.sdk.strata.relay import Receipt

__all__ = ["Outcome", "Sent", "sent_of"]


class Outcome(outcome.Outcome):
    """How publishing ended; the value is its name in JSON. The same packet may always be sent again."""

    STORED = "stored", True, True, "stored by a relay"
    """At least one relay has it on its disk."""
    REFUSED = (
        *("refused", False, True, "not stored: no relay took the packet"),
        "see why in `failures`; a packet that is correct can be sent again, or to other relays",
    )
    UNKNOWN = (
        *("unknown", False, True, "no relay said whether it has stored the packet"),
        "send `packet` of this result again: a relay that has it keeps it once",
    )


@dataclass(frozen=True, slots=True)
class Sent(outcome.Sent[Outcome]):
    """The end of one ``send``."""

    packet: Packet
    """What was signed; to send it again, give it to ``send``."""
    receipts: tuple[Receipt, ...]
    failures: Mapping[str, WaystationError]
    """Address -> why not."""
    notices: tuple[Notice, ...]
    """What the user has to know."""


def sent_of(
    packet: Packet, receipts: tuple[Receipt, ...], failures: Mapping[str, WaystationError], notices: tuple[Notice, ...]
) -> Sent:
    """Return the end of a packet.

    Raises:
        RelayUnreachableError: No relay could be reached, so that the packet has left for none.
    """
    if receipts:
        return Sent(Outcome.STORED, packet, receipts, failures, notices)
    first = next(iter(failures.values()))
    if all(isinstance(each, RelayUnreachableError) for each in failures.values()):
        raise first
    in_doubt = any(isinstance(each, OutcomeUnknownError) for each in failures.values())
    return Sent(Outcome.UNKNOWN if in_doubt else Outcome.REFUSED, packet, receipts, failures, notices, failure=first)
