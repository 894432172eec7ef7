import json

import pytest

from tests.protocols.strata.build import NOW, did
from tests.protocols.strata.client.test_bootstrap import KEEPERS, TAGS, document, snapshot
from tests.sdk.strata.build import ScriptedServer
from tests.sdk.strata.test_relay import scenario
from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.client.bootstrap import BootstrapRefusedError
from waystation.sdk.strata.bootstrap import fetch_snapshots, load_document, load_gatekeepers


def test_row_40_document_in_a_file_is_checked(tmp_path):
    """With the gatekeepers of another file; a broken one is refused."""
    keepers = {
        did(each): {"public_key": each.public.hex(), "diversity_tags": [tag]}
        for each, tag in zip(KEEPERS, TAGS, strict=True)
    }
    (tmp_path / "keepers.json").write_text(json.dumps(keepers))
    (tmp_path / "good.json").write_text(json.dumps(document(*KEEPERS)))
    (tmp_path / "bad.json").write_text("{")
    pinned = load_gatekeepers(tmp_path / "keepers.json")

    assert len(load_document(tmp_path / "good.json", pinned, NOW).signers) == 4
    with pytest.raises(BootstrapRefusedError):
        load_document(tmp_path / "bad.json", pinned, NOW)
    with pytest.raises(HostError):
        load_document(tmp_path / "none.json", pinned, NOW)
    with pytest.raises(LocalError):
        load_gatekeepers(tmp_path / "bad.json")


@scenario
async def test_snapshots_of_a_relay_are_checked_one_by_one():
    """A forged one is left out, no page at all is no error."""
    good, forged = snapshot().body, snapshot().body | {"timestamp": NOW}
    page = {"snapshots": [{"packet": good, "observed_at": NOW}, {"packet": forged}, None, {}]}
    async with ScriptedServer(lambda _message: []) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/strata")
        nothing = await fetch_snapshots(base, clock=lambda: NOW)
        server.pages["/.well-known/strata/bootstrap-snapshots?limit=10"] = (200, page)
        found = await fetch_snapshots(base, clock=lambda: NOW)

    assert nothing == []
    assert [each.source_id for each in found] == [good["author_id"]]
