"""The two UDP broadcast datagrams by which relays are discovered on a local network (BHUMI-BROADCAST).

::

    query    "bhumi?" 0x01 ‖ nonce[8] ‖ zeros, 512 bytes in all
    answer   "bhumi!" 0x01 ‖ nonce[8] ‖ RELAY_AD (up to 365 bytes)

A query is longer than any answer, so forged queries cannot amplify traffic. An answer is accepted only if its signed
advert names the address that the datagram came from. A relay can therefore announce only itself.
"""

from typing import Final

from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import RelayAd
from waystation.protocols.bhumi.extension_wire import ADVERT_BYTES_MAX, decode_advert, encode_record
from waystation.protocols.bhumi.refusals import MalformedError
from waystation.protocols.bhumi.signed_records import is_signed, sign_advert, untimely

__all__ = [
    "ANSWER_BYTES_MAX",
    "NONCE_BYTES",
    "PORT",
    "QUERY_BYTES",
    "LanResponder",
    "encode_answer",
    "encode_query",
    "read_answer",
    "read_query",
]

PORT: Final = 4820
"""Where relays wait for queries; as a setting's neighbour of LPRP's 4810."""
NONCE_BYTES: Final = 8
QUERY_BYTES: Final = 512  # longer than every answer, BHUMI-BROADCAST
_QUERY: Final = b"bhumi?\x01"  # spec 5, local network
_ANSWER: Final = b"bhumi!\x01"  # as above
_HEAD_BYTES: Final = len(_QUERY) + NONCE_BYTES
ANSWER_BYTES_MAX: Final = _HEAD_BYTES + ADVERT_BYTES_MAX
_ADVERT_TTL_S: Final = 300  # ours: long enough to connect
_ADVERT_USE_S: Final = 60  # ours: one signature a minute for each of our addresses, however often we are asked


def encode_query(nonce: bytes) -> bytes:
    """Return a query of 512 bytes.

    Args:
        nonce: 8 random bytes, which answers repeat.
    """
    assert len(nonce) == NONCE_BYTES
    return (_QUERY + nonce).ljust(QUERY_BYTES, b"\0")


def read_query(datagram: bytes) -> bytes | None:
    """Return the nonce of a query, None for anything else; a query that is not padded is none."""
    if len(datagram) != QUERY_BYTES or not datagram.startswith(_QUERY) or any(datagram[_HEAD_BYTES:]):
        return None
    return datagram[len(_QUERY) : _HEAD_BYTES]


def encode_answer(nonce: bytes, advert: RelayAd) -> bytes:
    """Return an answer of at most ``ANSWER_BYTES_MAX`` bytes."""
    return _ANSWER + nonce + encode_record(advert)


def read_answer(datagram: bytes, nonce: bytes, host: str, now_s: int) -> RelayAd | None:
    """Return the advert in an answer, None for anything that cannot be believed.

    Args:
        datagram: As it came, of any length.
        nonce: Of our query.
        host: IPv4 address that it came from.
        now_s: Unix seconds.
    """
    if len(datagram) > ANSWER_BYTES_MAX or not datagram.startswith(_ANSWER + nonce):
        return None
    try:
        advert = decode_advert(datagram[_HEAD_BYTES:])
    except MalformedError:
        return None
    _, _, place = advert.address.partition("://")
    if place.rpartition(":")[0] != host or untimely(advert, now_s) is not None or not is_signed(advert):
        return None
    return advert


class LanResponder:
    """A relay's side of both datagrams: it answers queries, and reads the answers to its own."""

    def __init__(self, key_pair: KeyPair, scheme: str, port: int, nonce: bytes) -> None:
        """Describe a relay.

        Args:
            key_pair: Signs what it says.
            scheme: ``tls`` or ``tcp``, of its listener.
            port: Of its listener.
            nonce: 8 random bytes, for its own queries.
        """
        self._key_pair = key_pair
        self._scheme = scheme
        self._port = port
        self._nonce = nonce
        self._adverts: dict[str, RelayAd] = {}

    def query(self) -> bytes:
        """Return what it asks everybody."""
        return encode_query(self._nonce)

    def receive(self, datagram: bytes, host: str, own_host: str, now_s: int) -> bytes | RelayAd | None:
        """Judge a datagram.

        Args:
            datagram: As it came, of any length.
            host: IPv4 address that it came from.
            own_host: Ours in the same network; the caller has few of them.
            now_s: Unix seconds.

        Returns:
            The answer to a query of others, the advert in an answer of another relay, or None.
        """
        nonce = read_query(datagram)
        if nonce is not None:
            return None if nonce == self._nonce else encode_answer(nonce, self._advert(own_host, now_s))
        advert = read_answer(datagram, self._nonce, host, now_s)
        return advert if advert is not None and advert.relay_id != self._key_pair.public else None

    def _advert(self, own_host: str, now_s: int) -> RelayAd:
        known = self._adverts.get(own_host)
        if known is None or not 0 <= now_s - known.issued_at_s < _ADVERT_USE_S:
            known = sign_advert(self._key_pair, f"{self._scheme}://{own_host}:{self._port}", now_s, _ADVERT_TTL_S)
            self._adverts[own_host] = known
        return known
