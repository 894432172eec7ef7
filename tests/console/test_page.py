"""The page in a real browser, between real nodes: what people do with it, and what it outlives."""

import hashlib
import random
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.console.build import (
    ARRIVED,
    DESKTOP,
    NOBODY,
    PATIENCE_MS,
    PHONE,
    PICTURE,
    linked_nodes,
    merk_node,
    page_of,
    photograph,
    restart,
    told,
)
from tests.console.tabs import Tab
from tests.server.build import until

pytestmark = pytest.mark.browser

HIDDEN_MS = 60_000

GIVE_FILE = """([way, name]) => {
  const given = new DataTransfer();
  given.items.add(new File(["given"], name, { type: "text/plain" }));
  const init = { bubbles: true, cancelable: true };
  const event = way === "paste" ? new ClipboardEvent("paste", { ...init, clipboardData: given })
    : new DragEvent("drop", { ...init, dataTransfer: given });
  document.querySelector(way === "paste" ? "#text" : "#scroller").dispatchEvent(event);
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


def test_invitation_names_text_and_answer(room, nodes):
    """Ada's link opens a conversation at Bob's relay; each sees the other's name, text and proof.

    And the answer finds its way back.
    """
    alice, bob = room.person(nodes[0]), room.person(nodes[1])
    alice.call_self("Ada")
    bob.call_self("Bob")
    alice.page.click("#copy-link")
    expect(alice.page.locator("#copy-link")).to_have_text("Copied")
    bob.address(alice.ask("navigator.clipboard.readText()"))
    expect(bob.page.locator("#person-name")).to_have_text("Ada")
    expect(bob.page.locator("#text")).to_be_focused()
    bob.write("Good evening, Ada. — Ünïcode ✓")
    entry = alice.hears_from("Bob", "Good evening, Ada. — Ünïcode ✓")
    alice.write("I see you.")

    bob.sees("I see you.")
    alice.learns(*ARRIVED)
    assert entry.locator(".mark").get_attribute("aria-label") == "Encrypted, sender proved"
    assert entry.locator(".why").is_hidden()
    photograph(alice, "inviter")
    photograph(bob, "invited")


def test_link_opened_in_a_browser_begins_the_conversation(room, nodes, alice):
    """Whoever opens a link has the conversation before them, under the name that the link says.

    And no key in the address any more.
    """
    bob = room.person(nodes[0], fragment=f"#to={alice.key}&name=Ada%20Lovelace")

    expect(bob.page.locator("#thread")).to_be_visible()
    expect(bob.page.locator("#person-name")).to_have_text("Ada Lovelace")
    assert bob.page.url == page_of(nodes[0])


def test_proof_and_outcome_are_explained_on_demand(alice, bob):
    """A mark says in short what is proved or became of a message, and in a sentence when it is pressed."""
    alice.address(bob.key)
    alice.write("what does the lock mean")
    entry = bob.hears_from(alice.nameless, "what does the lock mean")
    entry.locator(".mark").press("Enter")
    alice.learns(*ARRIVED)
    alice.page.locator("#log .out:last-child .mark").click()

    expect(entry.locator(".why")).to_contain_text("no relay can read it")
    expect(entry.locator(".mark")).to_have_attribute("aria-expanded", "true")
    expect(alice.page.locator("#log .out:last-child .why")).to_contain_text("Encrypted")


def test_newest_message_is_at_the_bottom_and_in_view(alice, bob):
    """After more messages than the screen has room for, the last one is seen without scrolling.

    On a desk and on a phone.
    """
    alice.address(bob.key)
    bob.address(alice.key)
    for number in range(16):
        alice.write(f"line {number} of many")
    bob.sees("line 15 of many")
    for person, viewport in ((bob, DESKTOP), (bob, PHONE), (alice, PHONE)):
        person.page.set_viewport_size(viewport)
        expect(person.page.locator("#log .entry").last).to_be_in_viewport(ratio=1)
        assert person.page.locator("#log .entry").last.text_content().find("line 15 of many") >= 0


def test_what_was_not_seen_is_counted(alice, bob):
    """Messages of a conversation that is not open are counted in the list and the title, until it is opened."""
    alice.address(bob.key)
    bob.address(alice.key)
    bob.starts_over()
    alice.write("one")
    alice.write("two")
    row = bob.page.locator(".conversation", has_text="two")

    expect(row.locator(".badge")).to_have_text("2", timeout=PATIENCE_MS)
    assert bob.page.title().startswith("(2) ")
    row.click()
    expect(bob.page.locator(".badge")).to_have_count(0)
    assert not bob.page.title().startswith("(")


@pytest.mark.parametrize("mode", ["encrypted", "signed"])
def test_json_arrives_in_each_protection(alice, bob, mode):
    """JSON arrives readable, however it is protected, and its mark says how."""
    alice.address(bob.key)
    alice.write(f'{{"tank": [0.97, null], "née": "{mode}"}}', json=True, mode=mode)
    entry = bob.hears_from(alice.nameless, f'"{mode}"')
    said = {"encrypted": "Encrypted, sender proved", "signed": "Not encrypted, sender proved"}

    assert entry.locator("pre").count() == 1
    assert entry.locator(".mark").get_attribute("aria-label") == said[mode]


def test_plain_message_says_that_it_is_plain(alice, bob):
    """A plain message is shown as the text that it is, and its mark says that relays can read it.

    The writer is warned before.
    """
    alice.address(bob.key)
    alice.write("everybody may read this", mode="plain")
    entry = bob.hears_from(alice.nameless, "everybody may read this")

    assert entry.locator(".mark").get_attribute("aria-label").startswith("Not encrypted")
    alice.page.click("#more")
    expect(alice.page.locator("#unusual")).to_have_text("plain: relays can read it")


def test_equal_plain_messages_are_shown_each(alice, bob):
    """Two plain messages with the same text have nothing that tells them apart, and both are in the conversation."""
    alice.address(bob.key)
    for _ in range(2):
        alice.write("fire", mode="plain")
        alice.learns("accepted")
        alice.page.click("#more")
    bob.hears_from(alice.nameless, "fire")

    expect(bob.page.locator("#log .in", has_text="fire")).to_have_count(2)


def test_files_arrive_whole_and_pictures_are_shown(alice, bob, tmp_path):
    """A file can be saved under its name, byte for byte; a picture is shown to who has written to its sender."""
    path = tmp_path / "readings 2026.bin"
    path.write_bytes(random.Random(1).randbytes(300_000))
    alice.address(bob.key)
    bob.address(alice.key)
    bob.write("send it")
    alice.send_file(path)
    entry = bob.sees("readings 2026.bin")
    with bob.page.expect_download() as download:
        entry.get_by_role("button", name="Save").click()
    alice.page.set_input_files("#file", {"name": "a.bin", "mimeType": "x/y", "buffer": PICTURE})
    expect(alice.page.locator("#attached .thumbnail")).to_have_count(1)
    alice.page.press("#text", "Enter")

    assert download.value.suggested_filename == "readings 2026.bin"
    assert hashlib.sha256(download.value.path().read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()
    expect(entry).to_contain_text("300 KB")
    expect(bob.page.locator("#log .in:last-child .picture")).to_have_js_property("naturalWidth", 1, timeout=PATIENCE_MS)
    alice.learns(*ARRIVED)


def test_picture_of_a_stranger_waits_for_a_press(room, nodes, bob):
    """A picture of somebody whom one never wrote to is shown only when one asks for it."""
    stranger = room.person(nodes[0])
    stranger.address(bob.key)
    stranger.page.set_input_files("#file", {"name": "strange.png", "mimeType": "image/png", "buffer": PICTURE})
    stranger.page.press("#text", "Enter")
    entry = bob.hears_from(stranger.nameless, "strange.png")
    press = entry.get_by_role("button", name="Show the picture")
    press.wait_for()

    assert entry.locator("img").count() == 0
    press.click()
    expect(entry.locator("img")).to_have_count(1)


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_files_come_by_paste_and_drop(alice, bob, way):
    """A file that is pasted or dropped stands beside the text until it is sent, and can be taken out again."""
    alice.address(bob.key)
    alice.ask(GIVE_FILE, [way, f"by {way}.txt"])
    expect(alice.page.locator("#attached li")).to_have_count(1)
    alice.page.get_by_role("button", name=f"Do not send by {way}.txt").click()
    expect(alice.page.locator("#attached li")).to_have_count(0)
    alice.ask(GIVE_FILE, [way, f"by {way}.txt"])
    alice.page.press("#text", "Enter")

    bob.hears_from(alice.nameless, f"by {way}.txt")


def test_message_to_nobody_says_why_and_can_be_sent_again(room, nodes):
    """Whoever writes to a key that is connected nowhere learns the reason, keeps the text and may try again."""
    alice = room.person(nodes[0])
    alice.page.fill("#to", NOBODY)
    alice.page.press("#to", "Enter")
    expect(alice.page.locator("#key-trouble")).to_be_visible()
    alice.write("Hello?", mode="signed")
    alice.learns("failed")
    trouble = alice.page.locator("#log .trouble")
    expect(trouble).not_to_be_empty()
    trouble.get_by_role("button", name="Send again").click()

    alice.learns("failed")
    expect(alice.page.locator("#log .out")).to_have_count(1)
    expect(alice.page.locator(".conversation")).to_contain_text("Not sent: Hello?")


def test_message_that_cannot_be_encrypted_is_not_sent(room, nodes):
    """Without the recipient's key nothing leaves the page, nothing is lost, and a sentence says why."""
    alice = room.person(nodes[0])
    alice.page.fill("#to", NOBODY)
    alice.page.press("#to", "Enter")
    alice.write("A secret")
    alice.learns("failed")

    expect(alice.page.locator("#log .out .trouble")).to_contain_text("key")


