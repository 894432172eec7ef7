"""Laws of protocols.lprp.client_settings."""

import dataclasses

import pytest

from waystation.core.settings import check
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.settings import LprpSettings


def test_defaults_are_those_of_the_digest_and_the_host():
    """Heartbeats every 25 s (lprp 3), 12 bits first and two more each time (LPRP-D7B), at most 26 (lprp 8)."""
    settings, host = ClientSettings(), LprpSettings()

    assert (settings.heartbeat_ms, settings.work_first_bits, settings.work_step_bits) == (25_000, 12, 2)
    assert settings.bits_max == 26
    assert (settings.byte_order, settings.lease_ms) == (host.byte_order, host.lease_ms)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ClientSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(ClientSettings, field, getattr(ClientSettings(), field))
