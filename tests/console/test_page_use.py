"""Who can use the page, by keyboard or on a phone, and what it makes of keys, servers and hostile contents."""

import itertools
import json
import random
import re

import pytest
from playwright.sync_api import expect

from tests.console.build import NOBODY, PATIENCE_MS, PHONE, page_of, photograph
from waystation.core.ids import encode_id52
from waystation.protocols.merk.keys import Keys

pytestmark = pytest.mark.browser

FOCUS = """() => {
  const at = document.activeElement;
  const shown = at.type === "radio" && at.nextElementSibling.textContent.length < 12 ? at.nextElementSibling : at;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  return { id: at.id || at.name || at.textContent.trim(), outline: `${outlineStyle} ${parseFloat(outlineWidth)}` };
}"""
CONTROLS = """() => [...document.querySelectorAll("a, button, summary, input, textarea")].filter((one) =>
  one.checkVisibility() && !one.disabled && !(one.type === "radio" && !one.checked)).length"""
SMALL_TARGETS = """() => [...document.querySelectorAll(
  "button, summary, input, textarea, .download, .choices label, .servers label")]
  .filter((one) => one.type !== "radio" && one.checkVisibility())
  .map((one) => [one.id || one.textContent.trim(), one.getBoundingClientRect()])
  .filter(([, box]) => box.height < 43.9 || box.width < 43.9)
  .map(([name, box]) => `${name}: ${box.width} x ${box.height}`)"""
SEND_HOSTILE = """async ([to, text, name]) => {
  const { MerkClient } = await import("/sdk/merk.js");
  const client = await MerkClient.open({ identity: "hostile" });
  await client.connect(`ws://${location.host}/merk`);
  await client.whenReady();
  const sent = [await client.sendText(to, text), await client.sendFile(to, new Blob([text]), { name })];
  const outcomes = await Promise.all(sent.map(({ outcome }) => outcome));
  await client.close();
  return outcomes.map((outcome) => outcome.name);
}"""
SEND_NESTED = """async ([to, text]) => {
  const { MerkClient } = await import("/sdk/merk.js");
  const client = await MerkClient.open({ identity: "hostile" });
  await client.connect(`ws://${location.host}/merk`);
  await client.whenReady();
  const { outcome } = await client.sendJson(to, JSON.parse(text));
  const { name } = await outcome;
  await client.close();
  return [name];
}"""
TRY_FORBIDDEN = """() => new Promise((done) => {
  const refused = [];
  addEventListener("securitypolicyviolation", ({ violatedDirective }) => {
    refused.push(violatedDirective);
    if (refused.length === 4) done(refused.sort());
  });
  const attempt = (action) => { try { action(); } catch { return; } };
  attempt(() => { document.body.innerHTML = "<p>gone</p>"; });
  attempt(() => { document.createElement("script").textContent = "window.broken = 1"; });
  fetch("http://127.0.0.1:9/").catch(() => {});
  new Image().src = "http://127.0.0.1:9/x.png";
})"""
MARKUP = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'><svg onload='window.broken = 1'></svg>"
    "<a href='javascript:window.broken = 1'>x</a></p></li></ol><style>*{display:none}</style>\u202egnp.exe"
)


def test_keyboard_alone_is_enough(room, nodes, bob):
    """Someone without a pointer begins in the form, walks it in order, sees where they are, and sends."""
    alice = room.person(nodes[0])
    press = alice.page.keyboard.press
    press("Tab")
    alice.page.keyboard.insert_text(bob.key)
    expect(alice.page.locator("#to-note")).to_contain_text("can be encrypted")
    walked = [alice.ask(FOCUS)]
    for _ in range(2):
        press("Tab")
        walked.append(alice.ask(FOCUS))
    alice.page.keyboard.insert_text("typed, not clicked")
    for _ in range(2):
        press("Tab")
        walked.append(alice.ask(FOCUS))
    press("Enter")

    assert [step["id"] for step in walked] == ["to", "kind", "text", "mode", "send"]
    assert [step["outline"] for step in walked] == ["solid 3"] * 5
    bob.sees("typed, not clicked")
    alice.learns("Delivered")


