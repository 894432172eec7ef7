"""Laws of server.strata.tables: what ``[strata]`` refuses, and where the refusal points."""

import pytest

from waystation.core.errors import ConfigError
from waystation.protocols.strata.limits import StrataLimits
from waystation.server.config.load import load_config


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[strata]\npath = "strata"\n', 2, "strata.path = 'strata' is no path"),
        (
            '[strata]\npath = "/mesh"\n',
            2,
            "strata.path = '/mesh' is a path of [merk] too, and both listen on *:8080",
        ),
        ('[merk]\npaths = ["/strata"]\n', 2, "strata.path = '/strata' is a path of [merk] too"),
        ("[strata]\ntls = true\n", 2, "so tls, cert and key must be the same in both tables, such as"),
        ("[merk]\ntls = true\n", 2, "merk and strata both listen on *:8080"),
        ("[merk]\ntls = true\n", 2, "--set merk.tls=true --set strata.tls=true; or give one of them a port of its own"),
        ('[merk]\ncert = "a"\nkey = "b"\n', 2, "must be the same in both tables"),
        (
            "[limits.strata]\nbytes_per_minute_anonymous = 263167\n",
            2,
            "limits.strata.bytes_per_minute_anonymous = 263167 lets no packet of strata.max_packet_bytes = 262144 pass",
        ),
        ("[limits.strata]\nbytes_per_minute = 65536\n", 2, "limits.strata.bytes_per_minute = 65536 lets no packet"),
        (
            "[limits.strata]\nbytes_per_minute_replicating = 65536\n",
            2,
            "limits.strata.bytes_per_minute_replicating = 65536 lets no packet",
        ),
        (
            "[strata]\nmax_packet_bytes = 65536\n[limits.strata]\nbytes_per_minute = 66559\n",
            4,
            "allowed: at least 66560",
        ),
    ],
)
def test_bad_table_is_refused_with_its_line(tmp_path, text, line, says):
    """The error begins with file and line and tells what would have been right."""
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


def test_allowance_of_the_largest_packet_is_taken(tmp_path):
    """The smallest allowance that lets the largest packet and its message pass is allowed."""
    path = tmp_path / "node.toml"
    path.write_text("[limits.strata]\nbytes_per_minute_anonymous = 263168\n")

    assert load_config(path, {}, {}).of(StrataLimits).bytes_per_minute_anonymous == 263_168
