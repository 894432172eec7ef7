"""Laws of server.box.limits: what an operator sets is what holds, and what is listed is counted."""

import dataclasses
import random

import pytest

from waystation.core.instant import Instant
from waystation.engine.recorder import Recorder
from waystation.server.box.limits import BoxLimits
from waystation.server.box.refusals import BoxRefusal, BoxRefusedError
from waystation.server.box.store import BoxStore, add_owner
from waystation.server.config.load import load_config
from waystation.server.limits_view import limit_views


def test_every_use_is_a_size_of_the_box(tmp_path):
    """What is listed beside a limit is counted."""
    uses = {field.metadata["use"] for field in dataclasses.fields(BoxLimits)} - {""}

    assert uses <= BoxStore(tmp_path / "box").sizes().keys()


def test_contacts_follow_a_new_limit(tmp_path):
    """A raised limit takes the next contact, and nobody is removed by a lowered one."""
    owner = add_owner(tmp_path / "box", "alice")
    store = BoxStore(tmp_path / "box", BoxLimits(contacts_max=1))
    holder = store.find(owner)
    store.add_contact(holder.owner)
    with pytest.raises(BoxRefusedError) as refused:
        store.add_contact(holder.owner)
    store.use_limits(BoxLimits(contacts_max=2), 1 << 30)
    store.add_contact(holder.owner)
    store.use_limits(BoxLimits(contacts_max=1), 1 << 30)

    assert refused.value.refusal is BoxRefusal.CONTACTS_FULL
    assert len(store.contacts(holder.owner)) == 2


def test_limits_of_the_box_are_listed_with_their_use():
    """The table is limits.bsp_box, and its use is that of the box."""
    config = load_config(None, {}, {"limits.bsp_box.files_max": "7"})
    recorder = Recorder(None, random.Random(1))
    shown = {view.name: view for view in limit_views(config, {"bsp_box": {"files": 3}}, recorder, Instant(0))}
    files = shown["limits.bsp_box.files_max"]

    assert (files.value, files.default, files.use, files.refusal) == (7, 100_000, 3, "box_full")