def test_arrow_keys_choose_and_control_enter_sends(alice, bob):
    """Choices follow the arrow keys, and Ctrl + Enter sends from within the message."""
    alice.address(bob.key)
    alice.page.focus("input[name=mode]:checked")
    alice.page.keyboard.press("ArrowRight")
    alice.page.fill("#text", "signed by arrow")
    alice.page.keyboard.press("Control+Enter")

    expect(bob.sees("signed by arrow").locator("header")).to_contain_text("signed")


def test_every_control_can_be_reached_and_seen(room, nodes):
    """The Tab key visits every control once and comes round, and each shows that it has the focus."""
    alice = room.person(nodes[0])
    alice.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    wanted = alice.ask(CONTROLS)
    seen = []
    for _ in range(wanted):
        alice.page.keyboard.press("Tab")
        seen.append(alice.ask(FOCUS))

    assert not [step for step in seen if step["outline"] != "solid 3"]
    assert len({step["id"] for step in seen}) == wanted


def test_dialog_keeps_the_focus_and_gives_it_back(alice):
    """A question takes the focus, Escape answers no, and the focus returns to where it was."""
    before = alice.key
    alice.page.evaluate("document.querySelectorAll('#you details').forEach((one) => { one.open = true; })")
    alice.page.focus("#new-identity")
    alice.page.keyboard.press("Enter")
    expect(alice.page.locator("#question")).to_be_visible()
    expect(alice.page.get_by_role("button", name="Cancel")).to_be_focused()
    alice.page.keyboard.press("Escape")

    expect(alice.page.locator("#new-identity")).to_be_focused()
    assert alice.key == before


def test_nothing_is_wider_than_the_screen(room, nodes):
    """Whatever comes, the page never scrolls sideways."""
    alice = room.person(nodes[0])
    alice.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    alice.page.fill("#server-address", "wss://" + "a" * 180 + ".example/merk")
    alice.page.get_by_role("button", name="Add", exact=True).click()
    alice.address(alice.key)
    alice.write("w" * 3_000)
    alice.sees("w" * 3_000)
    alice.write('{"' + "k" * 400 + '": 1}', kind="json")
    alice.sees("k" * 400)
    alice.choose("kind", "file")
    alice.page.set_input_files("#file", {"name": "n" * 200 + ".bin", "mimeType": "x/y", "buffer": b"1"})
    alice.page.click("#send")
    alice.sees("n" * 116)
    widths = {}
    for width in (320, 360, 390, 768, 960, 1280):
        alice.page.set_viewport_size({"width": width, "height": 640})
        widths[width] = alice.ask("document.documentElement.scrollWidth")

    assert widths == {width: width for width in widths}


def test_fingers_hit_what_they_aim_at(room, nodes):
    """On a phone every control measures at least 44 by 44 pixels (WCAG 2.2, 2.5.5)."""
    alice = room.person(nodes[0], viewport=PHONE, has_touch=True, is_mobile=True)
    alice.address(alice.key)
    alice.write("to myself")
    alice.sees("to myself")
    alice.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert alice.ask(SMALL_TARGETS) == []


def test_key_is_asked_for_only_where_it_is_needed(alice):
    """Whoever encrypts to an unknown key may type its agreement key; whoever only signs is not asked for one."""
    alice.page.fill("#to", NOBODY)
    expect(alice.page.get_by_label("Their agreement key")).to_be_visible()
    alice.choose("mode", "signed")

    expect(alice.page.get_by_label("Their agreement key")).to_be_hidden()
    expect(alice.page.locator("#to-note")).to_be_empty()


def test_agreement_key_can_be_typed(alice, bob):
    """An agreement key given by hand is enough to encrypt, and a wrong one is refused with a sentence."""
    alice.page.fill("#to", NOBODY)
    alice.page.get_by_label("Their agreement key").fill("12")
    alice.write("by hand")
    expect(alice.page.locator("#compose-error")).not_to_be_empty()
    alice.page.get_by_label("Their agreement key").fill(bob.page.locator("#key-agreement").text_content())
    alice.page.click("#send")

    alice.learns("Not delivered")


