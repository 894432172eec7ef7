"""What a relay can write without the secrets of a pairing: requests, answers and uses of invites, in every dialect."""

import random

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.messages import Send
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi.dialect import Answer, Dialect, write_answer, write_request

__all__ = ["Forger"]


class Forger:
    """The keys of the relay's owner, and what can be written with them."""

    def __init__(self) -> None:
        """Make them; every forger has the same ones."""
        self.key_pair = KeyPair.from_seed(bytes([0xE5]) * 32)
        self.secrets = SharedSecrets(self.key_pair)
        self.rng = random.Random(5)  # noqa: S311 - a simulation must be repeatable

    def request(
        self,
        dialect: Dialect,
        device: bytes,
        preimage: bytes,
        content: bytes = b"UNLOCK THE SAFE",
        content_type: ContentType = ContentType.TEXT,
    ) -> bytes:
        """Return a request to a device, as well as it can be written without the root of another."""
        message = DeviceMessage(content_type, content)
        return write_request(dialect, self.secrets, device, preimage, message, self.rng, root=bytes(32))

    def handshake(self, dialect: Dialect, device: bytes, preimage: bytes, sender: PublicKey | None = None) -> bytes:
        """Return the use of an invite without its secret, in a legacy form in the name of another."""
        name = sender if sender is not None and dialect.is_legacy else self.key_pair.public
        init = HandshakeInit(name, bytes([0xEE]) * 32)
        return write_request(dialect, self.secrets, device, preimage, init, self.rng, secret=bytes(32))

    def answer(self, dialect: Dialect, sender: bytes, send: Send, content: bytes = b"done") -> bytes:
        """Return an answer in the place of a device."""
        response = MessageResponse(ResponseStatus.OK, bytes([0xEF]) * 32, content)
        return self._answer(dialect, sender, send, response)

    def completion(self, dialect: Dialect, sender: bytes, send: Send) -> bytes:
        """Return the answer to a handshake in the place of an inviter."""
        return self._answer(dialect, sender, send, HandshakeComplete(ResponseStatus.OK, bytes([0xEF]) * 32))

    def _answer(self, dialect: Dialect, sender: bytes, send: Send, answer: Answer) -> bytes:
        return write_answer(
            *(dialect, self.secrets, sender, send.preimage, answer, self.rng), root=bytes(32), request=send.payload
        )
