"""What holds for the files of the page without running them."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "src/waystation/console/web/page"
SCRIPTS = {path.name: path.read_text() for path in sorted(PAGE.glob("*.js"))}
STYLE = (PAGE / "style.css").read_text()


class Markup(HTMLParser):
    """Every element of the page with its attributes."""

    def __init__(self):
        super().__init__()
        self.elements = []
        self.feed((PAGE / "index.html").read_text())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def of(self, *tags):
        """Return the attributes of each element of these kinds."""
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def markup():
    """The page's markup."""
    return Markup()


def test_nothing_stands_inline(markup):
    """The policy forbids it: no script without a file, no style element, no style or on... attribute."""
    assert all(script.get("src") for script in markup.of("script"))
    assert not markup.of("style")
    assert not [
        names for _, names in markup.elements if any(name == "style" or name.startswith("on") for name in names)
    ]


def test_everything_comes_from_this_node(markup):
    """Scripts, styles and pictures are loaded from the node itself."""
    loaded = [found.get("src") or found["href"] for found in markup.of("script", "img", "link")]

    assert loaded
    assert all(re.match(r"/(page|sdk)/", address) for address in loaded)
    assert not re.search(r"url\(|@import", STYLE)
    assert not [name for name, text in SCRIPTS.items() if re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_never_makes_markup_of_text(name):
    """Nothing that parses a text as markup or as a program is called."""
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc|javascript:"
    )

    assert not re.findall(forbidden, SCRIPTS[name])


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_short(name):
    """No script has over 300 lines."""
    assert SCRIPTS[name].count("\n") <= 300


def test_ids_are_unique_and_those_of_the_scripts(markup):
    """Each id stands once, and every element that a script asks for is there."""
    ids = [attributes["id"] for _, attributes in markup.elements if "id" in attributes]
    wanted = {name for text in SCRIPTS.values() for name in re.findall(r"(?:byId|setText)\(\"([\w-]+)\"", text)}

    assert len(ids) == len(set(ids))
    assert wanted <= set(ids)


def test_every_field_has_a_label(markup):
    """Whoever hears the page hears what each field is for."""
    named = {label["for"] for label in markup.of("label") if "for" in label}
    fields = [field for field in markup.of("input", "textarea", "select") if field.get("type") != "radio"]

    assert fields
    assert {field["id"] for field in fields} <= named


def test_references_lead_somewhere(markup):
    """Labels and descriptions point at elements that exist."""
    ids = {attributes["id"] for _, attributes in markup.elements if "id" in attributes}
    references = ("aria-labelledby", "aria-describedby", "for")
    pointed = {part for _, found in markup.elements for name in references for part in (found.get(name) or "").split()}

    assert pointed <= ids


def colours(text):
    """Return the named colours of a block of styles."""
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))


LIGHT, DARK = (colours(part) for part in STYLE.partition("prefers-color-scheme: dark")[::2])


def contrast(one, other):
    """Return the contrast of two colours; WCAG 2.2, "relative luminance" and "contrast ratio"."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "quiet", "accent", "good", "warn", "bad"])
@pytest.mark.parametrize("ground", ["paper", "raised", "sunken"])
def test_words_can_be_read(theme, ink, ground):
    """Words stand out from what they stand on, by day and by night (WCAG 2.2, 1.4.3)."""
    assert contrast(theme[ink], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_controls_can_be_seen(theme):
    """Edges of controls stand out from the paper, and words on filled buttons from their filling (WCAG 2.2, 1.4.11)."""
    assert contrast(theme["edge"], theme["paper"]) >= 3
    assert contrast(theme["edge"], theme["raised"]) >= 3
    assert contrast(theme["on-accent"], theme["accent"]) >= 4.5
    assert contrast(theme["ink"], theme["accent-wash"]) >= 4.5


def test_both_themes_name_the_same_colours():
    """No colour is forgotten in the dark."""
    assert LIGHT.keys() == DARK.keys()


def test_motion_can_be_refused():
    """Who asks for less motion gets none."""
    assert "prefers-reduced-motion: reduce" in STYLE
