"""The relays of ``settings.py``: where they are, and whom their certificates must come from."""

from .port import SetupError, make_room, seldom, unload
from .tls import Link, UntrustedError, context_of, error_of

__all__ = ["Relays", "whole_relay"]


class Relays:
    """The relays of a device, in their order; each is called by its number."""

    def __init__(self, relays: list) -> None:
        """Take pairs of an address and the file of its authority; raises SetupError when they cannot be used."""
        try:
            pairs = [(relay, ca) for relay, ca in relays]
        except (ValueError, TypeError):
            raise SetupError('settings.py: RELAYS is a list of pairs, as ("tls://host:port", "relay-1.der")')
        if not pairs:
            raise SetupError("settings.py names no relay")
        self.urls = []
        self._files = []
        self._is_second = []
        self._context = None
        self._context_for = None
        for relay, ca in pairs:
            whole = whole_relay(relay)
            if whole.startswith("tls:"):
                from . import authorities

                for certificate in authorities.authorities(ca):
                    if not authorities.is_authority(certificate):
                        raise SetupError("%s is no certificate in DER" % ca)
            self.urls.append(whole)
            self._files.append(ca)
            self._is_second.append(False)
        unload("authorities")
        make_room()

    def connect(self, number: int, feed: object, poll: object) -> Link:
        """Begin to connect to a relay; raises UnreachableError, SetupError, OSError or MemoryError."""
        relay = self.urls[number]
        scheme, host, port = seldom("names", "split_relay", relay)
        return Link(relay, host, port, self._trust(number) if scheme == "tls" else None, feed, poll)

    def _trust(self, number: int) -> object:
        """Return what trusts the authority of a relay that is in turn.

        The last one stays: it is large and in one piece, for which a heap that has been in use for long has no room.
        Two connections to one relay share it.
        """
        wanted = (number, self._is_second[number])
        if self._context_for != wanted:
            self._context = self._context_for = None
            known = self.authorities(number)
            ca = known[1] if wanted[1] and len(known) > 1 else known[0]
            try:
                self._context = context_of(ca)
            except (OSError, ValueError) as error:
                raise error_of(self.urls[number], error)
            self._context_for = wanted
        return self._context

    def failed(self, number: int, error: Exception) -> bool:
        """Note why there is no connection; return whether the relay's other authority is to be tried at once."""
        if not isinstance(error, UntrustedError) or len(self.authorities(number)) < 2:
            return False
        self._is_second[number] = not self._is_second[number]
        return self._is_second[number]

    def works(self, number: int) -> None:
        """Note that the connection stands: the authority that vouched for it is the one in use."""
        if self._is_second[number]:
            seldom("authorities", "prefer_second", self._files[number])
            self._context_for = None
            self._is_second[number] = False

    def add_authority(self, number: int, ca: bytes) -> bool:
        """Trust one more authority for a relay, see ``authorities.add_authority``; raises SetupError or OSError."""
        if not self.urls[number].startswith("tls:"):
            raise SetupError("%s has no certificate" % self.urls[number])
        is_new = seldom("authorities", "add_authority", self._files[number], ca)
        if is_new and self._is_second[number]:  # the second one is another one now
            self._context_for = None
        return is_new

    def authorities(self, number: int) -> list:
        """Return the one or two certificates in DER of a relay, the one in use first; raises SetupError."""
        return seldom("authorities", "authorities", self._files[number])


def whole_relay(relay: str) -> str:
    """Return an address with everything that it may leave out; raises SetupError."""
    try:
        return seldom("names", "join_relay", *seldom("names", "split_relay", relay))
    except (ValueError, TypeError, AttributeError):
        raise SetupError(
            "settings.py: %r is no relay's address; expected tls://host:port or tcp://host:port" % (relay,)
        )
