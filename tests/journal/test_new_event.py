"""A new event is one declaration: its line, column, privacy class and page follow from it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import waystation

SOURCE = Path(waystation.__file__).parent
ROOMS = ("core", "crypto", "journal", "engine", "rules")

DECLARATION = """

class MailSorted(NamedTuple):
    \"\"\"Mail of a tenant was sorted.\"\"\"

    protocol: str
    tenant: Annotated[bytes, PEER]
    sorter: Annotated[bytes, keyed("sorter_ref", "Keyed hash of a sorter's key.", Protection.IDENTITY)]
    letters: Annotated[int, operational("letters", "Letters that were sorted.")]
    weight: Annotated[int, Column("bytes")]


Fact = Fact | MailSorted
"""

MACHINE = """
import json, random
from waystation.core.facts import MailSorted
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine.recorder import Recorder
from waystation.journal.contract import ATTRIBUTES, allowed_attributes
from waystation.journal.document import render_contract
from waystation.journal.segment import encode_lines, read_rows

written = []
recorder = Recorder(written.append, random.Random(1))
recorder.use_key(b"k" * 32)
recorder.note(MailSorted("lprp", b"t" * 32, b"s" * 32, 3, 500), Instant(9))
line = encode_lines(written, 0)
print(json.dumps({
    "line": line.decode(),
    "references": [keyed_reference(b"k" * 32, letter * 32).hex() for letter in (b"t", b"s")],
    "read": len(list(read_rows(line))),
    "privacy": {each.name: each.privacy.value for each in ATTRIBUTES},
    "allowed": allowed_attributes()["mail_sorted"],
    "page": render_contract(),
}))
"""


def test_event_that_is_declared_has_its_line_column_class_and_page(tmp_path) -> None:
    """In a copy of the tree, one class in core/facts.py and one call of a machine are all that an event takes."""
    tree = tmp_path / "waystation"
    for room in ROOMS:
        shutil.copytree(SOURCE / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
    for module in SOURCE.glob("*.py"):
        shutil.copy(module, tree)
    declared = tree / "core" / "facts.py"
    declared.write_text(declared.read_text() + DECLARATION)
    ran = subprocess.run(
        [sys.executable, "-c", MACHINE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    seen = json.loads(ran.stdout)
    tenant, sorter = seen["references"]

    assert json.loads(seen["line"]) == {
        "ts": 9,
        "seq": 0,
        "kind": "mail_sorted",
        "protocol": "lprp",
        "peer_ref": tenant,
        "bytes": 500,
        "attrs": {"sorter_ref": sorter, "letters": "3"},
    }
    assert seen["read"] == 1
    assert (seen["privacy"]["sorter_ref"], seen["privacy"]["letters"]) == ("pseudonymous", "operational")
    assert seen["allowed"] == ["letters", "sorter_ref"]
    assert "| `mail_sorted` |" in seen["page"]
    assert "Mail of a tenant was sorted." in seen["page"]
