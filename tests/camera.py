"""A camera: reads QR codes from pictures and terminals with ZXing, which shares no code with what draws ours."""

import io

import zxingcpp
from PIL import Image

MODULE_PIXELS = 4
HALVES = {" ": (0, 0), "▀": (1, 0), "▄": (0, 1), "█": (1, 1)}
"""By sign of a terminal: whether its upper and its lower half have the colour of the text."""


def codes_of(picture):
    """Return the texts of the codes on a picture, which is an ``Image`` or the bytes of a file."""
    image = picture if isinstance(picture, Image.Image) else Image.open(io.BytesIO(picture))
    return [code.text for code in zxingcpp.read_barcodes(image, formats=zxingcpp.BarcodeFormat.QRCode)]


def codes_of_terminal(text, *, is_dark):
    """Return the texts of the codes in what was printed, on a terminal of light text on dark ground or the reverse."""
    lines = [line for line in text.splitlines() if line and set(line) <= set(HALVES)]
    rows = [[HALVES[sign][half] == is_dark for sign in line] for line in lines for half in (0, 1)]
    image = Image.new("L", (max(map(len, rows), default=0) + 8, len(rows) + 8), 0 if is_dark else 255)
    for y, row in enumerate(rows):
        for x, is_light in enumerate(row):
            image.putpixel((x + 4, y + 4), 255 * is_light)
    return codes_of(image.resize((image.width * MODULE_PIXELS, image.height * MODULE_PIXELS), Image.Resampling.NEAREST))
