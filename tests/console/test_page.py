"""The page in a real browser, between real nodes: what people do with it, and what it outlives."""

import hashlib
import random
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.console.build import NOBODY, PATIENCE_MS, PHONE, linked_nodes, merk_node, page_of, photograph, restart, told
from tests.console.tabs import Tab
from tests.server.build import until

pytestmark = pytest.mark.browser

HIDDEN_MS = 60_000

# Tries to take every private key out of everything that the page has stored; returns what became of each try.
EXPORT_ALL = """async () => {
  const results = [];
  const seen = new Set();
  const visit = async (value) => {
    if (value === null || typeof value !== "object" || seen.has(value)) return;
    seen.add(value);
    if (value instanceof CryptoKey) {
      if (value.type !== "private") return;
      for (const format of ["raw", "pkcs8", "jwk"]) {
        results.push(await crypto.subtle.exportKey(format, value).then(() => "exported", (error) => error.name));
      }
      return;
    }
    if (ArrayBuffer.isView(value)) return;
    for (const inner of Object.values(value)) await visit(inner);
  };
  const finished = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  for (const { name } of await indexedDB.databases()) {
    const database = await finished(indexedDB.open(name));
    for (const store of database.objectStoreNames) {
      for (const value of await finished(database.transaction(store).objectStore(store).getAll())) await visit(value);
    }
    database.close();
  }
  return results;
}"""


@pytest.fixture
def tab(chromium):
    """Opens pages that can be behind another tab."""
    opened = []

    def open_tab(node):
        opened.append(Tab(chromium, page_of(node)))
        return opened[-1].connected()

    yield open_tab
    for one in opened:
        one.close()


def test_two_people_write_through_two_nodes(alice, bob):
    """An encrypted text goes from one node's page to the other's; its reader sees the proof, its writer the outcome."""
    alice.address(bob.key)
    alice.write("Good evening, Bob. — Ünïcode ✓")
    entry = bob.sees("Good evening, Bob. — Ünïcode ✓")

    expect(entry).to_contain_text("text, encrypted")
    expect(entry.locator(".proof strong")).to_have_text("Sender proved")
    alice.learns("Delivered")
    assert alice.page.input_value("#text") == ""
    photograph(alice, "sender")
    photograph(bob, "receiver")


def test_answer_goes_back_with_one_press(alice, bob):
    """The button "Reply" fills in the sender, and the answer finds its way back."""
    alice.address(bob.key)
    alice.write("Are you there?")
    bob.sees("Are you there?").get_by_role("button", name="Reply").click()
    expect(bob.page.locator("#text")).to_be_focused()
    bob.write("I am.")

    alice.sees("I am.")
    assert bob.page.input_value("#to") == alice.key


@pytest.mark.parametrize("mode", ["encrypted", "signed"])
def test_json_arrives_in_each_protection(alice, bob, mode):
    """JSON arrives readable, however it is protected, and says how."""
    alice.address(bob.key)
    alice.write('{"tank": [0.97, null], "née": true}', kind="json", mode=mode)
    entry = bob.sees('"née": true')

    expect(entry.locator("header")).to_contain_text(f"json, {mode}")
    expect(entry.locator(".proof strong")).to_have_text("Sender proved")


def test_plain_message_says_that_it_is_plain(alice, bob):
    """A plain message has no type on the wire and arrives as the bytes it is, signed, shown as the text they are."""
    alice.address(bob.key)
    alice.write("everybody may read this", mode="plain")
    entry = bob.sees("everybody may read this")

    expect(entry.locator("header")).to_contain_text("bytes, plain")
    expect(entry.locator(".proof strong")).to_have_text("Sender proved")
    expect(entry.get_by_role("link", name="Save bytes")).to_have_count(0)


