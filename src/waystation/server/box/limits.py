"""Limits of the blind box: the table ``[limits.bsp_box]`` of the node's configuration.

``server.box.store`` and ``server.box.server`` read them at each request, so a reload applies at once.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.server.box.refusals import BoxRefusal

__all__ = ["BOX", "BoxLimits"]

BOX: Final = "bsp_box"
"""Name of the table, and what refusals of the box are counted under."""


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What may be in the box besides ``bsp.box_mib_max``, and what one token and one address may do (BSP-BOX)."""

    files_max: int = limit(100_000, "Files in the box.", at_most=1_600_000, refusal=BoxRefusal.BOX_FULL, use="files")
    folder_bytes_max: int = limit(
        67_108_864,
        "Bytes of the files in one folder.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=BoxRefusal.FOLDER_FULL,
    )
    folder_files_max: int = limit(1_000, "Files in one folder.", at_most=16_000, refusal=BoxRefusal.FOLDER_FULL)
    contacts_max: int = limit(256, "Contacts of one owner.", at_most=4_096, refusal=BoxRefusal.CONTACTS_FULL)
    uploads_max: int = limit(
        4,
        "Uploads at once with one token, each of which may take 1 MiB of memory.",
        at_most=64,
        refusal=BoxRefusal.TOO_MANY_UPLOADS,
    )
    bad_tokens_per_minute: int = limit(
        10, "Wrong tokens of one address.", unit="per min", at_most=10_000, refusal=BoxRefusal.TOO_MANY_BAD_TOKENS
    )
    bad_token_addresses: int = limit(
        4_096,
        "Addresses whose wrong tokens are counted; the one silent longest makes room.",
        at_most=65_536,
    )
