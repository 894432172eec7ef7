"""Bridges that carry BSP bundles (sealed records) over MERK, Bhumi or LPRP; only this package may import two protocols.

::

    async with waystation.bsp.open("me") as client:
        keys = waystation.bridges.merk_keys_of(client.home.key_pair)
        await client.attach(waystation.bridges.BspOverMerk("wss://relay.example/merk", keys=keys))
"""

from waystation.sdk.bridges.bhumi import BspOverBhumi
from waystation.sdk.bridges.lprp import BspOverLprp
from waystation.sdk.bridges.merk import BspOverMerk, merk_keys_of
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.identity import put_key

__all__ = [
    "BspOverBhumi",
    "BspOverLprp",
    "BspOverMerk",
    "Identities",
    "merk_keys_of",
    "put_key",
]
