"""Loads the keys of authors that a node's operator trusts: pinned keys, and a folder of DID documents (key lists).

``StrataHost`` and ``waystation strata import`` call it with the settings and pass the result to the relay. Such keys
are for authors whose name (DID) does not contain their key.
"""

import json
from pathlib import Path
from typing import Any

from waystation.core.errors import ConfigError
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.settings import StrataSettings, read_static_dids

__all__ = ["read_operator_keys"]


def read_operator_keys(settings: StrataSettings) -> tuple[dict[str, tuple[StaticKey, ...]], list[dict[str, Any]]]:
    """Return the pinned keys by DID, and the DID documents.

    Raises:
        ConfigError: The folder of documents cannot be read.
    """
    documents = _read_documents(Path(settings.did_documents)) if settings.did_documents else []
    keys = read_static_dids(settings.static_dids)
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
