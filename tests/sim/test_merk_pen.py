"""Pens write frames of every mode that their recipients can open."""

import random
from dataclasses import replace

from tests.sim.build_merk import QUIET, Quarter, stranger
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import HEADER_BYTES, MessageType
from waystation.protocols.merk.sealing import Auth, open_frame
from waystation.protocols.merk.wire import decode_frame
from waystation.sim.merk_pen import Pen

ONE = replace(QUIET, nodes=1, text_bytes_max=400)


def written(target, *, agreement_key=None, count=200):
    """Return so many frames for a target whose agreement key is known, or not."""
    commons = Quarter(ONE).commons
    if agreement_key is not None:
        commons.agreement_keys[target] = agreement_key
    pen = Pen(commons, random.Random(1), Keys.generate(random.Random(2)))
    return [pen.write(target) for _ in range(count)]


def test_friends_get_every_mode_and_can_open_it():
    """Each mode occurs, and what is signed is bound to sender and recipient."""
    keys = Keys.generate(random.Random(3))
    opened = [open_frame(frame, keys) for frame in written(keys.signing.public, agreement_key=keys.agreement_public)]

    assert {each.mode.value for each in opened} == {"plain", "signed", "encrypted"}
    assert {each.auth for each in opened} == {Auth.BOUND, Auth.NONE}
    assert all(each.auth is Auth.BOUND for each in opened if each.mode.value != "plain")


def test_strangers_get_data_only():
    """Without an agreement key there is nothing to encrypt with; nobody reads it anyway."""
    assert {decode_frame(frame).kind for frame in written(stranger(), count=20)} == {MessageType.DATA}


def test_no_two_frames_are_alike():
    """Every frame can be told from all others, and none is larger than the plan has it."""
    frames = written(stranger())

    assert len(set(frames)) == len(frames)
    assert max(map(len, frames)) <= HEADER_BYTES + 32 + 8 + 400
