"""Laws of state: whatever the power does, the device knows what it promised."""

import errno
import hashlib
import os
import struct
import subprocess
from pathlib import Path

import pytest

from tests.micropython.build import INTERPRETERS, words_of
from waystation.cli.mcu.package import copy_package, device_module

KEEPER = """
import sys
sys.path.insert(0, sys.argv[1])
from bhumi import port
from bhumi.state import Peer, State

kept, replaced = port.keep, port.replace
step = 0


def stop(at):
    # The power goes here: the test kills the program while it stands still.
    if sys.argv[3] == at + str(step):
        print("standing", flush=True) if sys.implementation.name == "cpython" else print("standing")
        sys.stdin.readline()


def keep(path, parts):
    global step
    step += 1
    stop("before-write-")
    parts = list(parts)
    kept(path, parts[: len(parts) // 2])
    stop("in-write-")
    kept(path, parts)
    stop("before-rename-")


def replace(source, target):
    replaced(source, target)
    stop("after-rename-")


port.keep, port.replace = keep, replace
state = State(sys.argv[2])
for number in range(3):
    preimage = state.add_invite("number %d" % number)
    print("promised", number)
print("done")
"""
FULL = """
import gc
import sys
sys.path.insert(0, sys.argv[1])
from bhumi import device, frames, keys
from bhumi.state import State

state = State(sys.argv[2])
reader = frames.Reader(2048)


def introduce():
    signature = keys.sign(state.seed, state.identity, state.identity)
    for part in frames.i_am(
        state.identity, signature, state.count_preimages(), state.preimages(), state.responses()
    ):
        pass


for _ in range(3):
    introduce()
    state.save()
    state.reload()
gc.collect()
print(gc.mem_free())
"""
CUTS = [f"{at}-{step}" for step in (1, 2, 3, 4) for at in ("before-write", "in-write", "before-rename", "after-rename")]


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize("cut", CUTS)
def test_power_cut(interpreter, cut, tmp_path):
    """Killed anywhere around any write, it has every promise that it made, the same identity, and goes on."""
    copy_package(tmp_path / "bhumi", sources=interpreter == "cpython")
    script, path = tmp_path / "keeper.py", tmp_path / "bhumi.state"
    script.write_text(KEEPER)
    words = [*words_of(interpreter), str(script), str(tmp_path), str(path), cut]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        promised = 0
        for line in process.stdout:
            if line.startswith("standing"):
                break
            promised += line.startswith("promised")
        else:
            raise AssertionError(f"never came to {cut}")
        process.kill()
    before = _identity_kept(path)

    again = device_module("state").State(str(path))

    assert len(again.invites) in (promised, promised + 1)
    assert [invite[1] for invite in again.invites] == [f"number {number}" for number in range(len(again.invites))]
    assert before is None or again.identity == before
    again.add_invite("next")
    assert device_module("state").State(str(path)).invites == again.invites


def _identity_kept(path):
    """Return the identity in whichever file is whole, or None before the first."""
    sequence_of = device_module("reading").sequence_of
    for each in (path, path.with_name(path.name + ".new")):
        if (sequence_of(str(each)) or 0) > 0:
            return each.read_bytes()[44:76]
    return None


@pytest.fixture
def place(tmp_path):
    """A path for a state."""
    return tmp_path / "bhumi.state"


def opened(place):
    return device_module("state").State(str(place))


def full(place):
    """Return a state with everything in it."""
    state = opened(place)
    state.add_invite("ünïcode")
    peer = device_module("state").Peer(bytes([1]) * 32, bytes([2]) * 32, 2, "bob")
    state.peers.append(peer)
    issued = [bytes([number]) * 32 for number in range(10, 14)]
    state.answered(peer, bytes([9]) * 32, b"answer", issued)
    state.save()
    return state


def test_everything_comes_back(place):
    """What was saved is what is read: identity, invites, peers, preimages in order, and last answers."""
    before = full(place)

    after = opened(place)

    assert (after.seed, after.identity, after.invites) == (before.seed, before.identity, before.invites)
    assert [vars(peer) for peer in after.peers] == [vars(peer) for peer in before.peers]
    assert after.response_to(bytes([9]) * 32) == b"answer"
    assert after.responses() == [(bytes([9]) * 32, b"answer")]
    assert set(after.preimages()) == {before.invites[0][0], *before.peers[0].preimages()}


def test_torn_file_is_never_taken(place):
    """A file cut at any byte, or with a bit changed, is not read; the other file is."""
    full(place)
    good = place.read_bytes()
    torn = place.with_name("bhumi.state.new")
    for end in range(0, len(good), 7):
        torn.write_bytes(good[:end])
        assert opened(place).identity == good[44:76]
    for at in range(0, len(good), 11):
        torn.write_bytes(good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :])
        assert opened(place).identity == good[44:76]


def test_rename_that_removes_first(place):
    """A FAT file system may lose the old file before the new one has its name: the new one is read."""
    full(place)
    identity = opened(place).identity
    place.rename(place.with_name("bhumi.state.new"))

    assert opened(place).identity == identity


@pytest.mark.parametrize("is_old_left", [True, False], ids=["littlefs", "fat"])
def test_cut_twice(place, is_old_left, monkeypatch):
    """The power goes before a rename, and in the next write: what the device has promised in between still stands."""
    state = full(place)
    old = place.read_bytes()
    state.add_invite("promised")
    place.rename(place.with_name("bhumi.state.new"))
    if is_old_left:
        place.write_bytes(old)
    again = opened(place)

    def keep(path, parts):
        Path(path).write_bytes(next(iter(parts)))
        raise OSError(errno.EIO)

    monkeypatch.setattr(device_module("port"), "keep", keep)
    with pytest.raises(OSError, match="5"):
        again.add_invite("later")

    assert opened(place).identity == state.identity
    assert opened(place).invites == state.invites


