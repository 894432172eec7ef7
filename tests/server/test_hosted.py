"""Laws of server.hosted: which protocols a configuration gives, and what all of them are given."""

import pytest

from tests.server.build_hosts import hosts, relays
from waystation.engine.policy import Policy, Stance
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bsp.relay.machine import BspRelay
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.strata.relay.machine import StrataRelay


def test_every_relay_that_is_on_is_built():
    """All by default, each off by itself."""
    kinds = {"bhumi": BhumiRelay, "bsp": BspRelay, "lprp": LprpRelay, "merk": MerkRelay, "strata": StrataRelay}
    off = {f"{name}__enabled": "false" for name in kinds}

    assert {name: type(relay) for name, relay in relays().items()} == kinds
    for name in kinds:
        assert list(relays(**{f"{name}__enabled": "false"})) == [other for other in kinds if other != name]
    assert relays(**off) == {}


def test_published_rules_are_asked_about():
    """The host of LPRP makes work harder, the relay of Strata lets authors wait, as the policy says."""

    class Slow(Policy):
        """Has everybody wait."""

        def throttle(self, identity, now):
            """Return seven seconds."""
            return 7

    policy = Slow(Stance.ENFORCE)
    found = relays(policy=policy)

    assert found["lprp"]._working._extra_bits == policy.extra_bits
    assert found["strata"]._throttle._waits(b"k" * 32, 0) == 7


@pytest.mark.parametrize("name", ["bhumi", "bsp", "lprp", "merk", "strata"])
def test_protocol_that_listens_nowhere_asks_for_nothing(name):
    """With every address empty it names no port, and adds to the status only what its relay tells."""
    quiet = {"bhumi__tls": "", "bsp__tls": "", "lprp__udp": "", "merk__ws": "", "strata__ws": ""}
    host = hosts(**quiet)[name]

    assert (list(host.pipe_ports()), host.datagram_address(), host.urls(), host.sizes()) == ([], None, {}, {})
    assert set(host.status()) <= {"mesh", "upstreams", "turned_away"}
