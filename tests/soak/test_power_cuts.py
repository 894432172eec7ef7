"""What the long tests call kept is kept through power cuts, and they find a store that does not sync."""

import pytest

from soak.bsp import kills as bsp_kills
from soak.lprp import kills as lprp_kills
from soak.shims.power_cut import Power
from soak.strata import kill as strata_kills

pytestmark = pytest.mark.slow

SEED = 3
LAWS = {"bsp": bsp_kills, "lprp": lprp_kills, "strata": strata_kills}


@pytest.mark.parametrize("protocol", LAWS)
def test_what_is_kept_survives_power_cuts(tmp_path, protocol):
    """After six power cuts under load everything that was acknowledged is there, and the file is whole."""
    said = LAWS[protocol].check(tmp_path, SEED, rounds=6, power=Power(SEED))

    assert said.startswith("6 kills")


@pytest.mark.parametrize("protocol", LAWS)
def test_store_without_syncs_is_found(tmp_path, protocol):
    """The same law fails when the node's syncs do nothing, as with ``PRAGMA synchronous=OFF``."""
    with pytest.raises(AssertionError):
        LAWS[protocol].check(tmp_path, SEED, rounds=6, power=Power(SEED, syncs=False))
