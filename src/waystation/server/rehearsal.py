"""Finds what ``serve`` would refuse before it listens, without writing, listening or dialling.

``waystation doctor`` calls it with a configuration and a home. Every part that reads the configuration or a file is
made as ``serve`` makes it, over an empty store in memory. What the real store holds is not looked at here. So this may
run beside a node that serves from the same home.
"""

from collections.abc import Iterator
from typing import Final

from waystation.core.errors import WaystationError
from waystation.core.ids import node_id_of
from waystation.core.records import Record
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.engine.access import Access
from waystation.engine.bans import BanList
from waystation.server.config.access_checks import access_rules
from waystation.server.config.values import Config
from waystation.server.entropy import SystemEntropy
from waystation.server.home import Home
from waystation.server.hosted import HostContext, ProtocolHost, host_class
from waystation.server.policy_reader import PolicyReader
from waystation.server.proxies.rules import ProxyRules
from waystation.server.registry import PROTOCOLS, protocol_table
from waystation.store.memory import MemoryStore

__all__ = ["rehearse"]

_POLICY: Final = "policy"


async def rehearse(config: Config, home: Home) -> dict[str, str]:
    """Return what ``serve`` would say, by the part that says it: "policy" or a protocol; nothing when it would start.

    Args:
        config: Checked.
        home: Of the node; may be missing.

    Raises:
        HostError: The node's key cannot be read.
        LocalError: An entry of ``[access]`` is none.
    """
    pair = home.key_pair() if home.key_path.exists() else KeyPair.from_seed(bytes(SEED_BYTES))
    store = MemoryStore()
    found: dict[str, str] = {}
    try:
        policy = PolicyReader(config.policy, home, node_id_of(pair.public), store, _forget)
    except WaystationError as error:
        return {_POLICY: str(error)}
    await policy.look()
    if policy.status()["trouble"]:
        found[_POLICY] = policy.status()["trouble"]
    access = Access(BanList(store), access_rules(config.access))
    rng = SystemEntropy()
    context = HostContext(
        config, home, pair, store, rng, lambda _identity: True, access, policy.policy, ProxyRules(config.node)
    )
    return found | dict(_refusals(context))


def _refusals(context: HostContext) -> Iterator[tuple[str, str]]:
    """Yield each enabled protocol that cannot be made, with the reason."""
    for name in PROTOCOLS:
        if not context.config.of(protocol_table(name).listen).enabled:
            continue
        try:
            host: ProtocolHost = host_class(name)(context)
            host.outlet()
        except WaystationError as error:
            yield name, str(error)


def _forget(_record: Record) -> None:
    """Take the place of a store that keeps how far a policy was read."""
