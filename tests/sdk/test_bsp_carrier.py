"""Laws of the two sides of a carrier."""

import inspect

from waystation.sdk.bsp_carrier import Carrier, Desk
from waystation.sdk.bsp_desk import CarrierDesk


def test_desk_has_what_a_carrier_is_promised():
    """Every method of the port is there with the same arguments, and is awaited where the port says so."""
    for name, promised in inspect.getmembers(Desk, inspect.isfunction):
        if name.startswith("_"):
            continue
        given = getattr(CarrierDesk, name)

        assert list(inspect.signature(given).parameters) == list(inspect.signature(promised).parameters)
        assert inspect.iscoroutinefunction(given) == inspect.iscoroutinefunction(promised)


def test_carrier_is_asked_for_no_more_than_it_must_have():
    """A carrier needs its terms, its bound and four methods."""
    asked = {name for name in vars(Carrier) if not name.startswith("_")}

    assert asked == {"bundle_bytes_max", "carry", "close", "open", "reaches", "terms"}
