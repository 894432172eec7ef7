import json

import pytest

from waystation.cli.strata.keys import KeyAction, act_on_key
from waystation.core.errors import LocalError
from waystation.protocols.strata.client.identity import export_identity
from waystation.sdk.strata.keys import load_identity, save_identity

OTHER = bytes(range(32))


def test_new_key_waits_until_a_relay_has_taken_it(tmp_path):
    """The old key is in use until then, and the same rotation comes again, not another one."""
    act_on_key(KeyAction.CREATE, None, tmp_path)
    old = load_identity(tmp_path)
    first = act_on_key(KeyAction.ROTATE, None, tmp_path)
    again = act_on_key(KeyAction.ROTATE, None, tmp_path)

    assert load_identity(tmp_path) == old
    assert load_identity(tmp_path / "next") == first.change.identity
    assert again == first
    assert first.document["key_id"] == first.change.identity.key_id != old.key_id


def test_one_change_of_keys_after_the_other(tmp_path):
    """What waits is named with the command that ends it, whatever else is asked for."""
    act_on_key(KeyAction.CREATE, None, tmp_path)
    me = load_identity(tmp_path)
    words = f"waystation strata keys add {OTHER.hex()}"
    added = act_on_key(KeyAction.ADD, OTHER.hex(), tmp_path)
    for action, value in ((KeyAction.ROTATE, None), (KeyAction.REVOKE, f"{me.did}#keys-2"), (KeyAction.ADD, "11" * 32)):
        with pytest.raises(LocalError, match=words):
            act_on_key(action, value, tmp_path)

    assert act_on_key(KeyAction.ADD, OTHER.hex(), tmp_path) == added
    assert added.document["added"] == f"{me.did}#keys-{OTHER.hex()[:16]}"
    assert words in act_on_key(KeyAction.SHOW, None, tmp_path).note
    assert words in act_on_key(KeyAction.EXPORT, None, tmp_path).note
    assert act_on_key(KeyAction.CREATE, None, tmp_path / "other").note == ""


def test_revocation_and_approval_name_what_they_are_about(tmp_path):
    """The key in use unless another is named; a packet id for an approval."""
    act_on_key(KeyAction.CREATE, None, tmp_path)
    revoked = act_on_key(KeyAction.REVOKE, None, tmp_path, yes=True)
    approved = act_on_key(KeyAction.APPROVE, "0x" + "11" * 32, tmp_path)

    assert revoked.change.packet.body["content"]["key_id"] == load_identity(tmp_path).key_id
    assert approved.packet.body["content"]["target_event"] == "0x" + "11" * 32
    with pytest.raises(LocalError):
        act_on_key(KeyAction.APPROVE, None, tmp_path)
    with pytest.raises(LocalError):
        act_on_key(KeyAction.APPROVE, "0x", tmp_path)


def test_last_key_is_not_revoked_by_mistake(tmp_path):
    """The key in use goes only with yes, however it is named; another one of this name goes at once."""
    act_on_key(KeyAction.CREATE, None, tmp_path)
    me = load_identity(tmp_path)
    for named in (None, me.key_id):
        with pytest.raises(LocalError, match="this is your last key; rotate first, or pass --yes"):
            act_on_key(KeyAction.REVOKE, named, tmp_path)
    with pytest.raises(LocalError, match="begins with"):
        act_on_key(KeyAction.REVOKE, "keys-1", tmp_path, yes=True)
    other = act_on_key(KeyAction.REVOKE, f"{me.did}#keys-2", tmp_path)

    assert other.change.packet.body["content"]["key_id"] == f"{me.did}#keys-2"


def test_export_carries_the_name_over_a_rotation(tmp_path):
    """Line and object make the same identity elsewhere; a seed alone makes another one, and says so."""
    act_on_key(KeyAction.CREATE, None, tmp_path)
    save_identity(tmp_path, act_on_key(KeyAction.ROTATE, None, tmp_path).change.identity)
    me = load_identity(tmp_path)
    exported = act_on_key(KeyAction.EXPORT, None, tmp_path)
    line = act_on_key(KeyAction.IMPORT, exported.secret + "\n", tmp_path / "line")
    act_on_key(KeyAction.IMPORT, json.dumps(exported.document), tmp_path / "object")
    bare = act_on_key(KeyAction.IMPORT, me.key_pair.seed.hex(), tmp_path / "bare")

    assert exported.secret == export_identity(me)
    assert load_identity(tmp_path / "line") == load_identity(tmp_path / "object") == me
    assert load_identity(tmp_path / "bare").did != me.did
    assert (line.note, "a seed alone" in bare.note) == ("", True)
