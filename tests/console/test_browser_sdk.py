"""The browser SDK under Node.js: its own tests, the same bytes as the Python SDK, and two real nodes."""

import json
import re
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.console.build import linked_nodes, merk_node
from tools.browser import NODE_MISSING, node
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.payload import sealing
from waystation.protocols.merk.payload.contents import Answer, Extended, File, FilePart, Json, Raw, Receipt, Text

WEB = Path(__file__).parent / "web"
TESTS_AT_LEAST = 300
"""So that a file which Node does not find, or which registers nothing, is no success."""

ALICE = Keys.from_seeds(b"\x11" * 32, b"\x91" * 32)
BOB = Keys.from_seeds(b"\x22" * 32, b"\xa2" * 32)
FILE = b"0123456789"
PART = FilePart(b"t" * 16, sha256(FILE).digest(), 1, 3, len(FILE), "büro.bin", FILE[4:8])
RECEIPT = Receipt((b"i" * 16, b"j" * 16))
CONTENTS = [Raw(b"\x00\xff"), Text("héllo there"), Json('{"a":[1,2]}'), File("a.bin", b"\x01\x02"), File("", b"")]
CONTENTS += [Extended(1_700_000_000_123, b"m" * 16, inner) for inner in (*CONTENTS, PART, RECEIPT)]
CONTENTS += [Extended(1, b"m" * 16, Answer(b"q" * 16, inner)) for inner in CONTENTS[:3]]

PRESENCE = wire.make_presence(
    ALICE.signing, messages.PresenceKind.MAILBOX, b"n" * 32, 1_700_000_000_000, 1_700_000_600_000
)

INFOS = [
    messages.RequestServers(),
    messages.Servers((messages.ServerEntry(b"k" * 32, "wss://ü.example/merk"),)),
    messages.AddServer("ws://a"),
    messages.QueryClient(b"k" * 32),
    messages.ClientFound(b"k" * 32, b"s" * 32),
    messages.ClientAbsent(b"k" * 32),
    messages.Hello(0xFFFFFFFF, messages.Role.NODE, b"k" * 32, b"n" * 32, "ws://me"),
    messages.Auth(b"s" * 64),
    messages.Delivery(3, b"t" * 32, b"h" * 16),
    messages.KeyAdvert(b"k" * 32, b"x" * 32, 1_700_000_000_123, b"s" * 64),
    messages.KeyQuery(b"k" * 32),
    messages.KeyUnknown(b"k" * 32),
    messages.Limits(0xFFFFFFFF),
    PRESENCE,
    messages.MailOpen(PRESENCE),
    messages.MailClose(),
    messages.MailState(messages.MailboxState.OPEN, 3, 4_000_000_000, 1_700_000_000_123),
    messages.MailTaken((b"h" * 16, b"i" * 16)),
    messages.MailFetch(),
]


def run(*arguments, given="", seconds=60):
    """Run Node in the tests' folder and return the finished process."""
    program = node()
    assert program, NODE_MISSING
    return subprocess.run(
        [program, *arguments], cwd=WEB, input=given, capture_output=True, text=True, timeout=seconds, check=False
    )


def said(content):
    """Return a content as the JavaScript side writes it, bytes as hex."""
    match content:
        case Raw(data):
            return {"kind": "raw", "data": data.hex()}
        case Text(text):
            return {"kind": "text", "text": text}
        case Json(text):
            return {"kind": "json", "text": text}
        case File(name, data):
            return {"kind": "file", "name": name, "data": data.hex()}
        case Extended(time_ms, message_id, inner):
            return {"kind": "extended", "timeMs": time_ms, "messageId": message_id.hex(), "content": said(inner)}
        case FilePart(transfer_id, digest, index, count, total_bytes, name, data):
            numbers = {"index": index, "count": count, "totalBytes": total_bytes}
            ids = {"transferId": transfer_id.hex(), "digest": digest.hex()}
            return {"kind": "file_part", **ids, **numbers, "name": name, "data": data.hex()}
        case Receipt(ids):
            return {"kind": "receipt", "what": 1, "ids": [each.hex() for each in ids]}
        case Answer(question_id, inner):
            return {"kind": "answer", "to": question_id.hex(), "content": said(inner)}
    raise AssertionError(content)


def three_ways(content):
    """Return a content signed without and with its header, and encrypted, from Alice to Bob."""
    target = BOB.signing.public
    return [
        sealing.signed_frame(ALICE.signing, target, content, header_signature=False),
        sealing.signed_frame(ALICE.signing, target, content),
        sealing.encrypted_frame(
            ALICE.signing, target, BOB.agreement_public, content, ephemeral_secret=b"\x0e" * 32, nonce=b"n" * 12
        ),
    ]


def proved(content):
    """Return mode and auth of ``three_ways``."""
    return [
        ("signed", "legacy"),
        ("signed", "bound"),
        ("encrypted", "bound" if isinstance(content, Extended) else "legacy"),
    ]