def test_file_arrives_whole(alice, bob, tmp_path):
    """A file of 300 KB can be saved under its name, byte for byte."""
    path = tmp_path / "readings 2026.bin"
    path.write_bytes(random.Random(1).randbytes(300_000))
    alice.address(bob.key)
    alice.send_file(path)
    entry = bob.sees("readings 2026.bin")
    with bob.page.expect_download() as download:
        entry.get_by_role("link", name="Save file").click()

    assert download.value.suggested_filename == "readings 2026.bin"
    assert hashlib.sha256(download.value.path().read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()
    expect(entry).to_contain_text("300 KB")
    alice.learns("Delivered")


def test_message_to_nobody_tells_its_outcome(alice):
    """Whoever writes to a key that is connected nowhere learns it."""
    alice.page.fill("#to", NOBODY)
    expect(alice.page.locator("#to-note")).to_contain_text("No key to encrypt with is known")
    alice.write("Hello?", mode="signed")

    alice.learns("Not delivered")
    photograph(alice, "nobody")


def test_message_that_cannot_be_encrypted_is_not_sent(alice):
    """Without the recipient's key nothing leaves the page, nothing is lost, and a sentence says why."""
    alice.page.fill("#to", NOBODY)
    alice.write("A secret")

    expect(alice.page.locator("#compose-error")).to_contain_text("key")
    assert alice.page.input_value("#text") == "A secret"
    assert alice.page.locator("#log .out").count() == 0


def test_keys_outlive_a_reload_and_cannot_be_taken_out(room, nodes):
    """The identity is the same after a reload, and no script can export its private keys."""
    alice = room.person(nodes[0])
    before = alice.key
    alice.page.reload()
    alice.connected()

    assert alice.key == before
    results = alice.ask(EXPORT_ALL)
    assert len(results) >= 6
    assert set(results) <= {"InvalidAccessError", "NotSupportedError"}
    assert "InvalidAccessError" in results


def test_two_profiles_are_two_people(alice, bob):
    """Each browser makes keys of its own."""
    assert alice.key != bob.key


def test_tabs_of_one_identity_share_one_connection(room, bob, nodes):
    """Two tabs have one identity and one socket; when the one that holds it closes, the other takes over."""
    alice = room.person(nodes[0])
    sockets = told(nodes[0])["clients"]
    second = room.tab(alice.page.context, nodes[0])
    bob.address(alice.key)
    bob.write("to both tabs")

    assert second.key == alice.key
    alice.sees("to both tabs")
    second.sees("to both tabs")
    assert told(nodes[0])["clients"] == sockets
    alice.page.close()
    bob.address(second.key)
    expect(second.page.locator("#state")).to_have_attribute("data-phase", "ready")
    bob.write("to the one that is left")
    second.sees("to the one that is left")
    assert told(nodes[0])["clients"] == sockets


def test_hidden_page_goes_on_receiving(alice, nodes, tab):
    """A page behind another tab shows what comes, and its title counts what nobody has seen yet."""
    bob = tab(nodes[1])
    alice.address(bob.key)
    bob.go_behind()
    alice.write("while you look elsewhere")
    alice.learns("Delivered")
    bob.sees("while you look elsewhere")

    assert bob.ask("document.title").startswith("(1) ")
    bob.return_to_front()
    assert bob.ask("document.title").startswith("waystation")


def test_frozen_page_comes_back(alice, nodes, tab):
    """A page that the browser froze, which ends its socket, gets messages again soon after somebody looks at it."""
    bob = tab(nodes[1])
    alice.address(bob.key)
    bob.go_behind()
    bob.freeze()
    alice.write("into the frost")
    bob.return_to_front()

    def arrives():
        alice.write("after the thaw")  # again and again: nobody can tell when the old socket has been found dead
        return bob.ask("document.querySelector('#log').textContent.includes('after the thaw')")

    assert until(arrives, "a message after the thaw")
    bob.connected()


def test_hidden_page_comes_back_after_its_node_did(room, alice, nodes, tab):
    """A page whose node went away while nobody looked connects again as soon as somebody does."""
    room.is_down_expected = True
    bob = tab(nodes[1])
    bob.go_behind()
    restart(nodes[1])
    bob.return_to_front()
    bob.connected()
    alice.address(bob.key)
    alice.write("welcome back")

    bob.sees("welcome back")


def test_page_outlives_a_restart_of_its_node(room, alice, bob, nodes):
    """When the node comes back on its port, the page connects by itself, and messages go on."""
    room.is_down_expected = True
    alice.address(bob.key)
    alice.write("before")
    bob.sees("before")
    restart(nodes[1])
    expect(bob.page.locator("#state")).to_have_attribute("data-phase", "ready", timeout=PATIENCE_MS)
    alice.page.fill("#to", "")
    alice.address(bob.key)
    alice.write("after")

    bob.sees("after")
    alice.learns("Delivered")


def test_new_key_of_a_server_is_asked_about(room, tmp_path):
    """A page does not talk to a node that has another key than before, until its reader accepts the new one."""
    room.is_down_expected = True
    node = merk_node(tmp_path / "before").start()
    alice = room.person(node, viewport=PHONE)
    port = urlsplit(node.url("merk")).netloc
    node.stop()
    node = merk_node(tmp_path / "after", merk__ws=port).start()
    try:
        expect(alice.page.locator("#state")).to_have_attribute("data-phase", "refused", timeout=PATIENCE_MS)
        expect(alice.page.locator("#server-fold")).to_have_attribute("open", "")
        alice.page.get_by_role("button", name="Accept the server's new key").click()
        alice.page.get_by_role("button", name="Accept", exact=True).click()
        alice.connected()

        expect(alice.page.locator("#state-more")).to_contain_text(node.ready["node"]["public_key"][:8])
        expect(alice.page.locator("#forget-server-key")).to_be_hidden()
    finally:
        node.stop()


@pytest.mark.slow
def test_minute_in_the_background_changes_nothing(room, tab, tmp_path):
    """After 60 s behind another tab, and a restart of its node in the middle, a page still gets what is sent to it."""
    room.is_down_expected = True
    with linked_nodes(tmp_path) as (first, second):
        alice, bob = room.person(first), tab(second)
        bob.go_behind()
        alice.address(bob.key)
        alice.write("at the beginning")
        bob.sees("at the beginning")
        restart(second)
        alice.ask("(ms) => new Promise((done) => setTimeout(done, ms))", HIDDEN_MS)
        alice.page.fill("#to", "")
        alice.address(bob.key)
        alice.write("at the end, still hidden")
        alice.learns("Delivered")
        bob.sees("at the end, still hidden")
        bob.return_to_front()
        alice.write("and seen again")

        bob.sees("and seen again")


def test_large_file_shows_its_progress(alice, bob, tmp_path):
    """A file larger than a frame goes in parts, and both sides see how far it is."""
    path = tmp_path / "large.bin"
    path.write_bytes(random.Random(2).randbytes(9_000_000))
    alice.address(bob.key)
    alice.send_file(path)
    bob.page.locator("#log progress").first.wait_for(timeout=PATIENCE_MS)
    entry = bob.page.locator("#log .in", has=bob.page.get_by_role("link", name="Save file")).first
    entry.wait_for(timeout=2 * PATIENCE_MS)
    with bob.page.expect_download() as download:
        entry.get_by_role("link", name="Save file").click()

    assert download.value.path().stat().st_size == 9_000_000
    expect(bob.page.locator("#log progress")).to_have_count(0)
    alice.learns("Delivered")
