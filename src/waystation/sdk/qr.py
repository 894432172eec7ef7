"""Draws a text, such as an address or an invite, as a QR code for a terminal.

Commands print the result, so that a phone can read it from the screen.
"""

import io

import segno

__all__ = ["draw_qr"]


def draw_qr(shown: object) -> str:
    """Return the text of ``shown`` as a QR code for a terminal."""
    drawn = io.StringIO()
    segno.make(str(shown), error="m").terminal(drawn, compact=True)
    return drawn.getvalue()
