"""What can go wrong for a program that uses a Strata relay.

::

    RemoteError
    ├── RequestRefusedError   the relay said no; carries its code
    ├── OutcomeUnknownError   no answer came: the packet may be stored; publishing the same packet again is safe
    └── RelayLiedError        what the relay handed out is not what its author signed
    HostError
    └── RelayUnreachableError (sdk.errors)  the relay could not be reached
"""

from waystation.core.errors import RemoteError

__all__ = ["OutcomeUnknownError", "RelayLiedError", "RequestRefusedError"]


class RequestRefusedError(RemoteError):
    """A relay refused a request.

    Attributes:
        code: The wire code, maybe one that is not known here.
        detail: Which rule, may be empty.
        retry_after_s: When it makes sense to ask again, if the relay said so.
    """

    def __init__(self, relay: str, code: str, detail: str, retry_after_s: int | None = None, reason: str = "") -> None:
        which = f"{code} ({detail})" if detail else code
        shown = "".join(each for each in reason if each.isprintable())
        later = f"; ask again in {retry_after_s} s" if retry_after_s else ""
        super().__init__(f"{relay} refused: {which}{f': {shown}' if shown else ''}{later}")
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s


class OutcomeUnknownError(RemoteError):
    """A request got no answer; it may have been carried out."""


class RelayLiedError(RemoteError):
    """A relay handed out a packet that fails its own id or signature, or another one than was asked for."""
