"""Packets for tests of stores."""

import tarfile
from pathlib import Path
from typing import Any

from waystation.core.packets import PacketRow

KEPT_HOMES = Path(__file__).parents[1] / "cases" / "homes"


def packet_row(seq: int, **fields: Any) -> PacketRow:
    """Return a packet of its own author and second; fields override."""
    row = PacketRow(
        seq=seq,
        order_at=1_000 + seq,
        received_at=1_000 + seq,
        stored_at=1_000 + seq,
        packet_id=packet_id(seq),
        author_id=f"did:strata:author{seq}",
        content_type="POST",
        timestamp=1_000 + seq,
        expires_at=None,
        canonical=b"%d" % seq,
        downgrade=b"",
        source="",
        mark=b"",
        kept=False,
    )
    return row._replace(**fields)


def packet_id(number: int) -> bytes:
    """Return the id that ``packet_row`` gives: 32 bytes, spread like a hash."""
    return (number * 0x9E3779B97F4A7C15_F39CC0605CEDC835 % (1 << 256)).to_bytes(32, "little")


def kept_home(layout: int, folder: Path) -> Path:
    """Unpack the home that a build with this layout of the store left behind, in order; return the home.

    Layout 1 has one ban and keys. Layout 2 has one ban, six packets, keys and one segment of the journal. Layout 3 has
    besides them a KEY_EVENT and a bootstrap snapshot among its six packets.
    """
    home = folder / f"layout-{layout}"
    with tarfile.open(KEPT_HOMES / f"layout-{layout}.tar.xz") as kept:
        kept.extractall(home, filter="data")
    return home
