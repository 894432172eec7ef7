"""What the page keeps and how it leaves the browser: reload, passphrase, backup, second device, block."""

import json
import random

import pytest
from playwright.sync_api import expect

from tests.console.build import ARRIVED, PATIENCE_MS, PICTURE, page_of
from waystation.protocols.merk.keys import Keys

pytestmark = pytest.mark.browser

PASSPHRASE = "four words of mine"

READ_ALL = """async () => {
  const finished = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const texts = [];
  const decoder = new TextDecoder();
  for (const { name } of await indexedDB.databases()) {
    if (!name.startsWith("waystation-page")) continue;
    const database = await finished(indexedDB.open(name));
    for (const store of database.objectStoreNames) {
      for (const row of await finished(database.transaction(store).objectStore(store).getAll())) {
        for (const part of [row, ...Object.values(row)]) {
          texts.push(ArrayBuffer.isView(part) ? decoder.decode(part) : JSON.stringify(part));
        }
      }
    }
    database.close();
  }
  return texts.join("\\n");
}"""
"""Everything that the page has written into its database, as a thief of the disk would see it."""

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

OPEN_BACKUP = """async ([text, passphrase]) => {
  const { openWithPassphrase } = await import("/page/vault.js");
  const base64 = text.trim().replaceAll("-", "+").replaceAll("_", "/");
  const sealed = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
  return new TextDecoder().decode(await openWithPassphrase(passphrase, sealed));
}"""
"""What stands in a backup, as JSON."""

WATCH_WRITES = """() => {
  const { transaction } = IDBDatabase.prototype;
  window.writes = [];
  IDBDatabase.prototype.transaction = function (tables, mode, options) {
    const made = transaction.call(this, tables, mode, options);
    if (mode === "readwrite") window.writes.push([this.name, made.durability]);
    return made;
  };
}"""
"""Notes of each transaction that writes its database and how sure it is."""

# Writes a hundred rows at once, one of which cannot be copied, and looks when the first is confirmed.
MANY_WRITES = """async () => {
  const { IndexedDbStorage } = await import("/sdk/storage.js");
  const storage = await IndexedDbStorage.open(indexedDB, "many-writes");
  const order = [];
  const { transaction } = storage.database;
  let count = 0;
  storage.database.transaction = (tables, mode, options) => {
    const made = transaction.call(storage.database, tables, mode, options);
    if (mode === "readwrite") {
      count += 1;
      made.addEventListener("complete", () => order.push("on the disk"));
    }
    return made;
  };
  const valueOf = (index) => (index === 50 ? () => 0 : index);
  const puts = Array.from({ length: 100 }, (_, index) => storage.put("seen", String(index), valueOf(index)));
  puts[0].then(() => order.push("confirmed"));
  const refused = (await Promise.allSettled(puts)).filter(({ status }) => status === "rejected").length;
  await Promise.all([storage.remove("seen", "7"), storage.put("seen", "8", "eight")]);
  const rows = await storage.entries("seen");
  const [, eight] = rows.find(([key]) => key === "8");
  storage.close();
  const late = await storage.put("seen", "9", 9).then(() => "written", (error) => error.name);
  return { order: order.slice(0, 2), count, refused, rows: rows.length, eight, late };
}"""


def test_what_is_confirmed_is_on_the_disk(room, nodes, bob):
    """Names of messages and the history are written so that a power cut takes nothing that was confirmed to anybody."""
    alice = room.person(nodes[0])
    alice.ask(WATCH_WRITES)
    alice.address(bob.key)
    alice.write("a question of disks")
    bob.hears_from(alice.nameless, "a question of disks")
    bob.write("yes")
    alice.sees("yes")
    bob.learns("read")

    assert {tuple(each) for each in alice.ask("() => window.writes")} == {
        ("waystation-merk", "strict"),
        ("waystation-page-default", "strict"),
    }


def test_many_names_need_few_writes(alice):
    """What comes while one write is under way goes with the next, and what cannot be written keeps no other out."""
    found = alice.ask(MANY_WRITES)

    assert found == {
        "order": ["on the disk", "confirmed"],
        "count": 4,
        "refused": 1,
        "rows": 98,
        "eight": "eight",
        "late": "InvalidStateError",
    }


def said(person):
    """Return the texts of the open conversation."""
    return person.page.locator("#log .body").all_text_contents()


def test_reload_keeps_everything(room, nodes, bob):
    """Names, messages of both ways, their outcomes and files are there after a reload.

    And nothing is counted as new.
    """
    alice = room.person(nodes[0])
    alice.call_self("Ada")
    alice.address(bob.key)
    alice.write("before the reload")
    alice.learns(*ARRIVED)
    bob.hears_from("Ada", "before the reload")
    bob.write("an answer")
    alice.sees("an answer")
    bob.page.set_input_files("#file", {"name": "dot.png", "mimeType": "image/png", "buffer": PICTURE})
    bob.page.press("#text", "Enter")
    alice.page.locator("#log .in .picture").wait_for()
    alice.page.reload()
    alice.connected()
    assert alice.page.locator(".badge").count() == 0
    alice.open("dot.png")

    assert said(alice) == ["before the reload", "an answer"]
    expect(alice.page.locator("#log .in .picture")).to_have_js_property("naturalWidth", 1)
    assert alice.page.locator("#log .out .mark").get_attribute("data-state") in ARRIVED
    assert alice.page.input_value("#nick") == "Ada"


