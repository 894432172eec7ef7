"""The browser SDK in Firefox: it signs in at a real node and gets its own message back, read.

Nothing drives the browser: Playwright needs a build of its own, and Debian ships no geckodriver. The page posts what
happened.
"""

import contextlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest

from tests.console.build import merk_node
from tools.browser import FIREFOX_MISSING, firefox

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PREFERENCES = """user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("app.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
"""

PAGE = """<!doctype html><meta charset="utf-8"><title>SDK</title><script type="module">
const tell = (told) => fetch("/told", { method: "POST", body: JSON.stringify(told) });
try {
  const { MerkClient } = await import("http://HOST/sdk/merk.js");
  const client = await MerkClient.open();
  const came = new Promise((resolve) => client.on("message", resolve));
  await client.connect("ws://HOST/merk");
  const { authenticated } = await client.whenReady();
  const { agreementKey } = (await client.findKey(client.id)) ?? client;
  const sent = await client.sendText(client.id, "hello, Firefox", { agreementKey, format: "extended" });
  const { text, mode, auth, id } = await came;
  const { name } = await sent.outcome;
  const { isPersistent, warnings } = client;
  const [same, read] = [id === sent.id, await sent.read];
  await tell({ authenticated, isPersistent, warnings, name, text, mode, auth, same, read });
} catch (error) {
  await tell({ error: String(error) });
}
</script>"""


@contextlib.contextmanager
def page_at(host):
    """Serve the page on loopback, and yield its address and a queue of what it tells."""
    told = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(PAGE.replace("HOST", host).encode())

        def do_POST(self):
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_firefox_signs_in_and_gets_a_message_that_is_read(tmp_path):
    """Keys, handshake, proofs, the bound form and the receipt are the same in another browser."""
    program = firefox()
    assert program, FIREFOX_MISSING
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "user.js").write_text(PREFERENCES)
    node = merk_node(tmp_path / "node").start()
    try:
        with page_at(node.url("merk").removeprefix("ws://").partition("/")[0]) as (address, told):
            command = (program, "--headless", "--no-remote", "--profile", str(profile), address)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
                try:
                    seen = told.get(timeout=120)
                finally:
                    browser.terminate()
    finally:
        node.stop()

    assert seen == {
        "authenticated": True,
        "isPersistent": True,
        "warnings": [],
        "name": "accepted",
        "text": "hello, Firefox",
        "mode": "encrypted",
        "auth": "bound",
        "same": True,
        "read": True,
    }
