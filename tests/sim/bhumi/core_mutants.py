"""Relays with one mistake each in the core protocol, for the tests of the simulator's invariants."""

from waystation.core.effects import Send
from waystation.core.facts import PeerIdentified
from waystation.core.ids import PublicKey
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.relay.cache import ResponseCache
from waystation.protocols.bhumi.relay.deliveries import Deliveries
from waystation.protocols.bhumi.relay.machine import BhumiRelay


def with_deliveries(deliveries: type[Deliveries]) -> type[BhumiRelay]:
    """Return a relay with deliveries of this class."""
    return type(deliveries.__name__, (BhumiRelay,), {"deliveries_class": deliveries})


@with_deliveries
class KeepsCommits(Deliveries):
    """Forgets to consume the commit."""

    def _deliver(self, binding, slot, preimage, commit, payload, now):
        super()._deliver(binding, slot, preimage, commit, payload, now)
        binding.commits.add(commit)


@with_deliveries
class SwapsResults(Deliveries):
    """Sends each result as soon as it is known."""

    def _settle(self, slot, frame, now):
        session = slot.session
        if slot in session.outstanding:
            session.outstanding.remove(slot)
            self._outbox.append(Send(session.peer, frame))


@with_deliveries
class LosesResults(Deliveries):
    """Forgets about every fiftieth result."""

    settled_count = 0

    def _settle(self, slot, frame, now):
        self.settled_count += 1
        if self.settled_count % 50:
            super()._settle(slot, frame, now)


class KeepsBindings(BhumiRelay):
    """Keeps a closed connection bound to its identity."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        connections = self._connections

        def keep(session, reason, now, forget=connections.forget):
            forget(session, reason, now)
            if session.identity is not None:
                connections.bindings.setdefault(session.identity, session)

        connections.forget = keep


@with_deliveries
class TrustsAnybody(Deliveries):
    """Accepts every preimage."""

    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.get(message.recipient)
        if binding is not None:
            binding.commits.add(sha256(message.preimage))
        super().on_send(session, payload, now)


@with_deliveries
class Garbles(Deliveries):
    """Cuts the last byte off what it delivers."""

    def _deliver(self, binding, slot, preimage, commit, payload, now):
        super()._deliver(binding, slot, preimage, commit, payload[:-1], now)


class ForgetsAnswers(BhumiRelay):
    """Keeps no answer."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._deliveries._cache = self._deliveries.cache = _Forgetful(settings.response_ttl_ms, self._limits)


class _Forgetful(ResponseCache):
    def keep_acked(self, recipient, preimage, response, now):
        return False


@with_deliveries
class NamesSenders(Deliveries):
    """Journals who asks."""

    def on_send(self, session, payload, now):
        self._outbox.append(PeerIdentified("bhumi", session.peer, PublicKey(sha256(payload))))
        super().on_send(session, payload, now)


class SetsNoTimers(BhumiRelay):
    """Never looks at a connection that sends nothing."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._connections.arm = lambda _session: None


@with_deliveries
class NeverOk(Deliveries):
    """Answers that the recipient is not connected."""

    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.pop(message.recipient, None)
        super().on_send(session, payload, now)
        if binding is not None:
            self._bindings[message.recipient] = binding


class HoardsAnswers(BhumiRelay):
    """Never sweeps what has expired."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._deliveries.cache.sweep = lambda _now: None
        self._deliveries._plan_sweep = lambda: None
