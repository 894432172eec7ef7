"""Opens the answers to a sender's requests; what its peer has not sealed for a request is no answer to it.

Several requests may have left under one preimage: a relay that says status 1 is believed, and the preimage is used for
the next request. If that relay lied, the device has answered the first one, and its answer comes to the second. Suites
3 and 4 bind an answer to its request, so the heads of former requests, which contain their tags, show whose it is.
"""

from dataclasses import dataclass

from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi.dialect import Answer, Dialect, dialect_of, read_answer
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.state import Pending
from waystation.sdk.errors import AnswerError

__all__ = ["AnswerReader", "Opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that the peer has sealed."""

    dialect: Dialect
    answer: Answer
    is_earlier: bool = False
    """Whether it answers a former request under the same preimage: then this one was never handled, nor will it be."""


class AnswerReader:
    """Opens answers for one participant."""

    def __init__(self, outgoing: Outgoing, secrets: SharedSecrets) -> None:
        """Describe who reads; ``outgoing`` has the heads of former requests."""
        self._outgoing = outgoing
        self._secrets = secrets

    def read(self, pending: Pending, data: bytes) -> Opened:
        """Return an answer that came for a request.

        Raises:
            AnswerError: The peer has sealed it for none of the requests under this preimage.
        """
        try:
            return self._read(pending, pending.payload, data)
        except AnswerError:
            for head in self._outgoing.heads(pending.preimage):
                try:
                    earlier = self._read(pending, head, data)
                except AnswerError:
                    continue
                return Opened(earlier.dialect, earlier.answer, is_earlier=True)
            raise

    def _read(self, pending: Pending, request: bytes, data: bytes) -> Opened:
        dialect = dialect_of(pending.preimage, request)
        if dialect is None:
            raise AnswerError("the request was written in a suite that is unknown here")
        answer = read_answer(
            *(dialect, self._secrets, pending.peer, pending.preimage, data), root=pending.root, request=request
        )
        return Opened(dialect, answer)
