"""Laws of cli.merk_keys: files only, nothing is connected."""

import json

import pytest

from tests.protocols.merk.build import ALICE, BOB, NODE
from waystation.cli.merk.keys import KeyAction, ServerAction, act_on_keys, act_on_servers, describe_keys
from waystation.core.errors import LocalError
from waystation.core.ids import decode_id52
from waystation.protocols.merk.messages import ServerEntry
from waystation.sdk.merk import SERVERS_FILE, Servers

A, B = ALICE.signing.public.hex(), BOB.signing.public.hex()


def act(action, home, *values, text=None):
    """Carry an action out."""
    return act_on_keys(action, list(values), text, home)


def test_identity_is_described_without_its_secrets():
    """Both public keys in both spellings, and not a byte of the secret ones."""
    document = describe_keys(ALICE)

    assert document["public_key"] == A
    assert decode_id52(document["id52"]) == ALICE.signing.public
    assert decode_id52(document["agreement_id52"]).hex() == document["agreement_key"]
    assert ALICE.signing.seed.hex() not in str(document) and ALICE.agreement_secret.hex() not in str(document)


def test_export_of_an_import_is_the_same_file(tmp_path):
    """The original's file goes in and comes out."""
    shown = act(KeyAction.IMPORT, tmp_path, "file", text=ALICE.export_json())
    (exported,) = act(KeyAction.EXPORT, tmp_path)

    assert shown == act(KeyAction.SHOW, tmp_path) == [describe_keys(ALICE)]
    assert json.loads(exported["key_file"]) == json.loads(ALICE.export_json())


def test_created_identity_is_not_replaced(tmp_path):
    """A second creation is refused."""
    created = act(KeyAction.CREATE, tmp_path)
    with pytest.raises(LocalError):
        act(KeyAction.CREATE, tmp_path)

    assert act(KeyAction.SHOW, tmp_path) == created


def test_recipients_are_trusted_listed_and_forgotten(tmp_path):
    """Keys given by hand are marked as such; forgetting names who is gone."""
    (trusted,) = act(KeyAction.TRUST, tmp_path, B, BOB.agreement_public.hex())
    listed = act(KeyAction.RECIPIENTS, tmp_path)
    forgotten = act(KeyAction.FORGET, tmp_path, B)

    assert listed == [trusted]
    assert trusted == {"public_key": B, "agreement_key": BOB.agreement_public.hex(), "by_hand": True}
    assert forgotten == [{"public_key": B, "forgotten": True}]
    assert act(KeyAction.RECIPIENTS, tmp_path) == []


@pytest.mark.parametrize(
    ("action", "values"),
    [
        (KeyAction.IMPORT, ()),
        (KeyAction.TRUST, (B,)),
        (KeyAction.TRUST, (B, "abc")),
        (KeyAction.FORGET, ()),
        (KeyAction.FORGET, (B,)),
    ],
)
def test_missing_values_are_the_callers_mistake(tmp_path, action, values):
    """Each action says what it needs, and changes nothing."""
    with pytest.raises(LocalError):
        act(action, tmp_path, *values)

    assert list(tmp_path.iterdir()) == []


def test_servers_show_origin_selection_and_pin(tmp_path):
    """The list in its order, with the key that each must prove."""
    act_on_servers(ServerAction.ADD, "ws://one.example", tmp_path)
    Servers(tmp_path / SERVERS_FILE).learn(
        [ServerEntry(b"k" * 32, "ws://told.example")], learnt_from="ws://one.example"
    )
    Servers(tmp_path / SERVERS_FILE).pin("ws://one.example", NODE.public)
    listed = act_on_servers(ServerAction.SELECT, "ws://two.example", tmp_path)

    assert [(each["address"], each["origin"], each["selected"]) for each in listed] == [
        ("ws://two.example", "user", True),
        ("ws://one.example", "user", False),
        ("ws://told.example", "told", False),
    ]
    assert [each["key"] for each in listed] == [None, NODE.public.hex(), (b"k" * 32).hex()]
    assert len(act_on_servers(ServerAction.REMOVE, "ws://one.example", tmp_path)) == 2


@pytest.mark.parametrize("action", [ServerAction.ADD, ServerAction.REMOVE, ServerAction.SELECT])
def test_server_actions_need_an_address(tmp_path, action):
    """Only listing needs none."""
    with pytest.raises(LocalError, match=f"{action.value} needs an address"):
        act_on_servers(action, None, tmp_path)
