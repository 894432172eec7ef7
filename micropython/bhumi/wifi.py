"""The Wi-Fi of a board, and its watchdog: both begin anew by themselves when nothing works.

    device = Device(State("bhumi.state"), RELAYS, answer, network=Wifi("name", "password"))

A network that does not come is connected to again after waits that grow, then the interface is switched off and on,
then the board is reset. The watchdog is fed while something works, and for ``patience_s`` after that, so that a board
that hangs in any other way begins anew, too.
"""

from .port import ticks_diff, ticks_ms

__all__ = ["Wifi"]

_WAIT_MS = 15_000  # a network in reach takes some seconds
_WAIT_MAX_MS = 60_000
_TRIES_MAX = 4  # connecting again so often; then the interface is switched off and on
_RESETS_MAX = 2  # of the interface; then the board


class Wifi:
    """Keeps the board on one network; ``Device`` calls it."""

    def __init__(
        self,
        name: str,
        password: str,
        *,
        watchdog_ms: int = 30_000,
        patience_s: int = 900,
        on_event: object = print,
    ) -> None:
        """Begin to connect; nothing waits for it.

        Args:
            name: Of the network.
            password: Its password.
            watchdog_ms: After so long without ``feed`` the board begins anew; 0 for no watchdog.
            patience_s: How long the watchdog is fed while no relay has us; 0 for ever.
            on_event: Called with the kind "network" and a text.
        """
        import machine
        import network

        self._reset_board = machine.reset
        self._watchdog = machine.WDT(timeout=watchdog_ms) if watchdog_ms else None
        self._patience_ms = 1000 * patience_s
        self._wlan = network.WLAN(network.STA_IF)
        self._credentials = (name, password)
        self._on_event = on_event
        self._worked_at = ticks_ms()
        self._is_connected = False
        self._restarts_count = 0
        self._wlan.active(True)
        self._begin()

    def ready(self) -> bool:
        """Return whether the board is on the network; do what is due for it, otherwise."""
        if self._wlan.isconnected():
            if not self._is_connected:
                self._is_connected = True
                self._restarts_count = 0
                self._on_event("network", "connected")
            return True
        if self._is_connected:
            self._on_event("network", "lost")
            self._begin()
        elif ticks_diff(ticks_ms(), self._began_at) >= self._wait_ms:
            self._again()
        return False

    def works(self) -> None:
        """Note that a relay has us."""
        self._worked_at = ticks_ms()

    def feed(self) -> None:
        """Feed the watchdog, unless nothing has worked for too long."""
        is_patient = not self._patience_ms or ticks_diff(ticks_ms(), self._worked_at) < self._patience_ms
        if self._watchdog is not None and is_patient:
            self._watchdog.feed()

    def _begin(self) -> None:
        self._is_connected = False
        self._tries_count = 0
        self._wait_ms = _WAIT_MS
        self._connect()

    def _connect(self) -> None:
        self._began_at = ticks_ms()
        try:
            self._wlan.connect(*self._credentials)
        except OSError as error:  # the driver is still at it, or in disorder: the next try comes
            self._on_event("network", "cannot connect: %s" % error)

    def _again(self) -> None:
        """Connect once more; after some times by a stronger means."""
        self._tries_count += 1
        if self._tries_count < _TRIES_MAX:
            self._wait_ms = min(2 * self._wait_ms, _WAIT_MAX_MS)
            self._on_event("network", "does not come; try %d" % (self._tries_count + 1))
            self._leave()
            self._connect()
            return
        self._restarts_count += 1
        if self._restarts_count > _RESETS_MAX:
            self._on_event("network", "does not come; the board begins anew")
            self._reset_board()
        self._on_event("network", "does not come; the interface begins anew")
        self._leave()
        self._wlan.active(False)
        self._wlan.active(True)
        self._begin()

    def _leave(self) -> None:
        try:
            self._wlan.disconnect()
        except OSError:  # it was not connected
            pass
