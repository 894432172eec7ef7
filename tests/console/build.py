"""Nodes that are linked, a real browser, and a person in front of it."""

import base64
import contextlib
import http.client
import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.server.build import NodeProcess, until
from tools.browser import CHROMIUM_MISSING, chromium

PATIENCE_MS = 15_000
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
USUAL = {
    "viewport": DESKTOP,
    "reduced_motion": "reduce",
    "permissions": ["clipboard-read", "clipboard-write"],
}

# The sandbox needs a user who is not root; the others keep the browser from asking anybody but our nodes.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--metrics-recording-only",
    "--host-resolver-rules=MAP relay.test 127.0.0.1",
)

TELL_VIOLATIONS = """addEventListener("securitypolicyviolation",
  ({ violatedDirective, blockedURI }) => console.error("policy", violatedDirective, blockedURI))"""

START_OVER = """() => {
  document.querySelectorAll("dialog[open]").forEach((one) => one.close());
  document.querySelector("#settings-back").click();
  document.querySelector("#to").value = "";
  document.querySelectorAll("#settings details").forEach((one) => { one.open = false; });
  document.activeElement.blur();
}"""

NOBODY = "ab" * 32
"""A key that is connected nowhere."""

ARRIVED = ("accepted", "stored", "read")
"""States of a message that its recipient's relay has taken."""

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one point, PNG."""

EXPECTED_WHILE_DOWN = re.compile(
    r"ERR_CONNECTION_(REFUSED|RESET|CLOSED)|ERR_EMPTY_RESPONSE|WebSocket connection to .* failed"
)
"""What the browser itself writes to the console when a node does not answer."""


THROTTLING_IS_OFF = (
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
)
"""What Playwright asks for, and what would spare hidden pages all that people's browsers do to them."""


def launch(playwright):
    """Start the system's Chromium."""
    path = chromium()
    assert path, CHROMIUM_MISSING
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS, ignore_default_args=THROTTLING_IS_OFF)


@contextlib.contextmanager
def linked_nodes(folder):
    """Run two nodes on free ports, the second linked with the first."""
    with contextlib.ExitStack() as running:
        first = merk_node(folder / "first").start()
        running.callback(first.stop)
        second = merk_node(folder / "second", merk__peers=first.url("merk")).start()
        running.callback(second.stop)
        until(lambda: told(first)["nodes"] and told(second)["nodes"], "the link of the two nodes")
        yield first, second


def merk_node(home, **settings):
    """Describe a node that speaks MERK and little else."""
    return NodeProcess(
        home,
        **{
            "bhumi__tls": "",
            "bhumi__plain": "",
            "lprp__udp": "",
            "merk__ws": "127.0.0.1:0",
            "strata__ws": "",
            "limits__enabled": "false",
        }
        | settings,
    )


def restart(node):
    """End a node and start it again on the port that it had."""
    node.settings["merk.ws"] = urlsplit(node.url("merk")).netloc
    node.stop()
    node.start()


def page_of(node, host="127.0.0.1"):
    """Return the address of a node's page."""
    return f"http://{host}:{urlsplit(node.url('merk')).port}/"


def get(node, path):
    """Return status, headers and body of a GET."""
    place = urlsplit(page_of(node))
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=8)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def told(node):
    """Return what a node tells about its mesh."""
    return json.loads(get(node, "/.well-known/merk-mesh.json")[2])


class Room:
    """Browser profiles of a module's tests, and everything that went wrong in their pages."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []
        self.problems = []
        self.is_down_expected = False

    def leave(self, count):
        """Close all profiles but the first ``count``."""
        while len(self._contexts) > count:
            self._contexts.pop().close()

    def person(self, node, *, fragment="", host="127.0.0.1", **options):
        """Open the page of a node in a browser profile of its own, and wait until it is connected."""
        context = self._browser.new_context(**{**USUAL, **options})
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(TELL_VIOLATIONS)
        self._contexts.append(context)
        return self.tab(context, node, fragment=fragment, host=host)

    def tab(self, context, node, *, fragment="", host="127.0.0.1"):
        """Open the page once more in a profile."""
        page = context.new_page()
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.goto(page_of(node, host) + fragment)
        return Person(page).connected()

    def _listen(self, message):
        expected = self.is_down_expected and EXPECTED_WHILE_DOWN.search(message.text)
        if message.type in ("error", "warning") and not expected:
            self.problems.append(f"{message.type}: {message.text} ({message.location['url']})")


class Person:
    """Somebody who uses the page."""

    def __init__(self, page):
        self.page = page

    @property
    def key(self):
        """The person's key, as the page shows it."""
        return self.page.locator("#key-hex").text_content()

    @property
    def nameless(self):
        """How others see somebody who has said no name."""
        return f"{self.key[:4]} {self.key[4:8]}"

    def connected(self):
        """Wait until the page says so."""
        expect(self.page.locator("#state")).to_have_attribute("data-phase", "ready", timeout=PATIENCE_MS)
        return self

    def starts_over(self):
        """Go back to the list."""
        self.connected()
        self.page.set_viewport_size(DESKTOP)
        self.page.evaluate(START_OVER)
        return self

    def call_self(self, name):
        """Choose a name that others see."""
        self.page.fill("#nick", name)
        self.page.locator("#nick").blur()
        expect(self.page.locator("#invite-link")).to_contain_text("name=")

    def address(self, who):
        """Open the conversation with a key or link, and wait until there is a key to encrypt with."""
        self.page.fill("#to", who)
        self.page.press("#to", "Enter")
        expect(self.page.locator("#thread")).to_have_attribute("data-key", "found", timeout=PATIENCE_MS)

    def open(self, name):
        """Open a conversation of the list."""
        self.page.locator(".conversation", has_text=name).first.click(timeout=PATIENCE_MS)

    def write(self, text, *, mode="encrypted", json=False):
        """Send a text or JSON in the open conversation."""
        if mode != "encrypted" or json:
            self.page.click("#more")
            self.page.check(f"input[name=mode][value={mode}]")
            self.page.set_checked("#as-json", json)
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def send_file(self, path):
        """Send a file in the open conversation."""
        self.page.set_input_files("#file", path)
        self.page.press("#text", "Enter")

    def sees(self, text):
        """Wait for a message that came in the open conversation, and return its entry."""
        entry = self.page.locator("#log .in", has_text=text).first
        entry.wait_for(timeout=PATIENCE_MS)
        return entry

    def hears_from(self, name, text):
        """Wait for a message in the list, open its conversation, and return the entry."""
        self.page.locator(".conversation", has_text=text).filter(has_text=name).wait_for(timeout=PATIENCE_MS)
        self.open(name)
        return self.sees(text)

    def learns(self, *states):
        """Wait until the last message that was sent has one of these states."""
        marks = ", ".join(f".mark[data-state={state}]" for state in states)
        self.page.locator("#log .out").last.locator(marks).wait_for(timeout=PATIENCE_MS)

    def settings(self):
        """Open the settings with everything in them."""
        self.page.click("#settings-open")
        self.page.evaluate("document.querySelectorAll('#settings details').forEach((one) => { one.open = true; })")

    def passphrase(self, text, *, is_new=True):
        """Answer the question for a passphrase."""
        self.page.fill("#passphrase", text)
        if is_new:
            self.page.fill("#passphrase-again", text)
        self.page.click("#passphrase-yes")

    def ask(self, script, argument=None):
        """Return what a function returns in the page."""
        return self.page.evaluate(script, argument)


def photograph(person, name):
    """Write a picture of the page into the folder that SCREENSHOTS names, when somebody asked for pictures."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        person.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