PLACES = """() => [...document.querySelectorAll(
  "a, button, input:not([type=radio]), textarea, .choices, section > details > summary")]
  .filter((one) => one.checkVisibility())
  .map((one) => { const { x, y } = one.getBoundingClientRect(); return [x, y + scrollY]; })"""


def test_phone_begins_with_what_people_came_for(room, nodes):
    """On a phone come the form, the messages, and one line for each setting; the Tab key goes the same way down."""
    alice = room.person(nodes[0], viewport=PHONE, has_touch=True, is_mobile=True)
    tops = alice.ask("""() => ["write", "messages", "you", "server", "mesh"].map(
        (id) => document.getElementById(id).getBoundingClientRect()).map(({ top, height }) => [top, height])""")
    downwards = [top for _, top in alice.ask(PLACES)]

    assert [top for top, _ in tops] == sorted(top for top, _ in tops)
    assert all(height < 80 for _, height in tops[2:4])
    assert all(after > before - 40 for before, after in itertools.pairwise(downwards))
    expect(alice.page.locator("#state-short")).to_have_text("Connected")
    expect(alice.page.locator("#keys-note")).to_be_hidden()
    alice.page.click("#you-title")
    expect(alice.page.locator("#copy-link")).to_be_visible()


def test_desk_shows_the_settings_beside_the_messages(alice):
    """On a wide screen the settings stand open to the right, which is where the Tab key goes after the messages."""
    left, right = (alice.page.locator(one).bounding_box() for one in (".talk", ".settings"))
    columns = [x >= right["x"] for x, _ in alice.ask(PLACES)]

    assert left["x"] + left["width"] < right["x"]
    assert columns == sorted(columns)
    expect(alice.page.locator("#copy-link")).to_be_visible()
    expect(alice.page.locator("#connect")).to_be_visible()


def test_message_to_nowhere_is_prepared(alice):
    """The hint's button writes signed to a key that nobody has; the protection chosen before comes back after it."""
    alice.page.get_by_role("button", name="Write to nowhere").click()
    expect(alice.page.locator("#send")).to_be_focused()
    expect(alice.page.locator("input[name=mode][value=signed]")).to_be_checked()
    alice.page.keyboard.press("Enter")

    alice.learns("Not delivered")
    expect(alice.page.locator("#log .out header")).to_contain_text("text, signed")
    expect(alice.page.locator("input[name=mode][value=encrypted]")).to_be_checked()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_light(room, nodes, scheme):
    """By night the page is dark, by day it is light."""
    alice = room.person(nodes[0], color_scheme=scheme, viewport=PHONE)
    ground = alice.ask("getComputedStyle(document.body).backgroundColor")
    photograph(alice, f"phone-{scheme}")

    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert (brightness > 200) == (scheme == "light")


def test_hostile_contents_stay_text(alice, bob):
    """Markup in a text or a file name is shown as it is, runs nothing, and a name leads to no folder."""
    name = "../../.bashrc<img src=x onerror=window.broken=1>\u202egnp.exe"
    outcomes = bob.ask(SEND_HOSTILE, [alice.key, MARKUP, name])
    alice.sees("<script>window.broken = 1</script>")
    link = alice.page.get_by_role("link", name="Save file")
    with alice.page.expect_download() as download:
        link.click()

    assert outcomes == ["accepted", "accepted"]
    assert alice.ask("window.broken") is None
    assert alice.page.locator("#log script, #log img, #log svg, #log style, #log a:not([download])").count() == 0
    assert alice.page.locator("#log .in .body").last.text_content() == MARKUP
    assert link.get_attribute("download") == "bashrcimg src=x onerror=window.broken=1gnp.exe"
    assert ".." not in download.value.suggested_filename
    assert alice.page.locator("#log .file-name").first.text_content() == link.get_attribute("download")


def test_nested_json_is_shown_as_it_came(alice, bob):
    """Indented, a value nested a thousand deep would be a thousand times its size."""
    nested = "[" * 1_200 + '"deep"' + "]" * 1_200
    outcomes = bob.ask(SEND_NESTED, [alice.key, nested])
    shown = alice.sees('"deep"').locator("pre")

    assert outcomes == ["accepted"]
    assert shown.text_content() == nested