@pytest.mark.parametrize("way", ["Connect", "reload"])
def test_what_is_written_without_a_connection_goes_out_later(room, nodes, bob, way):
    """A text that is written while the relay is gone waits, through a reload too, and goes out by itself."""
    alice = room.person(nodes[0])
    alice.address(bob.key)
    alice.settings()
    alice.page.get_by_role("button", name="Disconnect").click()
    alice.page.click("#settings-back")
    alice.open(bob.nameless)
    alice.write(f"into the bottle, until {way}")
    alice.learns("waiting")
    if way == "reload":
        alice.page.reload()
    else:
        alice.settings()
        alice.page.get_by_role("button", name="Connect", exact=True).click()

    bob.hears_from(alice.nameless, f"into the bottle, until {way}")


def test_nothing_that_is_written_can_be_read_on_the_way(room, nodes, bob):
    """No word of a text, name or file stands in a frame that leaves the page, unless the user sends it plain."""
    alice, frames = room.person(nodes[0]), []
    alice.page.on("websocket", lambda socket: socket.on("framesent", lambda data: frames.append(bytes(data))))
    alice.page.reload()
    alice.connected().call_self("Ada of the sea")
    alice.address(bob.key)
    alice.page.set_input_files("#file", {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"under the stone"})
    alice.write("the safe is 4711")
    bob.hears_from("Ada of the sea", "the safe is 4711")
    bob.sees("plan.txt")
    alice.write("for everybody", mode="plain")
    bob.sees("for everybody")

    secrets = b"Ada of the sea", b"plan.txt", b"under the stone", b"the safe is 4711"
    assert [secret for secret in secrets if any(secret in frame for frame in frames)] == []
    assert any(b"for everybody" in frame for frame in frames)


