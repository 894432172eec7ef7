"""The programs of ``examples/``, each as a person starts it, against a node in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.build import NodeProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
UNTIL_S = 60
SETTINGS = {
    "bsp__enabled": "false",
    "limits__enabled": "false",
    "lprp__udp": "127.0.0.1:0",
    "lprp__pow_base_bits_lease": "4",
    "lprp__pow_base_bits_relay": "4",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with all relays."""
    node = NodeProcess(tmp_path_factory.mktemp("node"), **SETTINGS).start()
    yield node
    assert node.stop() == 0


def call(name, *words, folder):
    """Run a program to its end and return what it printed."""
    ended = run(name, *words, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def run(name, *words, folder):
    """Run a program to its end and return how it ended."""
    command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=UNTIL_S, check=False)


class Running:
    """A program that goes on until it is stopped; its first line is there when it can be used."""

    def __init__(self, name, *words, folder):
        self._command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, words)]
        self._folder = folder

    def __enter__(self):
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, cwd=self._folder, stdout=pipe, stderr=pipe, text=True)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def line(self):
        """Return the next line that it prints."""
        return self._process.stdout.readline().strip()

    def complaint(self):
        """Return the next line that it prints on stderr."""
        return self._process.stderr.readline().strip()


def test_thermometer(tmp_path, node):
    """Its friend pairs with the token and is told the temperature."""
    relay = node.url("bhumi_plain")
    with Running("thermometer", "serve", "thermometer", relay, folder=tmp_path) as thermometer:
        token = thermometer.line()
        connected = thermometer.line()
        paired = call("thermometer", "pair", "friend", relay, token, folder=tmp_path)
        told = call("thermometer", "ask", "friend", relay, folder=tmp_path)
        asked = thermometer.line()
    away = call("thermometer", "ask", "friend", relay, folder=tmp_path)

    assert connected == f"connected to {relay}"
    assert paired.startswith("paired with")
    assert told.endswith("°C") or told == "no sensor here"
    assert asked == "friend asks: how warm is it?"
    assert "not connected" in away and away.endswith("; send again when the peer is connected")


def test_voicemail(tmp_path, node):
    """A message waits while nobody listens, and becomes a file, once."""
    place, key = node.url("lprp").partition("://")[2], node.ready["node"]["public_key"]
    host = f"lprp://{key}@{place}"
    with Running("voicemail", "listen", "box", host, folder=tmp_path) as box:
        owner = box.line().removeprefix("write to ")
    said = call("voicemail", "leave", "me", host, owner, "call me back", folder=tmp_path)
    printed = call("voicemail", "listen", "box", host, "--count", "1", folder=tmp_path).splitlines()
    files = list((tmp_path / "inbox").iterdir())

    assert said.startswith("accepted")
    assert printed[0] == f"write to {owner}"
    assert [path.read_text() for path in files] == ["call me back"]
    assert printed[1] == str(files[0].relative_to(tmp_path))


def test_echo(tmp_path, node):
    """The text that is said to the bot's key comes back, and the bot learns that it was accepted."""
    with Running("echo", "serve", "bot", node.url("merk"), folder=tmp_path) as bot:
        answer = call("echo", "say", "me", node.url("merk"), bot.line(), "hello", folder=tmp_path)
        answered = bot.line()

    assert answer == "you said: hello"
    assert ": accepted: " in answered


def test_journal(tmp_path, node):
    """A reader gets each entry once, over several runs."""
    relay = node.url("strata")
    written = call("journal", "write", "me", relay, "a fine day", folder=tmp_path)
    author = written.partition(": ")[0]
    reads = ("journal", "read", "friend", relay, "--author", author)
    first = call(*reads, folder=tmp_path)
    second = call(*reads, folder=tmp_path)
    call("journal", "write", "me", relay, "rain", folder=tmp_path)

    assert written == f"{author}: stored by a relay"
    assert first == f"{author}: a fine day"
    assert second == ""
    assert call(*reads, folder=tmp_path) == f"{author}: rain"


def test_journal_reads_what_others_publish(tmp_path, node):
    """An entry without a text is shown as such and blocks nothing; another author in the same home is read."""
    relay = node.url("strata")
    written = call("journal", "write", "me", relay, "a fine day", folder=tmp_path)
    command = [sys.executable, "-m", "waystation", "strata", "publish", "--content", '{"type": "POST"}']
    subprocess.run(
        [*command, "--relay", relay, "--home", "other"], cwd=tmp_path, check=True, capture_output=True, timeout=UNTIL_S
    )
    reads = ("journal", "read", "friend", relay)
    everything = call(*reads, folder=tmp_path).splitlines()

    assert any(line.endswith(": (no text)") for line in everything)
    assert call(*reads, folder=tmp_path) == ""
    assert call(*reads, "--author", written.partition(": ")[0], folder=tmp_path).endswith(": a fine day")


@pytest.mark.parametrize(
    "words",
    [
        ("bridge", "listen", "home", "ws://127.0.0.1:9/merk", "no-key"),
        ("echo", "say", "home", "ws://127.0.0.1:9/merk", "a" * 64),
        ("journal", "write", "home", "ws://127.0.0.1:9/strata", "rain"),
        ("notes", "import", "home", "no-file"),
        ("thermometer", "ask", "home", "tls://127.0.0.1:9", "--ca", "no-file"),
        ("voicemail", "leave", "home", "lprp://no-key@127.0.0.1:9", "a" * 64, "hello"),
    ],
    ids=lambda words: words[0],
)
def test_an_error_is_a_sentence(tmp_path, words):
    """A program that cannot do what it was asked to says why, without a traceback, and ends with 1."""
    ended = run(*words, folder=tmp_path)

    assert ended.returncode == 1
    assert ended.stderr.strip() and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("bridge", "write", "home", "ws://127.0.0.1:9/merk", "a" * 64, "hello"),
        ("thermometer", "serve", "home", "tls://127.0.0.1:9"),
    ],
    ids=lambda words: words[0],
)
def test_a_dead_relay_is_waited_for_aloud(tmp_path, words):
    """A program that waits for its relay says so."""
    with Running(*words, folder=tmp_path) as program:
        assert program.complaint().startswith("waiting for the relay: ")


def test_notes(tmp_path):
    """A note crosses by a file and stands on both devices."""
    keys = {home: call("notes", "key", home, folder=tmp_path) for home in ("laptop", "phone")}
    call("notes", "pair", "laptop", keys["phone"], folder=tmp_path)
    call("notes", "pair", "phone", keys["laptop"], folder=tmp_path)
    call("notes", "write", "laptop", "buy bread", folder=tmp_path)
    exported = call("notes", "export", "laptop", "notes.bsp", folder=tmp_path)
    imported = call("notes", "import", "phone", "notes.bsp", folder=tmp_path)

    assert exported == f"1 notes for {keys['phone']}"
    assert imported == "1 new notes"
    assert call("notes", "read", "phone", folder=tmp_path) == "buy bread"


def test_bridge(tmp_path, node):
    """A message goes from one device over the relay to the other, which confirms it."""
    keys = {home: call("bridge", "key", home, folder=tmp_path) for home in ("laptop", "phone")}
    with Running("bridge", "listen", "phone", node.url("merk"), keys["laptop"], folder=tmp_path) as phone:
        assert phone.line() == "listening"
        said = call("bridge", "write", "laptop", node.url("merk"), keys["phone"], "hello", folder=tmp_path)
        heard = phone.line()

    assert said == "every peer that shares the group holds it"
    assert heard == "hello"