def test_half_read_state_is_not_written(place, monkeypatch):
    """When the memory ends while the file is read, what was read of it does not replace the file."""
    state = full(place)
    peers = device_module("state").Peer
    monkeypatch.setattr(device_module("reading"), "Peer", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        state.reload()

    with pytest.raises(OSError, match="5"):
        state.save()
    monkeypatch.setattr(device_module("reading"), "Peer", peers)
    state.reload()
    assert (state.whole, len(state.peers)) == (True, 1)


def test_newer_one_wins(place):
    """Of two whole files the later one is read."""
    state = full(place)
    old = place.read_bytes()
    state.add_invite("later")
    place.with_name("bhumi.state.new").write_bytes(place.read_bytes())
    place.write_bytes(old)

    assert [invite[1] for invite in opened(place).invites] == ["ünïcode", "later"]


def test_damaged_state_is_no_new_identity(place):
    """When nothing whole is left, the device says so instead of becoming somebody else."""
    full(place)
    place.write_bytes(place.read_bytes()[:-1])

    with pytest.raises(device_module("state").StateError, match="damaged"):
        opened(place)


def test_unreadable_state_is_no_new_identity(place):
    """A file that the system does not give is an error, too."""
    place.mkdir()

    with pytest.raises(OSError, match="directory"):
        opened(place)


@pytest.mark.micropython
def test_fullest_state_fits_an_esp32(place):
    """Eight peers with all they may have, and answers of the largest size: read, introduced and written in 56wK."""
    state = opened(place)
    for number in range(8):
        peer = device_module("state").Peer(bytes([number]) * 32, bytes(32), 2, "x" * 32)
        peer.issued = os.urandom(32 * 16)
        peer.preimage, peer.response = os.urandom(32), os.urandom(1_200)
        state.peers.append(peer)
        state.add_invite("x" * 32)
    copy_package(place.parent / "bhumi")
    script = place.with_name("full.py")
    script.write_text(FULL)
    words = [*words_of("micropython", "56wK"), str(script), str(place.parent), str(place)]

    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 8 * 1024
    assert opened(place).responses() == state.responses()


def test_bounds(place):
    """A peer holds at most 16 preimages, the oldest go first; the ninth invite and a long alias are refused."""
    state = full(place)
    peer = state.peers[0]
    more = [bytes([number]) * 32 for number in range(20, 36)]
    state.answered(peer, peer.issued[:32], b"next", more)

    assert list(peer.preimages()) == more
    with pytest.raises(ValueError, match="at most 32"):
        state.add_invite("ü" * 17)
    for _ in range(7):
        state.add_invite("")
    with pytest.raises(ValueError, match="8 invites"):
        state.add_invite("")


def test_find_by_hint(place):
    """A relay that leaves the preimage out: it is found by its hint, the last answered one too."""
    state = full(place)
    hint_of = device_module("suites").hint_of

    assert state.find(hint_of(bytes([11]) * 32)) == bytes([11]) * 32
    assert state.find(hint_of(bytes([9]) * 32)) == bytes([9]) * 32
    assert state.find(hint_of(bytes(32))) is None


def test_first_version_is_read(place):
    """A file of the first version keeps its identity, invites and peers; the first peer may manage from then on."""
    first = [bytes([1]) * 32, bytes([2]) * 32, b"\1" + bytes([3]) * 32 + b"\4anna", b"\2"]
    for number in (4, 5):
        first.append(bytes([number]) * 32 + bytes([6]) * 32 + b"\2\3bob" + b"\2" + bytes([7]) * 64)
        first.append(bytes([8]) * 32 + b"\0\6answer")
    body = b"".join(first)
    data = b"BHU1" + struct.pack(">II", 9, len(body)) + body
    place.write_bytes(data + hashlib.sha256(data).digest()[:8])

    state = opened(place)
    state.save()
    again = opened(place)

    assert place.read_bytes()[:4] == b"BHU2"
    for each in (state, again):
        assert (each.seed, each.identity) == (bytes([1]) * 32, bytes([2]) * 32)
        assert each.invites == [(bytes([3]) * 32, "anna", b"", 0)] and each.notices == []
        assert [(peer.manages, peer.suite, peer.alias, peer.rights) for peer in each.peers] == [
            (True, 2, "bob", []), (False, 2, "bob", []),
        ]  # fmt: skip
        assert each.peers[0].issued == bytes([7]) * 64 and each.response_to(bytes([8]) * 32) == b"answer"


def test_notices_are_kept(place):
    """What waits to be sent is there after a restart; what is sealed may have arrived, for all that the file knows."""
    state = full(place)
    peer = state.peers[0]
    waiting, sealed = state.add_notice(peer, 0, b"warm"), state.add_notice(peer, 2, b"sealed")
    sealed.right = bytes(range(48))
    peer.gains(bytes([77]) * 32)
    state.save()

    again = opened(place)

    assert [(each.number, each.kind, each.body, each.right, each.in_doubt) for each in again.notices] == [
        (waiting.number, 0, b"warm", b"", False),
        (sealed.number, 2, b"sealed", bytes(range(48)), True),
    ]
    assert again.peers[0].rights == [bytes([77]) * 32 + bytes(16)]
    assert again.add_notice(peer, 0, b"").number == sealed.number + 1
    state.reload()
    assert state.notices[0] is waiting