def test_mail_waits_for_who_is_away(room, nodes):
    """A message to somebody who has closed the page is stored by their relay, and read when they come back."""
    alice, bob = room.person(nodes[0]), room.person(nodes[1])
    bob.settings()
    expect(bob.page.locator("#mailbox-note")).to_contain_text("keeps encrypted messages", timeout=PATIENCE_MS)
    alice.address(bob.key)
    alice.write("before you go")
    alice.learns("read")
    present = told(nodes[1])["clients"]
    bob.page.close()
    until(lambda: told(nodes[1])["clients"] < present, "Bob's leaving")
    alice.write("while you were away")
    alice.learns("stored")
    back = room.tab(bob.page.context, nodes[1])

    back.hears_from(alice.nameless, "while you were away")
    alice.learns("read")
    photograph(alice, "stored-and-read")


def test_page_works_under_any_path(room, tmp_path):
    """The page finds the node's MERK wherever its operator has put it."""
    node = merk_node(tmp_path, merk__paths="/chat").start()
    try:
        alice = room.person(node)
        alice.address(alice.key)
        alice.write("a note to myself")

        alice.sees("a note to myself")
        expect(alice.page.locator("#state-text")).to_contain_text("/chat")
    finally:
        alice.page.close()
        node.stop()


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
    alice.hears_from(bob.nameless, "to both tabs")
    second.hears_from(bob.nameless, "to both tabs")
    expect(second.page.locator("#log .in")).to_have_count(1)
    assert told(nodes[0])["clients"] == sockets
    alice.page.close()
    bob.address(second.key)
    expect(second.page.locator("#state")).to_have_attribute("data-phase", "ready")
    bob.write("to the one that is left")
    second.hears_from(bob.nameless, "to the one that is left")
    assert told(nodes[0])["clients"] == sockets


