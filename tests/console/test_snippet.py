"""What docs/merk.md tells people to put into a page of their own, in a page of another origin."""

import contextlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.console.build import PATIENCE_MS
from tests.server.build import until

pytestmark = pytest.mark.browser

GUIDE = Path(__file__).parents[2] / "docs" / "merk.md"
SOMEBODY = "64 hexadecimal digits of somebody's key"
RELAY = "relay.example"


@contextlib.contextmanager
def origin(page):
    """Serve one page, whatever is asked for, on a port of its own, and give its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def snippet(node, key):
    """Return the guide's markup with the addresses of a node and a recipient, and nothing else changed."""
    (markup,) = re.findall(r"^```html\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for scheme, found in (("https", "http"), ("wss", "ws")):
        assert f'"{scheme}://{RELAY}/' in markup
        markup = markup.replace(f"{scheme}://{RELAY}/", f"{found}://{urlsplit(node.url('merk')).netloc}/")
    assert RELAY not in markup and markup.count(SOMEBODY) == 1
    return "<!doctype html><title>another page</title>" + markup.replace(SOMEBODY, key)


def test_snippet_of_the_guide_works_as_it_stands(chromium, nodes, bob):
    """Copied into a page of another origin, it sends encrypted at once, tells what became of it, and hears."""
    context = chromium.new_context()
    page, said, faults = context.new_page(), [], []
    page.on("console", lambda message: (said if message.type == "log" else faults).append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    with origin(snippet(nodes[0], bob.key)) as address:
        page.goto(address)
        bob.open("hello")
        entry = bob.sees("hello")
        until(lambda: page.evaluate("1") and said, "the outcome")
        expect(bob.page.locator("#thread")).to_have_attribute("data-key", "found", timeout=PATIENCE_MS)
        bob.write("good day")
        until(lambda: page.evaluate("1") and len(said) == 2, "the answer")
        context.close()

    assert entry.locator(".mark").get_attribute("aria-label") == "Encrypted, sender proved"
    assert said == [
        "Accepted by the recipient's server, which wrote it to the recipient's connection.",
        f"{bob.key} bound good day",
    ]
    assert faults == []
