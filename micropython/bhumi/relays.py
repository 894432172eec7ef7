"""The relays of ``settings.py``: where they are, and whom their certificates must come from."""

from . import names
from .port import SetupError, make_room, unload
from .tls import Link, UntrustedError

__all__ = ["Relays"]


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
        scheme, host, port = names.split_relay(relay)
        ca = None
        if scheme == "tls":
            known = self._authorities(number)
            ca = known[1] if self._is_second[number] and len(known) > 1 else known[0]
        return Link(relay, host, port, ca, feed, poll)

    def failed(self, number: int, error: Exception) -> bool:
        """Note why there is no connection; return whether the relay's other authority is to be tried at once."""
        if not isinstance(error, UntrustedError) or len(self._authorities(number)) < 2:
            return False
        self._is_second[number] = not self._is_second[number]
        return self._is_second[number]

    def works(self, number: int) -> None:
        """Note that the connection stands: the authority that vouched for it is the one in use."""
        if self._is_second[number]:
            from . import authorities

            authorities.prefer_second(self._files[number])
            unload("authorities")
            self._is_second[number] = False

    def add_authority(self, number: int, ca: bytes) -> bool:
        """Trust one more authority for a relay, see ``authorities.add_authority``; raises SetupError or OSError."""
        if not self.urls[number].startswith("tls:"):
            raise SetupError("%s has no certificate" % self.urls[number])
        from . import authorities

        is_new = authorities.add_authority(self._files[number], ca)
        unload("authorities")
        return is_new

    def authority(self) -> tuple:
        """Return the authority in use of the first relay in DER, or empty, and the addresses that it vouches for."""
        found, relays = b"", []
        for number, relay in enumerate(self.urls):
            ca = self._authorities(number)[0] if relay.startswith("tls:") else b""
            if not relays:
                found = ca
            if ca == found:
                relays.append(relay)
        return found, relays

    def _authorities(self, number: int) -> list:
        from . import authorities  # for a moment

        known = authorities.authorities(self._files[number])
        unload("authorities")
        return known


def whole_relay(relay: str) -> str:
    """Return an address with everything that it may leave out; raises SetupError."""
    try:
        return names.join_relay(*names.split_relay(relay))
    except (ValueError, TypeError, AttributeError):
        raise SetupError(
            "settings.py: %r is no relay's address; expected tls://host:port or tcp://host:port" % (relay,)
        )