def test_policy_is_kept_by_the_browser(room, alice):
    """No text becomes markup or a program, and nothing is loaded from elsewhere, whoever asks."""
    refused = alice.ask(TRY_FORBIDDEN)
    room.problems.clear()

    assert refused == ["connect-src", "img-src", "require-trusted-types-for", "require-trusted-types-for"]
    assert alice.ask("window.broken") is None


@pytest.mark.parametrize("form", ["hex", "upper", "spaced", "id52", "link"])
def test_key_is_taken_in_any_form(nodes, alice, bob, form):
    """A key may come as hexadecimal digits, with blanks, as id52 or as somebody's link."""
    key = bob.key
    forms = {
        "hex": key,
        "upper": key.upper(),
        "spaced": " ".join(key[at : at + 8] for at in range(0, 64, 8)),
        "id52": encode_id52(bytes.fromhex(key)),
        "link": f"{page_of(nodes[1])}#to={key}",
    }
    alice.address(forms[form])
    alice.write(f"found by {form}")

    bob.sees(f"found by {form}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Who should get it?"),
        ("12ab", "this has 4"),
        ("0" * 64, "This is no key"),
        ("hello there", "This is no key"),
    ],
)
def test_wrong_key_is_explained(alice, text, sentence):
    """What is no key is refused with one sentence, the line is marked, and the focus goes there."""
    alice.page.fill("#to", text)
    alice.write("lost?")

    expect(alice.page.locator("#to-note")).to_contain_text(sentence)
    expect(alice.page.locator("#compose-error")).to_be_empty()
    expect(alice.page.locator("#to")).to_be_focused()
    expect(alice.page.locator("#to")).to_have_attribute("aria-invalid", "true")
    assert alice.page.input_value("#text") == "lost?"


def test_wrong_json_is_explained(alice):
    """What is not JSON stays in its field, with the parser's reason."""
    alice.address(alice.key)
    alice.write("{half", kind="json")

    expect(alice.page.locator("#compose-error")).to_contain_text("This is not JSON")
    assert alice.page.input_value("#text") == "{half"


def test_shown_forms_of_the_key_agree(room, nodes, alice):
    """The id52 that the page shows is that of the key, and the link to share opens a page that writes to it."""
    alice.page.click("#copy-link")
    expect(alice.page.locator("#copy-link")).to_have_text("Copied")
    link = alice.ask("navigator.clipboard.readText()")
    bob = room.person(nodes[0], fragment=link.removeprefix(page_of(nodes[0])))

    assert alice.page.locator("#key-id52").text_content() == encode_id52(bytes.fromhex(alice.key))
    assert link == f"{page_of(nodes[0])}#to={alice.key}"
    assert bob.page.input_value("#to") == alice.key
    expect(bob.page.locator("#text")).to_be_focused()


def test_second_person_has_an_identity_of_its_own(room, nodes, alice):
    """The hint opens a tab that is somebody else and can write to the first at once."""
    second = room.tab(alice.page.context, nodes[0], fragment=alice.page.get_attribute("#second-person", "href")[1:])
    expect(second.page.locator("#to-note")).to_contain_text("can be encrypted")
    second.write("from my other self")

    assert second.key != alice.key
    alice.sees("from my other self")


def test_upstream_key_file_is_imported(room, nodes, tmp_path):
    """A key file of the original client takes the identity's place after a question, and survives a reload."""
    alice = room.person(nodes[0])
    keys = Keys.generate(random.Random(5))
    path = tmp_path / "keys.json"
    path.write_text(keys.export_json())
    alice.page.set_input_files("#import-file", path)
    alice.page.get_by_role("button", name="Import", exact=True).click()
    expect(alice.page.locator("#key-hex")).to_have_text(keys.signing.public.hex(), timeout=PATIENCE_MS)
    alice.connected()

    assert alice.page.locator("#key-agreement").text_content() == keys.agreement_public.hex()


