from waystation.sdk.qr import draw_qr
from waystation.sdk.strata import parse_relay


def test_qr_code_is_drawn():
    """Something to point a camera at, the same for an object as for its text."""
    relay = parse_relay("https://a.example")

    drawn = draw_qr(relay)

    assert len(drawn.splitlines()) > 10
    assert drawn == draw_qr(str(relay))
