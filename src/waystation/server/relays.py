"""Which relays a configuration asks for, put together."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waystation.core.errors import ConfigError, RemoteError
from waystation.core.ids import PublicKey
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.engine.node import DatagramRelay, Relay
from waystation.engine.policy import Policy
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bsp.relay import BspRelay
from waystation.protocols.lprp.relay import LprpRelay
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.strata.directory import StaticKey
from waystation.protocols.strata.relay import StrataRelay
from waystation.protocols.strata.settings import read_static_dids
from waystation.server.bsp_checks import names_itself
from waystation.server.config import Config

__all__ = ["build_relays", "read_operator_keys"]


def build_relays(
    config: Config,
    key_pair: KeyPair,
    store: Store,
    rng: random.Random,
    admits: Callable[[PublicKey], bool],
    policy: Policy | None = None,
) -> dict[str, Relay | DatagramRelay]:
    """Return the relays that are switched on, by protocol.

    Args:
        config: Checked configuration.
        key_pair: The node's identity.
        store: What they keep their records in.
        rng: Source of nonces and challenges.
        admits: Asked about every identity that proves itself.
        policy: Asked who has to wait and who has to work more; None for nobody.

    Raises:
        ConfigError: A DID document of the operator is none, or ``[bsp]`` names the node itself as somebody else.
        HostError: What a relay finds in the store is damaged.
    """
    rate_limits = config.limits.enabled
    policy = policy if policy is not None else Policy()
    relays: dict[str, Relay | DatagramRelay] = {}
    if config.bhumi_listen.enabled:
        relays["bhumi"] = BhumiRelay(config.bhumi, rng, rate_limits=rate_limits, admits=admits, key_pair=key_pair)
    if config.bsp_listen.enabled:
        _check_others(config, key_pair.public)
        relays["bsp"] = BspRelay(config.bsp, key_pair, store, rng, rate_limits=rate_limits, admits=admits)
    if config.lprp_listen.enabled:
        relays["lprp"] = LprpRelay(
            config.lprp, key_pair, store, rate_limits=rate_limits, admits=admits, extra_bits=policy.extra_bits
        )
    if config.merk_listen.enabled:
        relays["merk"] = MerkRelay(config.merk, key_pair, store, rng, rate_limits=rate_limits, admits=admits)
    if config.strata_listen.enabled:
        relays["strata"] = _build_strata(config, key_pair, store, rng, admits, policy)
    return relays


def _check_others(config: Config, own_key: PublicKey) -> None:
    """Check that ``[bsp]`` takes nobody for the node itself, whose key a configuration does not know."""
    name = names_itself(config.bsp, own_key)
    if name is not None:
        raise config.origins[f"bsp.{name}"].refuse(f"bsp.{name} has the key of this node; allowed: keys of others")


def _build_strata(
    config: Config,
    key_pair: KeyPair,
    store: Store,
    rng: random.Random,
    admits: Callable[[PublicKey], bool],
    policy: Policy,
) -> StrataRelay:
    pinned, documents = read_operator_keys(config)
    try:
        return StrataRelay(
            config.strata,
            key_pair,
            store,
            rng,
            rate_limits=config.limits.enabled,
            static_dids=pinned,
            documents=documents,
            admits=admits,
            waits=policy.throttle,
        )
    except RemoteError as error:
        raise ConfigError(f"strata.did_documents: {error}", origin=config.strata.did_documents) from error


def read_operator_keys(config: Config) -> tuple[dict[str, tuple[StaticKey, ...]], list[dict[str, Any]]]:
    """Return the keys that the operator vouches for: pinned ones by DID, and DID documents.

    Raises:
        ConfigError: The folder of documents cannot be read.
    """
    folder = config.strata.did_documents
    documents = _read_documents(Path(folder)) if folder else []
    keys = read_static_dids(config.strata.static_dids)
    pinned: dict[str, tuple[StaticKey, ...]] = {did: (StaticKey(key),) for did, key in keys.items()}
    return pinned, documents


def _read_documents(folder: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in a folder, by file name."""
    documents = []
    try:
        for path in sorted(folder.glob("*.json")):
            document = json.loads(path.read_bytes())
            if not isinstance(document, dict):
                raise ConfigError("is not a JSON object", origin=path)
            documents.append(document)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", origin=folder) from error
    if not folder.is_dir():
        raise ConfigError("is not a folder", origin=folder)
    return documents