def test_wrong_key_file_changes_nothing(room, nodes, tmp_path):
    """A file that holds no keys is refused with a sentence, and the identity stays."""
    alice = room.person(nodes[0])
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"publicKey": "AAAA"}))
    room.is_down_expected = True
    before = alice.key
    alice.page.set_input_files("#import-file", path)
    alice.page.get_by_role("button", name="Import", exact=True).click()
    expect(alice.page.locator("#notices .notice")).to_have_count(1)
    alice.page.reload()
    alice.connected()

    assert alice.key == before


def test_servers_are_added_chosen_and_removed(room, nodes):
    """A second server can be added, used and taken out, and wrong addresses are explained."""
    alice = room.person(nodes[0])
    other = page_of(nodes[1]).replace("http", "ws") + "merk"
    alice.page.fill("#server-address", "http://example.org")
    alice.page.get_by_role("button", name="Add", exact=True).click()
    expect(alice.page.locator("#server-error")).to_contain_text("ws")
    alice.page.fill("#server-address", other)
    alice.page.get_by_role("button", name="Add", exact=True).click()
    alice.page.check(f"#servers input[value='{other}']")
    alice.page.get_by_role("button", name="Switch to the chosen server").click()
    expect(alice.page.locator("#state-text")).to_contain_text(f"Connected to {other}")
    alice.page.reload()
    alice.connected()
    expect(alice.page.locator("#state-text")).to_contain_text(f"Connected to {other}")
    alice.page.get_by_role("button", name=f"Remove {other}").click()

    expect(alice.page.locator(f"#servers input[value='{other}']")).to_have_count(0)


def test_connection_can_be_ended_and_begun(room, nodes):
    """Whoever disconnects stays so and can send nothing, until they connect again."""
    alice = room.person(nodes[0])
    alice.page.get_by_role("button", name="Disconnect").click()
    expect(alice.page.locator("#state")).to_have_attribute("data-phase", "idle")
    alice.page.fill("#to", NOBODY)
    alice.write("into the void")
    expect(alice.page.locator("#compose-error")).to_contain_text("no connection")
    alice.page.get_by_role("button", name="Connect", exact=True).click()
    alice.connected()

    assert alice.page.input_value("#text") == "into the void"


def test_mesh_is_told_in_a_picture_and_in_words(nodes, alice):
    """Both nodes and their link are drawn, and said."""
    other = nodes[1].ready["node"]["public_key"]

    expect(alice.page.locator("#mesh-list li")).to_have_count(1)
    expect(alice.page.locator("#mesh-list")).to_contain_text(other[:8])
    expect(alice.page.locator("#mesh-summary")).to_contain_text("linked with 1 node")
    expect(alice.page.locator("#mesh-picture circle")).to_have_count(2)
    expect(alice.page.locator("#mesh-picture line")).to_have_count(1)


def test_mesh_is_remembered_while_nobody_tells_it(room, alice):
    """When the node does not answer, the picture stays and is said to be old; the server's state says the rest."""
    room.is_down_expected = True
    alice.page.route("**/merk-mesh.json", lambda route: route.abort("connectionrefused"))
    alice.ask("document.dispatchEvent(new Event('visibilitychange'))")
    expect(alice.page.locator("#mesh-summary")).to_contain_text("When it last answered: This page comes from node")
    alice.page.unroute_all()
    alice.ask("document.dispatchEvent(new Event('visibilitychange'))")

    expect(alice.page.locator("#mesh-summary")).to_have_text(re.compile("^This page comes from node"))
    expect(alice.page.locator("#mesh-picture circle")).to_have_count(2)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\evil.exe", "evil.exe"),
        (".bashrc", "bashrc"),
        ("a\u0000b\nc\u202etxt.exe", "abctxt.exe"),
        ("..", "file"),
        ("", "file"),
        ("Grüße 手紙.txt", "Grüße 手紙.txt"),
        ("x" * 300 + ".txt", "x" * 116 + ".txt"),
    ],
)
def test_file_name_is_tamed(alice, given, safe):
    """A name to save under has no folder, nothing invisible, no leading dot, and keeps its ending."""
    said = alice.ask("async (name) => (await import('/page/format.js')).safeFileName(name)", given)

    assert said == safe
