"""Packets for tests of stores."""

from typing import Any

from waystation.core.packets import PacketRow


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
