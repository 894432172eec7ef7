import pytest

from tests.camera import codes_of_terminal
from waystation.sdk.qr import draw_qr
from waystation.sdk.strata import parse_relay


def test_qr_code_is_drawn():
    """Something to point a camera at, the same for an object as for its text."""
    relay = parse_relay("https://a.example")

    drawn = draw_qr(relay)

    assert len(drawn.splitlines()) > 10
    assert drawn == draw_qr(str(relay))


@pytest.mark.parametrize("is_dark", [True, False])
@pytest.mark.parametrize("length", [1, 40, 400, 1_200])
def test_camera_reads_it_from_a_terminal(is_dark, length):
    """Light on dark or dark on light, a code says what it was made of."""
    text = ("bhumi:aZ09-_" * 100)[:length]

    assert codes_of_terminal(draw_qr(text), is_dark=is_dark) == [text]