def test_passphrase_keeps_the_history_from_a_thief(room, nodes):
    """With a passphrase no text, name or file stands readable in the database; the page asks for it.

    Refuses a wrong one, and has all again.
    """
    alice = room.person(nodes[0])
    alice.call_self("Ada of the sea")
    alice.address(alice.key)
    alice.write("the safe is 4711")
    alice.page.set_input_files("#file", {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"under the stone"})
    alice.page.press("#text", "Enter")
    alice.sees("plan.txt")
    secrets = ("the safe is 4711", "plan.txt", "under the stone", "Ada of the sea")
    assert all(secret in alice.ask(READ_ALL) for secret in secrets)
    alice.settings()
    alice.page.click("#protect")
    alice.passphrase(PASSPHRASE)
    expect(alice.page.locator("#history-note")).to_contain_text("encrypted in this browser", timeout=PATIENCE_MS)
    assert not [secret for secret in secrets if secret in alice.ask(READ_ALL)]

    alice.page.reload()
    expect(alice.page.locator("#passphrase-dialog")).to_be_visible(timeout=PATIENCE_MS)
    alice.passphrase("not this one", is_new=False)
    expect(alice.page.locator("#passphrase-error")).to_contain_text("does not open", timeout=PATIENCE_MS)
    alice.passphrase(PASSPHRASE, is_new=False)
    alice.connected()
    alice.open("plan.txt")
    alice.write("a new secret")
    alice.sees("a new secret")
    assert said(alice)[0] == "the safe is 4711"
    assert "a new secret" not in alice.ask(READ_ALL)


def test_backup_restores_a_person_in_a_fresh_profile(room, nodes, bob, tmp_path):
    """A backup opens with its passphrase only, brings key, name and people to another browser, and no messages.

    And who writes to the key reaches it there.
    """
    alice = room.person(nodes[0])
    alice.call_self("Ada")
    alice.address(bob.key)
    alice.write("I may lose this machine")
    bob.hears_from("Ada", "I may lose this machine")
    alice.page.click("#person")
    alice.page.fill("#label", "Bob the builder")
    alice.page.locator("#label").blur()
    alice.page.click("#person-close")
    expect(alice.page.locator("#person-name")).to_have_text("Bob the builder")
    alice.settings()
    alice.page.click("#backup-file")
    with alice.page.expect_download() as download:
        alice.passphrase(PASSPHRASE)
    backup = tmp_path / download.value.suggested_filename
    download.value.save_as(backup)
    key = alice.key
    within = alice.ask(OPEN_BACKUP, [backup.read_text(), PASSPHRASE])
    alice.page.close()
    assert "Bob the builder" in within
    assert "I may lose this machine" not in within
    fresh = room.person(nodes[0])
    fresh.page.set_input_files("#restore-file", backup)
    fresh.passphrase("not this one", is_new=False)
    expect(fresh.page.locator("#passphrase-error")).to_contain_text("does not open", timeout=PATIENCE_MS)
    fresh.passphrase(PASSPHRASE, is_new=False)
    expect(fresh.page.locator("#key-hex")).to_have_text(key, timeout=PATIENCE_MS)
    fresh.connected()
    bob.write("welcome back")

    fresh.hears_from("Bob the builder", "welcome back")
    assert fresh.page.input_value("#nick") == "Ada"
    assert bytes.fromhex(key) not in backup.read_bytes()


def test_second_device_takes_the_identity_by_a_link(room, nodes):
    """The link of the QR code carries the keys, sealed.

    The other device asks for the passphrase and is the same person.
    """
    alice = room.person(nodes[0])
    alice.call_self("Ada")
    alice.settings()
    alice.page.click("#backup-link")
    alice.passphrase(PASSPHRASE)
    expect(alice.page.locator("#backup-qr svg")).to_be_visible(timeout=PATIENCE_MS)
    link = alice.page.locator("#backup-text").text_content()
    key = alice.key
    alice.page.close()
    second = room.person(nodes[0], fragment=link.removeprefix(page_of(nodes[0])))
    second.passphrase(PASSPHRASE, is_new=False)

    expect(second.page.locator("#key-hex")).to_have_text(key, timeout=PATIENCE_MS)
    assert "backup" not in second.page.url
    expect(second.page.locator("#nick")).to_have_value("Ada")


def test_locked_keys_cannot_be_taken_out(room, nodes):
    """After "Lock the keys" the identity is the same, and no script can export its private keys."""
    alice = room.person(nodes[0])
    before = alice.key
    alice.settings()
    alice.page.click("#lock-keys")
    with alice.page.expect_navigation():
        alice.page.click("#question-yes")
    alice.connected()
    results = alice.ask(EXPORT_ALL)

    assert alice.key == before
    assert len(results) >= 6
    assert set(results) <= {"InvalidAccessError", "NotSupportedError"}
    assert "InvalidAccessError" in results
    alice.settings()
    expect(alice.page.locator("#backup-file")).to_be_hidden()


