"""Protocols as a node hosts them, without a node."""

import random
from pathlib import Path

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair
from waystation.engine.access import Access
from waystation.engine.bans import BanList
from waystation.engine.policy import Policy
from waystation.server.config.access_checks import access_rules
from waystation.server.config.load import load_config
from waystation.server.home import Home
from waystation.server.hosted import HostContext, build_hosts
from waystation.server.proxies.rules import ProxyRules
from waystation.store.memory import MemoryStore

OWN = KeyPair.from_seed(b"o" * 32)


def context_of(config, home=Path("unused"), key_pair=OWN, admits=lambda _identity: True, policy=None):
    """Return what a node with this configuration gives to its protocols."""
    store, rng, proxies = MemoryStore(), random.Random(1), ProxyRules(config.node)
    access = Access(BanList(store), access_rules(config.access))
    return HostContext(config, Home(home), key_pair, store, rng, admits, access, policy or Policy(), proxies)


def hosts(path=None, admits=lambda _identity: True, policy=None, **flags):
    """Return the protocols that a file and flags enable, ``strata__x="y"`` being strata.x = y."""
    config = load_config(path, {}, {name.replace("__", "."): value for name, value in flags.items()})
    return build_hosts(context_of(config, admits=admits, policy=policy))


def relays(path=None, admits=lambda _identity: True, policy=None, **flags):
    """Return the relays of ``hosts``."""
    return {name: host.relay for name, host in hosts(path, admits, policy, **flags).items()}


def at(relay, wall_s):
    """Return the relay with its clock set."""
    relay.set_wall(Instant(0), wall_s * MICROSECONDS_PER_SECOND)
    return relay
