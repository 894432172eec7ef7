"""The page's QR codes: the encoder against another one, and what a camera reads from the screen."""

import json
import random

import pytest
import segno
from segno import consts

from tests.camera import codes_of
from tests.console.build import DESKTOP, page_of
from tests.console.test_browser_sdk import run

DRAW = """
import { readFileSync } from "node:fs";
import { encodeQr } from "../../../src/waystation/console/web/page/qr.js";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(({ text, level, mask }) => {
  const { rows, version } = encodeQr(text, { level, mask });
  return [version, rows.map((row) => row.map(Number).join(""))];
})));
"""
BITS = {"L": consts.ERROR_LEVEL_L, "M": consts.ERROR_LEVEL_M}


def longest(version, level):
    """Return how many bytes a version holds; then there is no padding, which segno does in its own way."""
    return (consts.SYMBOL_CAPACITY[version][BITS[level]] - 4 - (8 if version < 10 else 16)) // 8


@pytest.mark.parametrize("level", ["L", "M"])
def test_codes_of_every_version_are_those_of_another_encoder(level):
    """The longest text of each of the 40 versions, with each mask in turn, gives module for module what segno draws."""
    rng = random.Random(40)
    asked = [
        {"text": "".join(rng.choices("abcXYZ019/#=&-", k=longest(version, level))), "level": level, "mask": version % 8}
        for version in range(1, 41)
    ]
    finished = run("--input-type=module", "-e", DRAW, given=json.dumps(asked))
    assert finished.returncode == 0, finished.stderr

    drawn = [
        segno.make(one["text"], error=level, mode="byte", boost_error=False, micro=False, mask=one["mask"])
        for one in asked
    ]
    expected = [[code.version, ["".join("01"[bool(dark)] for dark in row) for row in code.matrix]] for code in drawn]
    assert json.loads(finished.stdout) == expected


@pytest.fixture(params=["light", "dark"])
def scheme(request):
    """What the user's system asks pages to look like."""
    return request.param


@pytest.fixture(params=[DESKTOP, {"width": 320, "height": 568}], ids=["desktop", "320px"])
def size(request):
    """A desk's screen, and the smallest phone's."""
    return request.param


@pytest.mark.browser
def test_camera_reads_the_invitation(room, nodes, scheme, size):
    """The code on the first screen and behind "Invite" is the invite link, with the name, wherever it is shown."""
    alice = room.person(nodes[0], color_scheme=scheme, viewport=size)
    alice.call_self("Ada Löwe")
    link = alice.page.locator("#invite-link").text_content()
    alice.page.locator("#invite-qr svg").scroll_into_view_if_needed()
    at_first = codes_of(alice.page.screenshot())
    alice.address(alice.key)
    alice.write("a first conversation takes the place of the first screen")
    if alice.page.locator("#back").is_visible():
        alice.page.click("#back")
    alice.page.click("#invite")
    alice.page.locator("#invite-dialog #invite-qr svg").scroll_into_view_if_needed()

    assert link == f"{page_of(nodes[0])}#to={alice.key}&name=Ada%20L%C3%B6we"
    assert at_first == [link]
    assert codes_of(alice.page.screenshot()) == [link]


@pytest.mark.browser
def test_camera_reads_the_second_devices_link(room, nodes, scheme, size):
    """The code of "Use a second device" is the link that stands below it, sealed keys and all."""
    alice = room.person(nodes[0], color_scheme=scheme, viewport=size)
    alice.settings()
    alice.page.click("#backup-link")
    alice.passphrase("four words of mine")
    alice.page.locator("#backup-qr svg").scroll_into_view_if_needed()
    link = alice.page.locator("#backup-text").text_content()

    assert link.startswith(f"{page_of(nodes[0])}#backup=")
    assert codes_of(alice.page.screenshot()) == [link]
