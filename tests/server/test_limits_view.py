"""Laws of server.limits_view: every limit is shown with value, use, refusal, and the peers that met it."""

import dataclasses
import random

import pytest

from tests.server.build_hosts import hosts
from waystation.core.facts import Refused
from waystation.core.instant import Instant
from waystation.engine.recorder import Recorder
from waystation.protocols.merk.refusals import Refusal
from waystation.server.config.load import load_config
from waystation.server.limits_view import limit_views
from waystation.server.registry import PROTOCOLS, protocol_table

BOB = b"b" * 32


def views(sizes, *facts, **overrides):
    """Return the limits of a node by name, two seconds after these facts."""
    recorder = Recorder(None, random.Random(1))
    for fact in facts:
        recorder.note(fact, Instant(1_000_000))
    config = load_config(None, {}, {f"limits.{name.replace('__', '.')}": value for name, value in overrides.items()})
    return {view.name: view for view in limit_views(config, sizes, recorder, Instant(3_000_000))}


def test_limit_shows_its_value_and_its_bounds():
    """What the operator set stands beside the default and the hard upper bound."""
    shown = views({}, merk__connects_burst="7")["limits.merk.connects_burst"]

    assert (shown.value, shown.default, shown.at_most) == (7, 64, 100_000)
    assert (shown.use, shown.refusal, shown.times, shown.peers) == (None, Refusal.CONNECT_RATE.value, 0, [])


def test_limit_shows_who_met_it():
    """Refusals are counted, those without a name too; the peers come with count and age."""
    reason = Refusal.CONNECT_RATE.value
    shown = views({}, Refused("merk", BOB, reason, 3), Refused("merk", None, reason), Refused("bhumi", BOB, reason))

    assert shown["limits.merk.connects_burst"].times == 4
    assert shown["limits.merk.connects_burst"].peers == [{"subject": f"id:{BOB.hex()}", "times": 3, "ago_s": 2}]


def test_limit_of_gets_shows_the_networks_that_met_it():
    """What the web ports refuse is counted with this limit."""
    shown = views({}, Refused("web", None, "gets_rate", 3, b"net:203.0.113.0/24"))["limits.gets_per_minute"]

    assert (shown.refusal, shown.times, [peer["subject"] for peer in shown.peers]) == (
        "gets_rate",
        3,
        ["net:203.0.113.0/24"],
    )


def test_limit_of_a_table_shows_the_refusals_of_that_table_alone():
    """Bhumi refuses for a reason that has the name of one of the box: nobody has met the limit of the box."""
    shown = views({}, Refused("bhumi", BOB, "contacts_full", 3))["limits.bsp_box.contacts_max"]

    assert (shown.refusal, shown.times, shown.peers) == ("contacts_full", 0, [])


def test_setting_that_is_a_limit_is_listed_with_the_limits():
    """What a protocol's own table limits stands beside the rest, under its own name, with its use."""
    shown = views({"lprp": {"tenants": 3}}, Refused("lprp", BOB, "tenants_full"))["lprp.tenants_max"]

    assert (shown.value, shown.use, shown.refusal, shown.times) == (65_536, 3, "tenants_full", 1)


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if protocol_table(name).limits is not None])
def test_limits_of_every_protocol_are_those_of_its_relay(name):
    """A relay takes new limits while it runs, and what counts against each is a size that the node shows."""
    host, table = hosts()[name], protocol_table(name)
    host.relay.use_limits(table.limits())
    sizes = host.relay.sizes()
    for shown in host.sizes().values():
        sizes |= shown
    uses = {field.metadata["use"] for field in dataclasses.fields(table.limits)}

    assert uses - {""} <= set(sizes)
