"""The page's QR encoder against another one."""

import json
import random

import pytest
import segno
from segno import consts

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
