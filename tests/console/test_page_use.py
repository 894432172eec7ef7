"""Who can use the page, by keyboard or on a phone, and what it makes of keys, servers and hostile contents."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.build import ARRIVED, NOBODY, PATIENCE_MS, PHONE, page_of, photograph
from waystation.core.ids import encode_id52

pytestmark = pytest.mark.browser

FOCUS = """() => {
  const at = document.activeElement;
  if (at === document.body) return null;
  const shown = at.type === "radio" && at.nextElementSibling.textContent.length < 12 ? at.nextElementSibling : at;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  return { id: at.id || at.name || at.textContent.trim(), outline: `${outlineStyle} ${parseFloat(outlineWidth)}` };
}"""
CONTROLS = """() => [...document.querySelectorAll("a, button, summary, input, textarea, #scroller")].filter((one) =>
  one.checkVisibility() && !one.disabled && !(one.type === "radio" && !one.checked)).length"""
SMALL_TARGETS = """() => [...document.querySelectorAll(
  "button, summary, input, textarea, .choices label, .servers label, .check")]
  .filter((one) => one.checkVisibility() && !["radio", "checkbox"].includes(one.type))
  .map((one) => [one.id || one.textContent.trim(), one.getBoundingClientRect(), one.matches(".mark") ? 24 : 43.9])
  .filter(([, box, least]) => box.height < least || box.width < least)
  .map(([name, box]) => `${name}: ${box.width} x ${box.height}`)"""
WIDER = """() => [...document.querySelectorAll(
  "html, .app, main, #log, #scroller, .settings-inner, .welcome, .side, #compose")]
  .filter((one) => one.checkVisibility())
  .filter((one) => one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.id || one.className || one.tagName)"""
SEND_HOSTILE = """async ([to, text, name]) => {
  const { MerkClient } = await import("/sdk/merk.js");
  const client = await MerkClient.open({ identity: "hostile" });
  await client.connect(`ws://${location.host}/merk`);
  await client.whenReady();
  const sent = [await client.sendJson(to, { "merk.person": { name: "<b>Eve</b>\\n\\u202egnp.exe" } }),
    await client.sendText(to, text), await client.sendFile(to, new Blob([text]), { name })];
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
    """Someone without a pointer pastes a key, writes, presses the keys that other messengers know.

    And reads the answer.
    """
    alice = room.person(nodes[0])
    press, type_ = alice.page.keyboard.press, alice.page.keyboard.insert_text
    alice.page.focus("#settings-open")
    press("Tab")
    type_(bob.key)
    press("Enter")
    expect(alice.page.locator("#text")).to_be_focused()
    expect(alice.page.locator("#thread")).to_have_attribute("data-key", "found", timeout=PATIENCE_MS)
    type_("first line")
    press("Shift+Enter")
    type_("second line")
    press("Enter")
    entry = bob.hears_from(alice.nameless, "second line")
    bob.write("read by ear")

    alice.sees("read by ear")
    assert entry.locator(".body").text_content() == "first line\nsecond line"
    press("Escape")
    expect(alice.page.locator("#conversations button").first).to_be_focused()
    press("Enter")
    expect(alice.page.locator("#text")).to_be_focused()


def test_list_is_walked_by_arrow_keys(room, nodes, bob):
    """Up and Down go from conversation to conversation."""
    alice = room.person(nodes[0])
    for key in (alice.key, bob.key):
        alice.address(key)
        alice.write("to be listed")
        alice.learns(*ARRIVED)
    alice.learns("read")  # the last news: the list keeps its order from here on
    alice.page.locator(".conversation").first.focus()
    alice.page.keyboard.press("ArrowDown")
    expect(alice.page.locator(".conversation").last).to_be_focused()
    alice.page.keyboard.press("ArrowUp")

    expect(alice.page.locator(".conversation").first).to_be_focused()


def test_screen_reader_hears_what_comes(alice, bob):
    """New messages stand in a polite log, named by who speaks; those of other conversations are announced."""
    alice.address(bob.key)
    bob.address(alice.key)
    bob.starts_over()
    alice.write("can you hear me")
    expect(bob.page.locator("#announcer")).to_contain_text(f"A message from {alice.nameless}", timeout=PATIENCE_MS)
    entry = bob.hears_from(alice.nameless, "can you hear me")

    assert bob.page.get_by_role("log").get_attribute("aria-live") == "polite"
    assert entry.locator(".hidden").first.text_content() == f"{alice.nameless}: "
    expect(bob.page.get_by_role("main")).to_be_visible()
    expect(bob.page.get_by_role("complementary", name="Conversations")).to_be_visible()


def test_every_control_can_be_reached_and_seen(room, nodes):
    """The Tab key visits every control of a screen once and comes round, and each shows that it has the focus."""
    alice = room.person(nodes[0])
    for prepare in (lambda: alice.address(alice.key), alice.settings):
        prepare()
        alice.page.evaluate("document.activeElement.blur()")
        wanted = alice.ask(CONTROLS)
        seen = []
        for _ in range(wanted + 1):  # once on the way it is the browser's own turn
            alice.page.keyboard.press("Tab")
            seen.append(alice.ask(FOCUS))
        seen = [step for step in seen if step]
        assert not [step for step in seen if step["outline"] != "solid 3"]
        assert len({step["id"] for step in seen}) == wanted


def test_dialog_keeps_the_focus_and_gives_it_back(alice):
    """A question takes the focus, Escape answers no, and the focus returns to where it was."""
    before = alice.key
    alice.settings()
    alice.page.focus("#new-identity")
    alice.page.keyboard.press("Enter")
    expect(alice.page.locator("#question")).to_be_visible()
    expect(alice.page.locator("#question").get_by_role("button", name="Cancel")).to_be_focused()
    alice.page.keyboard.press("Escape")

    expect(alice.page.locator("#new-identity")).to_be_focused()
    assert alice.key == before


def test_nothing_is_wider_than_the_screen(room, nodes):
    """Whatever comes, the page never scrolls sideways."""
    alice = room.person(nodes[0])
    alice.call_self("n" * 60)
    alice.address(alice.key)
    alice.write("w" * 3_000)
    alice.sees("w" * 3_000)
    alice.write('{"' + "k" * 400 + '": 1}', json=True)
    alice.sees("k" * 400)
    alice.page.set_input_files("#file", {"name": "n" * 200 + ".bin", "mimeType": "x/y", "buffer": b"1"})
    widths = measured(alice)
    alice.page.press("#text", "Enter")
    alice.sees("n" * 116)
    widths |= measured(alice)
    alice.page.set_viewport_size({"width": 1280, "height": 640})
    alice.settings()
    alice.page.fill("#server-address", "wss://" + "a" * 180 + ".example/merk")
    alice.page.get_by_role("button", name="Add", exact=True).click()
    widths |= measured(alice)
    alice.page.click("#settings-back")
    widths |= measured(alice)

    assert not widths


def measured(person):
    """Return at which widths of the screen something is wider."""
    wide = set()
    for width in (320, 360, 390, 768, 1280):
        person.page.set_viewport_size({"width": width, "height": 640})
        if person.ask(WIDER):
            wide.add((width, *person.ask(WIDER)))
    return wide


def test_fingers_hit_what_they_aim_at(room, nodes):
    """On a phone every control measures 44 by 44 pixels, a mark in a message 24 (WCAG 2.2, 2.5.5 and 2.5.8)."""
    alice = room.person(nodes[0], viewport=PHONE, has_touch=True, is_mobile=True)
    small = alice.ask(SMALL_TARGETS)
    alice.address(alice.key)
    alice.write("to myself")
    alice.sees("to myself")
    alice.page.click("#more")
    small += alice.ask(SMALL_TARGETS)
    alice.page.click("#person")
    small += alice.ask(SMALL_TARGETS)
    alice.page.click("#person-close")
    alice.page.click("#back")
    alice.settings()
    small += alice.ask(SMALL_TARGETS)

    assert small == []


def test_agreement_key_can_be_given_by_hand(room, nodes, bob):
    """An agreement key given by hand is enough to encrypt, and a wrong one is refused with a sentence."""
    alice = room.person(nodes[0])
    alice.page.fill("#to", NOBODY)
    alice.page.press("#to", "Enter")
    alice.page.click("#person")
    alice.page.click("#person-dialog summary")
    alice.page.fill("#agreement", "12")
    alice.page.locator("#agreement").blur()
    expect(alice.page.locator("#agreement-note")).to_contain_text("64")
    alice.page.fill("#agreement", bob.page.locator("#key-agreement").text_content())
    alice.page.locator("#agreement").blur()
    alice.page.click("#person-close")
    alice.write("by hand")
    alice.learns("failed")

    expect(alice.page.locator("#log .trouble")).not_to_contain_text("encryption key")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_light(room, nodes, scheme):
    """By night the page is dark, by day it is light."""
    alice = room.person(nodes[0], color_scheme=scheme, viewport=PHONE)
    ground = alice.ask("getComputedStyle(document.body).backgroundColor")
    photograph(alice, f"phone-{scheme}")

    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert (brightness > 200) == (scheme == "light")


def test_hostile_contents_stay_text(room, nodes, bob):
    """Markup in a name, a text, a file name or a key of JSON is shown as it is, runs nothing.

    And a name leads to no folder.
    """
    alice = room.person(nodes[0])
    name = "../../.bashrc<img src=x onerror=window.broken=1>\u202egnp.exe"
    outcomes = bob.ask(SEND_HOSTILE, [alice.key, MARKUP, name])
    alice.page.locator(".conversation").click()
    alice.sees("<script>window.broken = 1</script>")
    press = alice.page.get_by_role("button", name="Save")
    with alice.page.expect_download() as download:
        press.first.click()

    assert set(outcomes) <= set(ARRIVED) and len(outcomes) == 3
    assert alice.ask("window.broken") is None
    assert alice.page.locator("#log script, #log .body img, #log .body svg, #log style, #log a").count() == 0
    assert alice.page.locator("#log .body").first.text_content() == MARKUP
    assert download.value.suggested_filename == "bashrcimg src=x onerror=window.broken=1gnp.exe"
    assert alice.page.locator("#log .file-name").first.text_content() == download.value.suggested_filename
    assert alice.page.locator("#person-name").text_content() == "<b>Eve</b> gnp.exe"
    assert alice.page.locator(".conversation script, .conversation b, #person b").count() == 0


def test_nested_json_is_shown_as_it_came(alice, bob):
    """Indented, a value nested a thousand deep would be a thousand times its size."""
    nested = "[" * 1_200 + '"deep"' + "]" * 1_200
    bob.ask(SEND_NESTED, [alice.key, nested])
    alice.page.locator(".conversation", has_text="[[[[").click(timeout=PATIENCE_MS)

    assert alice.sees('"deep"').locator("pre").text_content() == nested


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

    assert (
        alice.page.locator("#person-key").text_content() == ""
        or alice.page.locator(".conversation[aria-current]").get_attribute("data-key") == key
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Paste the link or key"),
        ("12ab", "this has 4"),
        ("0" * 64, "This is no key"),
        ("hello there", "This is no key"),
    ],
)
def test_wrong_key_is_explained(alice, text, sentence):
    """What is no key is refused with one sentence, the line is marked, and the focus goes there."""
    alice.page.fill("#to", text)
    alice.page.press("#to", "Enter")

    expect(alice.page.locator("#to-note")).to_contain_text(sentence)
    expect(alice.page.locator("#to")).to_be_focused()
    expect(alice.page.locator("#to")).to_have_attribute("aria-invalid", "true")


def test_wrong_json_is_explained(alice):
    """What is not JSON stays in its field, with the parser's reason."""
    alice.address(alice.key)
    alice.write("{half", json=True)

    expect(alice.page.locator("#compose-error")).to_contain_text("This is not JSON")
    assert alice.page.input_value("#text") == "{half"


def test_servers_are_added_chosen_and_removed(room, nodes):
    """A second server can be added, used and taken out, and wrong addresses are explained."""
    alice = room.person(nodes[0])
    alice.settings()
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
    alice.settings()
    expect(alice.page.locator("#state-text")).to_contain_text(f"Connected to {other}")
    alice.page.get_by_role("button", name=f"Remove {other}").click()

    expect(alice.page.locator(f"#servers input[value='{other}']")).to_have_count(0)


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