def test_hidden_page_goes_on_receiving(alice, nodes, tab):
    """A page behind another tab shows what comes, and its title counts what nobody has seen yet."""
    bob = tab(nodes[1])
    alice.address(bob.key)
    bob.go_behind()
    alice.write("while you look elsewhere")
    alice.learns(*ARRIVED)
    bob.sees("while you look elsewhere")

    assert bob.ask("document.title").startswith("(1) ")
    bob.return_to_front()
    bob.ask("document.querySelector('.conversation').click()")
    bob.waits_for("document.title.startsWith('waystation')")


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
        return bob.ask("document.querySelector('#conversations').textContent.includes('after the thaw')")

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
    bob.hears_from(alice.nameless, "before")
    restart(nodes[1])
    expect(bob.page.locator("#state")).to_have_attribute("data-phase", "ready", timeout=PATIENCE_MS)
    alice.address(bob.key)
    alice.write("after")

    bob.hears_from(alice.nameless, "after")
    alice.learns(*ARRIVED)


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
        expect(alice.page.locator("#state-trouble")).to_contain_text("key changed")
        alice.page.click("#state")
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
        alice.address(bob.key)
        alice.write("at the end, still hidden")
        alice.learns(*ARRIVED)
        bob.sees("at the end, still hidden")
        bob.return_to_front()
        alice.write("and seen again")

        bob.sees("and seen again")


def test_large_file_shows_its_progress(alice, bob, tmp_path):
    """A file larger than a frame goes in parts, and both sides see how far it is."""
    path = tmp_path / "large.bin"
    path.write_bytes(random.Random(2).randbytes(9_000_000))
    alice.address(bob.key)
    bob.address(alice.key)
    alice.send_file(path)
    bob.page.locator("#log progress").first.wait_for(timeout=PATIENCE_MS)
    save = bob.page.get_by_role("button", name="Save large.bin")
    save.wait_for(timeout=2 * PATIENCE_MS)
    with bob.page.expect_download() as download:
        save.click()

    assert download.value.path().stat().st_size == 9_000_000
    expect(bob.page.locator("#log progress")).to_have_count(0)
    alice.learns(*ARRIVED)