def test_key_file_of_the_original_is_taken(room, nodes, tmp_path):
    """A key file of the original client replaces identity and messages; what is none is refused with a sentence."""
    alice = room.person(nodes[0])
    keys = Keys.generate(random.Random(5))
    wrong, right = tmp_path / "wrong.json", tmp_path / "keys.json"
    wrong.write_text(json.dumps({"publicKey": "AAAA"}))
    right.write_text(keys.export_json())
    alice.address(alice.key)
    alice.write("under the old key")
    alice.sees("under the old key")
    alice.settings()
    before = alice.key
    alice.page.set_input_files("#restore-file", wrong)
    expect(alice.page.locator("#settings-error")).to_contain_text("key file")
    assert alice.key == before
    alice.page.set_input_files("#restore-file", right)
    alice.page.click("#question-yes")

    expect(alice.page.locator("#key-hex")).to_have_text(keys.signing.public.hex(), timeout=PATIENCE_MS)
    assert "under the old key" not in alice.ask(READ_ALL)


def test_blocked_person_reaches_nobody_until_unblocked(room, nodes, bob):
    """What a blocked person sends is neither shown nor kept; after "Unblock" the next message is."""
    alice = room.person(nodes[0])
    alice.address(bob.key)
    alice.write("hello")
    bob.hears_from(alice.nameless, "hello")
    bob.page.click("#stranger-block")
    expect(bob.page.locator("#compose")).to_be_hidden()
    alice.write("are you there")
    alice.learns(*ARRIVED)
    bob.settings()
    expect(bob.page.locator("#blocked")).to_contain_text(alice.nameless)
    assert bob.page.locator(".conversation", has_text=alice.nameless).count() == 0
    bob.page.get_by_role("button", name=f"Unblock {alice.nameless}").click()
    alice.write("and now")

    bob.hears_from(alice.nameless, "and now")
    assert said(bob) == ["hello", "and now"]
    assert "are you there" not in bob.ask(READ_ALL)


def test_two_people_see_one_safety_number(alice, bob):
    """Both see the same twelve groups, and who has compared them sees a mark beside the name."""
    alice.address(bob.key)
    bob.address(alice.key)
    numbers = []
    for person in (alice, bob):
        person.page.click("#person")
        expect(person.page.locator("#safety-number span")).to_have_count(12)
        numbers.append(person.page.locator("#safety-number span").all_text_contents())
    alice.page.check("#verified")
    alice.page.click("#person-close")

    assert numbers[0] == numbers[1]
    expect(alice.page.locator("#person-name")).to_contain_text("compared")


def test_own_label_wins_over_what_somebody_says(room, nodes, bob):
    """A label stays when the person changes the name; two people of one name are told apart."""
    alice, eve = room.person(nodes[0]), room.person(nodes[0])
    for person, text in ((alice, "I am the true one"), (eve, "no, I am")):
        person.call_self("Ada")
        person.address(bob.key)
        person.write(text)
        bob.hears_from("Ada", text)
    expect(bob.page.locator("#stranger-text")).to_contain_text("Somebody else goes by this name")
    bob.page.click("#person")
    bob.page.fill("#label", "Eve")
    bob.page.locator("#label").blur()
    bob.page.click("#person-close")
    eve.page.click("#invite")
    eve.call_self("Ada the second")
    eve.page.click("#invite-close")
    eve.write("renamed")

    bob.sees("renamed")
    expect(bob.page.locator("#person-name")).to_have_text("Eve")
    expect(bob.page.locator("#person-note")).to_have_text("says: Ada the second")


def test_deleted_messages_are_gone_and_people_stay(room, nodes, bob):
    """After "Delete all messages" no text and no file is in the database, and the list still has everybody."""
    alice = room.person(nodes[0])
    alice.address(bob.key)
    alice.page.set_input_files("#file", {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"under the stone"})
    alice.write("the safe is 4711")
    alice.learns(*ARRIVED)
    expect(alice.page.locator("#log .out")).to_have_count(2)
    alice.settings()
    alice.page.click("#clear-history")
    alice.page.click("#question-yes")
    expect(alice.page.locator(".conversation")).to_contain_text("Nothing written yet")

    stored = alice.ask(READ_ALL)
    assert [secret for secret in ("the safe is 4711", "under the stone", "plan.txt") if secret in stored] == []
    assert bob.key in stored


def test_deleted_conversation_is_gone(room, nodes, bob):
    """After "Delete conversation" and a reload neither list nor database knows of it."""
    alice = room.person(nodes[0])
    alice.address(bob.key)
    alice.write("to be forgotten")
    alice.learns(*ARRIVED)
    alice.page.click("#person")
    alice.page.click("#forget")
    alice.page.click("#question-yes")
    expect(alice.page.locator(".conversation")).to_have_count(0)
    alice.page.reload()
    alice.connected()

    assert alice.page.locator(".conversation").count() == 0
    assert "to be forgotten" not in alice.ask(READ_ALL)
