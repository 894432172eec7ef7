"""Relays with a mistake in how they forward runs of frames."""

from tests.sim.merk.mutants import in_relay
from waystation.protocols.merk.relay.forwards import Forwards
from waystation.protocols.merk.session import State


@in_relay
class DoublesInBunches(Forwards):
    """Forwards the last frame of a run twice."""

    def send_run(self, node, origin, target, frames, now):
        return super().send_run(node, origin, target, [*frames, frames[-1]], now)


@in_relay
class BundlesForEverybody(Forwards):
    """Forwards runs of frames by one message to nodes that have not said that they know it."""

    def _send(self, node, sending, now):
        if node.state is State.PEER and not node.gathers_notices:
            self._outbox.send_many(node, self._bundle(node, self._new_ids(1), [sending.frame]))
        super()._send(node, sending, now)
