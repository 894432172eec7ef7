"""What can go wrong for a program that uses LPRP, besides an ``Outcome``.

::

    RemoteError
    ├── LeaseRefusedError     the host gives us no lease; nothing can be left there for us
    └── WhitelistFailedError  the host does not have the whitelist that we want
    HostError
    └── RelayUnreachableError (sdk.errors)  nobody answered at the host's address
"""

from waystation.core.errors import RemoteError
from waystation.protocols.lprp.client_events import RequestOutcome

__all__ = ["LeaseRefusedError", "WhitelistFailedError"]

_LEASE_REASONS = {
    RequestOutcome.REFUSED: "it is full, closed to newcomers, or has banned this key",
    RequestOutcome.WORK_FAILED: "it wants more work than was done",
}


class LeaseRefusedError(RemoteError):
    """The host gives no lease.

    Attributes:
        outcome: How the request ended.
    """

    def __init__(self, host: str, outcome: RequestOutcome) -> None:
        reason = _LEASE_REASONS.get(outcome, "the request got no answer")
        super().__init__(f"{host} gives this key no lease: {reason}")
        self.outcome = outcome


class WhitelistFailedError(RemoteError):
    """The host was asked for a whitelist and does not have it; it is asked again at the next start.

    Attributes:
        outcome: How the request ended.
    """

    def __init__(self, host: str, outcome: RequestOutcome) -> None:
        super().__init__(
            f"{host} has not taken the whitelist ({outcome.value}); it is kept here and tried again at the next start"
        )
        self.outcome = outcome
