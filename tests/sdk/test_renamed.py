"""Laws of sdk.renamed: old names work for one version, and name the new one."""

import pytest

import waystation
from waystation.sdk import bsp, lprp, merk, strata
from waystation.sdk.renamed import renamed_names, warn_renamed


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (merk, "open_merk", waystation.merk.open),
        (strata, "open_strata", waystation.strata.open),
        (strata, "PublishReport", waystation.strata.Sent),
        (lprp, "HostHeard", waystation.lprp.HostAnswered),
        (lprp, "parse_key", waystation.PublicKey.parse),
        (merk, "parse_key", waystation.PublicKey.parse),
        (bsp, "parse_key", waystation.PublicKey.parse),
    ],
)
def test_old_name_leads_to_the_new_one(module, old, new):
    """The warning says where to go."""
    with pytest.warns(DeprecationWarning, match=f"{module.__name__}.{old} is now waystation."):
        found = getattr(module, old)

    assert found == new


def test_name_that_never_was_is_an_attribute_error():
    """A slip of the pen is told as everywhere."""
    with pytest.raises(AttributeError, match="has no attribute 'b'"):
        renamed_names("m", {})("b")


def test_warning_points_at_the_caller():
    """The line that has to change is the one that is shown."""

    def old():
        warn_renamed("old", "new")

    with pytest.warns(DeprecationWarning, match="old is now new") as caught:
        old()

    assert caught[0].filename == __file__
