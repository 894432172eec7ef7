"""Serves the files of ``console/web`` (the public page and the browser SDK) as answers to plain GETs.

``waystation serve`` gives ``answer`` to the node, whose web ports call it with a path. All files are read into a table
at start, so a GET never accesses the disk and its path is only a table key. The page may run only its own scripts and
styles. The browser refuses to insert text as markup (``require-trusted-types-for``). The SDK may be imported from any
origin.

Each file also has a path with the hash of all files, which browsers may cache for ever. The page uses these paths. So a
returning browser requests one file instead of forty, and never mixes two versions.

Spec: CSP Level 3; HTML 7.1.3 (opener policy); specs/merk.md 10.9.
"""

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from waystation.core.answers import HttpAnswer

__all__ = ["CONTENT_SECURITY_POLICY", "StaticSite"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self' ws: wss:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content policy of our pages; ``ws:`` because a user may connect to any relay."""

_HASH_HEX_DIGITS: Final = 16  # names a version among a few, and protects nothing
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_PLAIN: Final = "text/plain; charset=utf-8"
_ALWAYS: Final = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
_PAGE: Final = (
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_SDK: Final = (("Access-Control-Allow-Origin", "*"), ("Cross-Origin-Resource-Policy", "cross-origin"))
_FRESH: Final = ("Cache-Control", "no-cache")
_FOR_EVER: Final = ("Cache-Control", "public, max-age=31536000, immutable")


class StaticSite:
    """The public page and the browser SDK of a node."""

    def __init__(self, web: Traversable | None = None) -> None:
        """Read every file.

        Args:
            web: Folder with the folders ``page`` and ``sdk``; the package's own by default.
        """
        web = web or files(__package__) / "web"
        page, sdk = dict(_read(web / "page")), dict(_read(web / "sdk"))
        self.sdk_hash = _hash(sdk)
        """Names this version of the SDK: ``/sdk/<hash>/merk.js`` never changes."""
        page_hash = _hash({**page, "sdk": self.sdk_hash.encode()})
        places = {b'"/page/': f'"/page/{page_hash}/'.encode(), b'"/sdk/': f'"/sdk/{self.sdk_hash}/'.encode()}
        page = {name: _replaced(body, places) for name, body in page.items()}
        self._answers = {
            **_answers("/page/", page, *_PAGE, _FRESH),
            **_answers(f"/page/{page_hash}/", page, *_PAGE, _FOR_EVER),
            **_answers("/sdk/", sdk, *_SDK, _FRESH),
            **_answers(f"/sdk/{self.sdk_hash}/", sdk, *_SDK, _FOR_EVER),
        }
        self._answers["/"] = self._answers["/page/index.html"]

    def answer(self, path: str) -> HttpAnswer | None:
        """Return what a GET of ``path`` gets.

        Args:
            path: As the request line has it, percent-encoded and with its query, which changes nothing.

        Returns:
            The file, or None when no file of ours has this path.
        """
        return self._answers.get(path.partition("?")[0])


def _read(folder: Traversable, above: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield path below the folder and bytes of each file, in the order of their names."""
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _read(item, f"{above}{item.name}/")
        else:
            yield f"{above}{item.name}", item.read_bytes()


def _hash(contents: dict[str, bytes]) -> str:
    """Return a name for these files that changes with any of them."""
    digest = sha256()
    for name, body in contents.items():
        digest.update(f"{name}\n{len(body)}\n".encode() + body)
    return digest.hexdigest()[:_HASH_HEX_DIGITS]


def _replaced(body: bytes, places: dict[bytes, bytes]) -> bytes:
    for place, other in places.items():
        body = body.replace(place, other)
    return body


def _answers(folder: str, contents: dict[str, bytes], *headers: tuple[str, str]) -> dict[str, HttpAnswer]:
    """Return what a GET of each file gets, by path."""
    kinds = {name: _TYPES.get(name[name.rfind(".") :], _PLAIN) for name in contents}
    return {
        folder + name: HttpAnswer(200, (("Content-Type", kinds[name]), *_ALWAYS, *headers), body)
        for name, body in contents.items()
    }
