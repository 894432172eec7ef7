"""The reasons for which the blind box refuses a request: a closed set, each with an HTTP status and a sentence.

The box's store raises ``BoxRefusedError``, and its HTTP server makes the answer of it.
"""

from enum import Enum
from typing import Final

from waystation.core.errors import RemoteError

__all__ = ["BoxRefusal", "BoxRefusedError"]


class BoxRefusal(Enum):
    """The value is the word in the answer's JSON: ``{"ok": false, "refusal": word, "error": sentence, ...}``."""

    NO_TOKEN = "no_token"  # noqa: S105 - a word
    BAD_TOKEN = "bad_token"  # noqa: S105 - as above
    TOO_MANY_BAD_TOKENS = "too_many_bad_tokens"
    NOT_ALLOWED = "not_allowed"
    ADDRESS_REFUSED = "address_refused"
    UNKNOWN_FOLDER = "unknown_folder"
    UNKNOWN_FILE = "unknown_file"
    UNKNOWN_CONTACT = "unknown_contact"
    BAD_NAME = "bad_name"
    FILE_EMPTY = "file_empty"
    FILE_TOO_LARGE = "file_too_large"
    OTHER_BYTES = "other_bytes"
    SLOW = "slow"
    SLOW_HEAD = "slow_head"
    TOO_MANY_UPLOADS = "too_many_uploads"
    FOLDER_FULL = "folder_full"
    BOX_FULL = "box_full"
    CONTACTS_FULL = "contacts_full"
    DISK = "disk"

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return _ANSWERS[self][0]

    @property
    def sentence(self) -> str:
        """Return what people read."""
        return _ANSWERS[self][1]

    @property
    def document(self) -> dict[str, object]:
        """Return the answer's JSON."""
        return {"ok": False, "refusal": self.value, "error": self.sentence, "status": self.status}


class BoxRefusedError(RemoteError):
    """Somebody asked the box for what it does not give.

    Attributes:
        refusal: Why.
    """

    def __init__(self, refusal: BoxRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


_ANSWERS: Final = {
    BoxRefusal.NO_TOKEN: (401, "a bearer token is needed: 64 hexadecimal digits"),
    BoxRefusal.BAD_TOKEN: (401, "nobody has this token"),
    BoxRefusal.TOO_MANY_BAD_TOKENS: (429, "nobody has this token, and too many wrong ones came from your address"),
    BoxRefusal.NOT_ALLOWED: (403, "this folder is yours, but not for this: files go one way"),
    BoxRefusal.ADDRESS_REFUSED: (403, "the operator does not take requests of your address"),
    BoxRefusal.UNKNOWN_FOLDER: (404, "you have no such folder"),
    BoxRefusal.UNKNOWN_FILE: (404, "there is no such file in this folder"),
    BoxRefusal.UNKNOWN_CONTACT: (404, "you have no such contact"),
    BoxRefusal.BAD_NAME: (400, "folders and files are named by 64 hexadecimal digits in lower case"),
    BoxRefusal.FILE_EMPTY: (400, "a file is not empty"),
    BoxRefusal.FILE_TOO_LARGE: (413, "a file has at most 1048576 bytes"),
    BoxRefusal.OTHER_BYTES: (422, "a file is named after the SHA-256 of its bytes, and this is another"),
    BoxRefusal.SLOW: (408, "the file did not come within 60 s"),
    BoxRefusal.SLOW_HEAD: (408, "the head of a request did not come within 10 s"),
    BoxRefusal.TOO_MANY_UPLOADS: (
        429,
        "too many files with your token are on their way; again when one has come",
    ),
    BoxRefusal.FOLDER_FULL: (507, "the folder is full; it has room when the other side has taken files"),
    BoxRefusal.BOX_FULL: (507, "the box is full"),
    BoxRefusal.CONTACTS_FULL: (507, "you have as many contacts as an owner may"),
    BoxRefusal.DISK: (503, "the node's disk refuses"),
}