@pytest.fixture(scope="module")
def crossed():
    """What JavaScript reads in Python's frames, and the frames that it makes."""
    frames = [frame.hex() for content in CONTENTS for frame in three_ways(content)]
    infos = [wire.encode_info(info).hex() for info in INFOS]
    given = json.dumps({"frames": frames, "infos": infos, "contents": [said(content) for content in CONTENTS]})
    finished = run("cross.mjs", given=given)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_the_sdk_passes_its_own_tests():
    """Every test file runs under Node, nothing is skipped, and nothing fails."""
    files = sorted(path.name for path in WEB.glob("*.test.mjs"))
    finished = run("--test", "--test-reporter=tap", *files, seconds=240)

    counts = {name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", finished.stdout, re.MULTILINE)}
    failures = re.findall(r"^\s*not ok .*$", finished.stdout, re.MULTILINE)
    assert (finished.returncode, failures) == (0, []), finished.stdout[-4_000:]
    assert counts["pass"] == counts["tests"] >= TESTS_AT_LEAST
    assert counts["skipped"] == counts["todo"] == counts["cancelled"] == 0


def test_javascript_opens_what_python_seals(crossed):
    """Every content in every mode is read as it was said, with what is proved about it."""
    expected = [
        {"sender": ALICE.signing.public.hex(), "mode": mode, "auth": auth, "content": said(content)}
        for content in CONTENTS
        for mode, auth in proved(content)
    ]

    assert crossed["opened"] == expected


def test_python_opens_what_javascript_seals(crossed):
    """The other way round the same holds."""
    opened = [sealing.open_frame(bytes.fromhex(frame), BOB) for frame in crossed["made"]]

    assert [each.content for each in opened] == [content for content in CONTENTS for _ in range(3)]
    assert [(each.mode.value, each.auth.value) for each in opened] == [way for each in CONTENTS for way in proved(each)]


def test_signed_frames_are_the_same_bytes_on_both_sides(crossed):
    """Ed25519 is deterministic, so only encrypted frames may differ."""
    ours = [frame.hex() for content in CONTENTS for frame in three_ways(content)[:2]]
    theirs = [frame for index, frame in enumerate(crossed["made"]) if index % 3 < 2]

    assert theirs == ours


def test_node_info_is_the_same_bytes_on_both_sides(crossed):
    """What a client hears or says of NODE_INFO reads back to Python's bytes."""
    assert [each["again"] for each in crossed["infos"]] == [wire.encode_info(info).hex() for info in INFOS]
    assert all(each["info"] is not None for each in crossed["infos"])


def test_python_verifies_an_advert_of_javascript(crossed):
    """The key directory takes what a page advertises."""
    advert = wire.decode_info(bytes.fromhex(crossed["advert"]))

    assert wire.is_advert_valid(advert)
    assert advert == wire.make_advert(KeyPair.from_seed(b"\x11" * 32), ALICE.agreement_public, 1_700_000_000_000)


def test_python_verifies_a_presence_of_javascript(crossed):
    """A node believes where a page says that it is, and which node keeps its mail."""
    presence = wire.decode_info(bytes.fromhex(crossed["presence"]))

    assert wire.is_presence_valid(presence)
    assert presence == PRESENCE


def test_two_clients_of_two_nodes_exchange_everything(tmp_path):
    """Text, JSON, bytes and a file in parts cross two linked nodes, and who sends to nobody is told."""
    with linked_nodes(tmp_path) as (first, second):
        process = run("--experimental-websocket", "live.mjs", first.url("merk"), second.url("merk"))

    assert process.returncode == 0, process.stderr
    finished = json.loads(process.stdout)
    assert finished["outcomes"] == ["accepted"] * 4 + ["unknown_target"]
    assert (finished["reads"], finished["isIdShared"]) == ([True, False, True], True)
    shown = {(each["kind"], each["mode"], each["auth"], each["bytes"]) for each in finished["messages"]}
    assert shown == {
        ("text", "encrypted", "bound", 6),
        ("json", "signed", "bound", 7),
        ("raw", "plain", "bound", 2),
        ("file", "encrypted", "bound", 1_000_000),
    }
    assert all(each["isAlice"] for each in finished["messages"])
    assert (finished["isFileWhole"], finished["isKeyRight"], finished["dropped"]) == (True, True, [])
    assert all(state["authenticated"] for state in finished["states"])
    assert len({state["serverKey"] for state in finished["states"]}) == 2


def test_mail_waits_at_a_real_node(tmp_path):
    """What was sent while its recipient was away is stored, comes until its program takes it, then never again."""
    node = merk_node(tmp_path).start()
    try:
        process = run("--experimental-websocket", "mail.mjs", node.url("merk"))
    finally:
        node.stop()

    assert process.returncode == 0, process.stderr
    finished = json.loads(process.stdout)
    ids = finished["ids"]
    assert (finished["opened"], finished["outcomes"]) == ("open", ["stored", "stored"])
    assert finished["waiting"] > len(ids)
    assert sorted(finished["handed"]) == sorted([way, each] for way in ("refused", "taken") for each in ids)
    assert finished["reads"] == [True, True]
    assert (finished["state"], finished["messages"], finished["closed"]) == ("open", 0, "closed")
