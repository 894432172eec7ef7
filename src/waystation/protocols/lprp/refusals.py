"""The reasons for which LPRP refuses a packet, and their commands on the wire.

Most refusals are silent drops, because a host that answers unproven datagrams could be used as a reflector. Where the
protocol has a refusing command, ``Refusal.command`` returns it.

``MalformedError`` is the one exception of this protocol's parsers; host and client turn it into a drop.
"""

from enum import Enum
from typing import Final

from waystation.core.errors import RemoteError
from waystation.protocols.lprp.messages import Command

__all__ = ["MalformedError", "Refusal"]


class Refusal(Enum):
    """Closed set of reasons; the value is what journal, metrics and logs show."""

    __hash__ = object.__hash__  # each of a hundred thousand datagrams a second is counted under one; Enum's is slower

    # Form, before anything else is checked.
    LENGTH = "length"
    UNKNOWN_COMMAND = "unknown_command"
    WRONG_DIRECTION = "wrong_direction"
    COMMAND_LENGTH = "command_length"
    CLOCK = "clock"
    # Sender and recipient.
    WRONG_HOST = "wrong_host"
    SMALL_ORDER_KEY = "small_order_key"
    NOT_A_TENANT = "not_a_tenant"
    IDENTITY_BANNED = "identity_banned"
    # The cost of a signature check.
    VERIFY_FAILURES = "verify_failures"
    VERIFY_RATE = "verify_rate"
    VERIFY_BACKLOG = "verify_backlog"
    BAD_SIGNATURE = "bad_signature"
    # Signed, and still not accepted.
    NOT_NEWER = "not_newer"
    REBIND_CONFLICT = "rebind_conflict"
    UNKNOWN_CHALLENGE = "unknown_challenge"
    UNKNOWN_RELAY = "unknown_relay"
    NO_CREDIT = "no_credit"
    REFUSAL_RATE = "refusal_rate"
    # Answered with 401.
    TOO_FEW_BITS = "too_few_bits"
    CHALLENGE_EXPIRED = "challenge_expired"
    # Answered with 402.
    NO_LEASE = "no_lease"
    QUEUE_FULL = "queue_full"
    STRANGERS_FULL = "strangers_full"
    STORE_FULL = "store_full"
    # Answered with 404.
    TENANTS_FULL = "tenants_full"
    LEASES_CLOSED = "leases_closed"
    LEASE_BANNED = "lease_banned"
    # Answered with 408.
    WHITELIST_HASH = "whitelist_hash"
    WHITELIST_FULL = "whitelist_full"
    ZERO_KEY = "zero_key"
    OVERTAKEN = "overtaken"
    # Drops of a client.
    UNASKED_ANSWER = "unasked_answer"
    NOT_FOR_US = "not_for_us"
    DUPLICATE = "duplicate"

    @property
    def command(self) -> Command | None:
        """Return the command that reports it to the sender, or None where the packet is dropped in silence."""
        return _COMMANDS.get(self)


_COMMANDS: Final = {
    Refusal.TOO_FEW_BITS: Command.WORK_REFUSED,
    Refusal.CHALLENGE_EXPIRED: Command.WORK_REFUSED,
    Refusal.NO_LEASE: Command.RELAY_REFUSED,
    Refusal.QUEUE_FULL: Command.RELAY_REFUSED,
    Refusal.STRANGERS_FULL: Command.RELAY_REFUSED,
    Refusal.STORE_FULL: Command.RELAY_REFUSED,
    Refusal.TENANTS_FULL: Command.LEASE_REFUSED,
    Refusal.LEASES_CLOSED: Command.LEASE_REFUSED,
    Refusal.LEASE_BANNED: Command.LEASE_REFUSED,
    Refusal.WHITELIST_HASH: Command.WHITELIST_DIFFERS,
    Refusal.WHITELIST_FULL: Command.WHITELIST_DIFFERS,
    Refusal.ZERO_KEY: Command.WHITELIST_DIFFERS,
    Refusal.OVERTAKEN: Command.WHITELIST_DIFFERS,
}


class MalformedError(RemoteError):
    """Bytes that break a rule of the wire format.

    Attributes:
        refusal: The rule that they break.
    """

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal.value}: {detail}")
        self.refusal = refusal
