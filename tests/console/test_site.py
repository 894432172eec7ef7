"""Which files a node gives to browsers, and what it tells them about each."""

import re

import pytest

from waystation.console.site import CONTENT_SECURITY_POLICY, StaticSite


@pytest.fixture(scope="module")
def site():
    """The site of the package."""
    return StaticSite()


@pytest.fixture
def folder(tmp_path):
    """A small site of two folders."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text("<!doctype html>")
    (tmp_path / "sdk/inner").mkdir(parents=True)
    (tmp_path / "sdk/merk.js").write_text("export {}")
    (tmp_path / "sdk/inner/LICENSE").write_text("free")
    return tmp_path


def headers(answer):
    """Return the headers of an answer by name."""
    assert len(dict(answer.headers)) == len(answer.headers)
    return dict(answer.headers)


def test_root_is_the_page(site):
    """The root gives the page, as HTML."""
    answer = site.answer("/")

    assert answer.status == 200
    assert headers(answer)["Content-Type"] == "text/html; charset=utf-8"
    assert answer.body.startswith(b"<!doctype html>")


def test_query_changes_nothing(site):
    """A link with a query leads to the same page."""
    assert site.answer("/?from=mail") == site.answer("/")


@pytest.mark.parametrize(
    "path", ["", "/page", "/page/", "/sdk/../page/index.html", "/page/%2e%2e/site.py", "/sdk/none.js", "//", "/merk"]
)
def test_path_without_a_file_is_not_ours(site, path):
    """Nothing but the exact path of a file is answered."""
    assert site.answer(path) is None


def test_policy_of_the_page_names_no_other_place(site):
    """The page runs its own scripts and styles only, never turns text into markup, and stands in no frame."""
    rules = dict(rule.split(" ", 1) for rule in headers(site.answer("/"))["Content-Security-Policy"].split("; "))

    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": "'self' ws: wss:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_page_is_kept_from_other_origins(site):
    """No other site shares a process with the page, reads it, or learns who came from it."""
    told = headers(site.answer("/page/app.js"))

    assert told["Cross-Origin-Opener-Policy"] == "same-origin"
    assert told["Cross-Origin-Resource-Policy"] == "same-origin"
    assert told["X-Content-Type-Options"] == "nosniff"
    assert told["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in told


def test_sdk_may_be_imported_from_anywhere(folder):
    """The SDK is for other sites too, and always asked for anew."""
    told = headers(StaticSite(folder).answer("/sdk/merk.js"))

    assert told["Access-Control-Allow-Origin"] == "*"
    assert told["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert told["Content-Type"] == "text/javascript; charset=utf-8"
    assert told["Cache-Control"] == "no-cache"
    assert told["Content-Security-Policy"] == CONTENT_SECURITY_POLICY


def test_sdk_under_its_hash_is_kept_for_ever(folder):
    """The path with the hash gives the same bytes, and a browser need not ask twice."""
    site = StaticSite(folder)
    pinned = site.answer(f"/sdk/{site.sdk_hash}/merk.js")

    assert pinned.body == site.answer("/sdk/merk.js").body
    assert "immutable" in headers(pinned)["Cache-Control"]


@pytest.mark.parametrize("change", ["sdk/merk.js", "sdk/inner/LICENSE", "sdk/new.js"])
def test_hash_changes_with_any_file(folder, change):
    """Another SDK has another path, whichever of its files is another, and the old path is gone."""
    before = StaticSite(folder)
    (folder / change).write_text("export const other = 1")
    after = StaticSite(folder)

    assert after.sdk_hash != before.sdk_hash
    assert after.answer(f"/sdk/{before.sdk_hash}/merk.js") is None


def test_hash_does_not_change_with_the_page(folder):
    """What the page looks like is nothing to those who import the SDK."""
    before = StaticSite(folder)
    (folder / "page/index.html").write_text("<!doctype html><p>other")

    assert StaticSite(folder).sdk_hash == before.sdk_hash


def test_page_names_its_parts_by_paths_that_never_change(site):
    """What the page loads, and what those load, may be kept for ever: a second visit asks for one file."""
    page = site.answer("/")
    named = [path for path in re.findall(r'"(/[a-z]+/[^"]+)"', page.body.decode()) if not path.startswith("/#")]
    scripts = [path for path in named if "/page/" in path and path.endswith(".js")]
    imported = re.findall(r'import\("([^"]+)"\)', site.answer(scripts[0]).body.decode())

    assert headers(page)["Cache-Control"] == "no-cache"
    assert len(named) >= 4 and imported == [f"/sdk/{site.sdk_hash}/merk.js"]
    assert all("immutable" in headers(site.answer(path))["Cache-Control"] for path in named + imported)


def test_page_has_other_paths_with_another_sdk(folder):
    """A page is never mixed from two versions."""
    (folder / "page/index.html").write_text('<script src="/page/app.js"></script>')
    before = StaticSite(folder).answer("/").body
    (folder / "sdk/merk.js").write_text("export const other = 1")

    assert StaticSite(folder).answer("/").body != before


def test_file_of_an_unknown_kind_is_plain_text(folder):
    """A licence is shown, never run."""
    assert headers(StaticSite(folder).answer("/sdk/inner/LICENSE"))["Content-Type"] == "text/plain; charset=utf-8"


def test_files_are_read_once(folder):
    """A GET touches no disk: what is changed later is seen after the next start."""
    site = StaticSite(folder)
    (folder / "page/index.html").unlink()

    assert site.answer("/").body == b"<!doctype html>"
