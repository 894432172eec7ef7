"""Laws of server.strata.operator_keys; test_host.py tries what the relay makes of them."""

import json

import pytest

from tests.protocols.strata.build import ALICE
from waystation.core.errors import ConfigError
from waystation.protocols.strata.settings import StrataSettings
from waystation.server.strata.operator_keys import read_operator_keys


def test_documents_come_in_the_order_of_their_names(tmp_path):
    """So that two nodes with one folder read alike; other files are passed over."""
    for name in ("b.json", "a.json", "c.txt"):
        (tmp_path / name).write_text(json.dumps({"name": name}))
    pinned, documents = read_operator_keys(StrataSettings(did_documents=str(tmp_path)))

    assert (pinned, documents) == ({}, [{"name": "a.json"}, {"name": "b.json"}])


def test_pinned_keys_are_read():
    """Each DID has its one key."""
    pinned, documents = read_operator_keys(StrataSettings(static_dids={"did:strata:name": ALICE.public.hex()}))

    assert [key.public for key in pinned["did:strata:name"]] == [ALICE.public]
    assert documents == []


def test_list_is_no_document(tmp_path):
    """The error names the file."""
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"one\.json.*is not a JSON object"):
        read_operator_keys(StrataSettings(did_documents=str(tmp_path)))
