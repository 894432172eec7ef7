"""What the relay of two simulated MERK clients says and does that a relay of ours never would.

``MailOwner`` has one between its writer and its owner. It sees every frame, can put any frame into either connection,
and is given all message ids, also those that stand inside an encryption. The plan draws which of its lies there are.
None of them may make a client report as read what was not read, take what its author has not written, or encrypt for
anybody but the recipient.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.crypto.aead_gcm import GCM_NONCE_BYTES, open_gcm, seal_gcm
from waystation.crypto.agreement import agree, public_of_secret
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import sign
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import (
    HEADER_BYTES,
    KEY_BYTES,
    MESSAGE_ID_BYTES,
    Delivery,
    DeliveryCode,
    KeyAdvert,
    MessageType,
)
from waystation.protocols.merk.payload.contents import Extended, Plain, Receipt, Text, encode_content
from waystation.protocols.merk.payload.sealing import bound_context, encrypted_frame, signed_frame
from waystation.protocols.merk.wire import encode_frame, encode_info_frame, frame_hash, make_advert
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import MerkContext

__all__ = ["LyingRelay"]

_SEALED_AT: Final = KEY_BYTES + GCM_NONCE_BYTES


class LyingRelay:
    """The lies of one relay to one writer and one owner, see ``plan.LIES``."""

    def __init__(self, context: MerkContext, rng: random.Random, writer: Keys, owner: Keys) -> None:
        """Stand between two identities; of their secrets it uses only what an honest holder would sign or encrypt.

        Args:
            context: Knows receipts and ids.
            rng: Draws lies.
            writer: Who waits for receipts.
            owner: Who reads. It has used its keys with a client of the original too, which signs whatever it is given.
        """
        self._context, self._rng = context, rng
        self._writer, self._owner = writer, owner
        self._own = Keys.generate(rng)
        self._sent: list[bytes] = []
        lies: dict[str, Callable[[], bytes]] = {
            "replays": self._overheard,
            "redirected": lambda: self._aimed(self._overheard()),
            "resigned": lambda: self._resigned(self._overheard()),
            "own": lambda: self._sealed(self._own, self._receipt()),
            "forged": lambda: self._forged(self._owner, self._writer, self._receipt()),
            "unbound": lambda: self._signed_by_original(self._receipt()),
            "notices": self._notice,
        }
        self._lies = [lies[kind] for kind in context.plan.lies if kind in lies]
        self._is_forging = "forged" in context.plan.lies
        self._is_advertising = "adverts" in context.plan.lies

    def to_writer(self) -> list[bytes]:
        """Return frames for the writer."""
        return [self._rng.choice(self._lies)()] if self._lies and self._context.receipts and self._sent else []

    def to_owner(self) -> list[bytes]:
        """Return frames for the owner: a message in the name of the writer."""
        letter = Text(f"forged {self._rng.randrange(1_000_000)}")
        return [self._forged(self._writer, self._owner, letter)] if self._is_forging else []

    def answers(self) -> list[bytes]:
        """Return frames that arrive before the true answer to a question for the owner's agreement key."""
        if not self._is_advertising:
            return []
        own = make_advert(self._own.signing, self._own.agreement_public, self._context.wall_ms())
        forged = KeyAdvert(self._owner.signing.public, own.agreement_key, own.time_ms, own.signature)
        return [encode_info_frame(forged, self._own.signing.public)]

    def sees(self, frame: bytes) -> None:
        """Look at an encrypted frame of the writer, and try to open it with the keys that were advertised."""
        self._sent.append(frame_hash(frame))
        package = frame[HEADER_BYTES + KEY_BYTES :]
        key = sha256(agree(self._own.agreement_secret, package[:KEY_BYTES]))
        context = bound_context(self._writer.signing.public, self._owner.signing.public)
        for associated in (context, b""):
            if open_gcm(key, package[KEY_BYTES:_SEALED_AT], package[_SEALED_AT:], associated) is not None:
                self._context.observe(seen.Exposed(frame_hash(frame)))

    def _receipt(self) -> Receipt:
        ids = list(self._context.message_ids)
        return Receipt(tuple(self._rng.choice(ids) for _ in range(self._rng.randint(1, 3))))

    def _extended(self, content: Plain | Receipt) -> Extended:
        return Extended(self._context.wall_ms(), self._rng.randbytes(MESSAGE_ID_BYTES), content)

    def _overheard(self) -> bytes:
        return self._rng.choice(self._context.receipts)

    def _aimed(self, frame: bytes) -> bytes:
        target = self._writer.signing.public
        return frame[:HEADER_BYTES] + target + frame[HEADER_BYTES + KEY_BYTES :]

    def _resigned(self, frame: bytes) -> bytes:
        payload = (self._aimed(frame) if self._rng.random() < 1 / 2 else frame)[HEADER_BYTES:]
        signing = self._own.signing
        signature = sign(signing, payload)
        return encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=signing.public, signature=signature)

    def _sealed(self, sender: Keys, content: Receipt) -> bytes:
        """Return a receipt that is right in all but what it names."""
        return encrypted_frame(
            sender.signing,
            self._writer.signing.public,
            self._writer.agreement_public,
            self._extended(content),
            ephemeral_secret=self._rng.randbytes(KEY_BYTES),
            nonce=self._rng.randbytes(GCM_NONCE_BYTES),
        )

    def _forged(self, author: Keys, target: Keys, content: Plain | Receipt) -> bytes:
        """Return a bound message in the name of ``author`` that only lacks its signature."""
        secret, nonce = self._rng.randbytes(KEY_BYTES), self._rng.randbytes(GCM_NONCE_BYTES)
        key = sha256(agree(secret, target.agreement_public))
        sender, recipient = author.signing.public, target.signing.public
        sealed = seal_gcm(key, nonce, encode_content(self._extended(content)), bound_context(sender, recipient))
        payload = b"".join((recipient, public_of_secret(secret), nonce, sealed))
        signature = sign(self._own.signing, payload)
        return encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=sender, signature=signature)

    def _signed_by_original(self, content: Receipt) -> bytes:
        """Return what a client of the original signs for whoever has it echo these bytes, aimed at the writer."""
        target = self._writer.signing.public
        return signed_frame(self._owner.signing, target, self._extended(content), header_signature=False)

    def _notice(self) -> bytes:
        """Return that a frame was delivered, whatever became of it."""
        notice = Delivery(DeliveryCode.DELIVERED, self._owner.signing.public, self._rng.choice(self._sent))
        return encode_info_frame(notice, self._own.signing.public)
