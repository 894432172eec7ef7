"""The Python of ``docs``: taken out of the pages and run as it stands there, but for names of machines and keys."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.build import NodeProcess

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md") if "\nimport waystation\n" in path.read_text())
UNTIL_S = 60
SETTINGS = {
    "bsp__enabled": "false",
    "limits__enabled": "false",
    "lprp__pow_base_bits_lease": "4",
    "lprp__pow_base_bits_relay": "4",
}
SOMEBODY = "8" * 51 + "0"
"""An id52 that nobody here has."""


def snippets_of(page):
    """Return the programs of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with all relays."""
    node = NodeProcess(tmp_path_factory.mktemp("node"), **SETTINGS).start()
    yield node
    assert node.stop() == 0


class Program:
    """One snippet in a process of its own."""

    def __init__(self, folder, node, text, **names):
        """Put addresses of ``node``, and ``names``, for those of the page."""
        key, place = node.ready["node"]["public_key"], node.url("lprp").partition("://")[2]
        found = {
            "tls://localhost:8443": node.url("bhumi"),
            "tls://relay.example:8443": node.url("bhumi_plain"),
            "waystation/tls/ca.pem": str(node.home / "tls/ca.pem"),
            "lprp://KEY@relay.example:4810": f"lprp://{key}@{place}",
            "ws://127.0.0.1:8080/merk": node.url("merk"),
            "wss://relay.example/merk": node.url("merk"),
            "ws://127.0.0.1:8080/strata": node.url("strata"),
            '"0.0.0.0", 7443': '"127.0.0.1", 0',
            "id52 of a friend's key": SOMEBODY,
            **names,
        }
        for before, after in found.items():
            text = text.replace(before, after)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", text],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def line(self):
        """Return the next line that it prints."""
        line = self._process.stdout.readline().strip()
        assert line, self._process.stderr.read()
        return line

    def output(self):
        """Wait for its end and return what it has printed."""
        out, err = self._process.communicate(timeout=UNTIL_S)
        assert self._process.returncode == 0, err
        return out.strip()


def test_every_page_with_python_is_run_here():
    """A page that gets a program of the face gets a test; the boards' programs are run by tests/micropython."""
    assert PAGES == ["bhumi.md", "bsp.md", "lprp.md", "merk.md", "strata.md"]


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_no_page_sends_its_reader_below_the_face(page):
    """What a program needs it imports from ``waystation``."""
    assert not re.findall(r"waystation\.(?:sdk|transport|core)\b", (DOCS / page).read_text())


def test_bhumi(tmp_path, node):
    """The device answers whoever uses its token."""
    (text,) = snippets_of("bhumi.md")
    with Program(tmp_path, node, text) as device:
        token = device.line()
        asks = text.replace("asyncio.run(serve())", f'asyncio.run(ask("{token}"))')
        for _ in range(20):
            with Program(tmp_path, node, asks) as asking:
                out = asking._process.communicate(timeout=UNTIL_S)[0]
            if out:  # before the device is registered the relay knows no such invite
                break

    assert out == "hello bob, you said hi\n"


def test_lprp(tmp_path, node):
    """What the second program leaves the first one prints."""
    listens, sends = snippets_of("lprp.md")
    with Program(tmp_path, node, listens) as listening:
        alice = listening.line().removeprefix("write to ")
        with Program(tmp_path, node, sends, **{"id52 of alice's key": alice}) as sending:
            said = sending.output().splitlines()[-1]
        heard = listening.line()

    assert said.startswith("accepted: the host keeps it")
    assert heard.endswith("True hello")


def test_merk(tmp_path, node):
    """The program thanks for what it is sent."""
    text, _ = snippets_of("merk.md")
    with Program(tmp_path, node, text) as thanking:
        key = thanking.line().removeprefix("I am ")
        command = ["merk", "send", key, "hello", "--relay", node.url("merk"), "--home", "me"]
        sent = subprocess.run(
            [sys.executable, "-m", "waystation", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        heard = thanking.line()

    assert sent.stdout.startswith("accepted")
    assert heard.endswith("encrypted bound hello")


def test_merk_ask(tmp_path, node):
    """The thermometer answers who asks it."""
    _, text = snippets_of("merk.md")
    with Program(tmp_path, node, text) as thermometer:
        key = thermometer.line().removeprefix("ask ")
        asks = text.replace("asyncio.run(thermometer())", f'asyncio.run(ask("{key}"))')
        with Program(tmp_path, node, asks) as asking:
            assert asking.output() == "21 °C"


def test_strata(tmp_path, node):
    """The program reads what it has published."""
    (text,) = snippets_of("strata.md")
    with Program(tmp_path, node, text) as program:
        lines = program.output().splitlines()

    assert lines[-2] == f"stored by a relay ['{node.url('strata')}']"
    assert lines[-1].endswith("{'text': 'hello', 'type': 'POST'}")


def test_bsp_with_carriers(tmp_path, node):
    """A device attaches all three, and has an invite for another one."""
    carriers, _ = snippets_of("bsp.md")
    with Program(tmp_path, node, carriers) as program:
        assert re.fullmatch(r"bhumi:[\w-]+", program.output())


def test_bsp(tmp_path, node):
    """A device listens, keeps what it sends, and shows what comes."""
    _, text = snippets_of("bsp.md")
    with Program(tmp_path, node, text, **{"id52 of bob's key": node.ready["node"]["id52"]}) as program:
        listening, said = program.line(), program.line()

    assert listening.startswith("listening at bsp+tls://")
    assert said == "kept here: each peer that shares the group gets it, once, when it is reached"
