"""Laws of server.config."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.core.errors import ConfigError
from waystation.core.tomllines import find_line
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.settings import MerkSettings
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.config.load import Change, changes, explain, load_config, reload_config
from waystation.server.config.settings import Address
from waystation.server.config.values import Origin


@pytest.fixture
def write(tmp_path):
    """Write a configuration file and return its path."""

    def write(text):
        path = tmp_path / "node.toml"
        path.write_text(text)
        return path

    return write


def _refusal(path=None, environ=None, overrides=None):
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ or {}, overrides or {})
    return caught.value


def test_nothing_given_is_all_defaults():
    """Without file, environment and flags the documented defaults hold."""
    config = load_config(None, {}, {})

    assert config.origins == {}
    assert config.node.home == Path("./waystation")
    assert config.of(BhumiListenSettings).tls == Address("*", 8443)
    assert config.of(BhumiListenSettings).plain is None
    assert (config.admin.listen, config.store.url, config.bus.url) == (Address("127.0.0.1", 8081), "sqlite", "")
    assert config.of(BhumiSettings) == BhumiSettings("seed", 30_000, 300_000, 65_536, True, False)
    assert (config.journal.segment_seconds, config.journal.segment_rows, config.journal.retention_days) == (
        60,
        20_000,
        14,
    )


def test_flag_over_environment_over_file_over_default(write):
    """Each layer wins over the ones below it, and only for the keys it names."""
    path = write("[bhumi]\nack_timeout_ms = 100\nresponse_ttl_ms = 100\nmax_payload_bytes = 100\n")
    environ = {"WAYSTATION_BHUMI__RESPONSE_TTL_MS": "200", "WAYSTATION_BHUMI__MAX_PAYLOAD_BYTES": "200", "PATH": "/bin"}
    bhumi = load_config(path, environ, {"bhumi.max_payload_bytes": "300"}).of(BhumiSettings)

    assert (bhumi.ack_timeout_ms, bhumi.response_ttl_ms, bhumi.max_payload_bytes) == (100, 200, 300)
    assert bhumi.deliver_layout == "seed"


def test_every_kind_of_value_from_file_and_from_text(write):
    """A text from the environment reads as the same value that the file writes."""
    path = write('[node]\nhome = "/srv/w"\n[bhumi]\ntls = "[::1]:0"\nplain = ""\n[limits]\nenabled = false\n')
    environ = {
        "WAYSTATION_NODE__HOME": "/srv/w",
        "WAYSTATION_BHUMI__TLS": "[::1]:0",
        "WAYSTATION_BHUMI__PLAIN": "",
        "WAYSTATION_LIMITS__ENABLED": "false",
    }

    assert load_config(path, {}, {}) == load_config(None, environ, {})
    assert load_config(path, {}, {}).of(BhumiListenSettings).tls == Address("::1", 0)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("\n[bhmi]\n", 2, "unknown table: bhmi; did you mean bhumi? (known: node, store"),
        ("[node]\n\nnam = 'x'\n", 3, "unknown key in [node]: nam; did you mean name?"),
        ("[bhumi]\nack_timeout_ms = 5\n", 2, "allowed: a whole number from 10 to 600000 (ms)"),
        ("[bhumi]\nack_timeout_ms = true\n", 2, "bhumi.ack_timeout_ms = True is not allowed"),
        ('[bhumi]\ndeliver_layout = "sed"\n', 2, 'allowed: one of "seed", "preimage"'),
        ("[limits]\nenabled = 1\n", 2, "allowed: true or false"),
        ('[admin]\nlisten = "8081"\n', 2, 'text "host:port"'),
        ("[admin]\nlisten = 8081\n", 2, 'text "host:port"'),
        ('[node]\nhome = ""\n', 2, "the path of a folder"),
        ("node = 3\n", 1, "node is a table; write [node]"),
        ('[bus]\nurl = "nats://x"\n', 2, "has no bus"),
        ('[store]\n# where\nurl = "postgresql://x"\n', 3, "PostgreSQL, which this version cannot use"),
        ('[store]\nurl = "mysql"\n', 2, 'allowed: one of "sqlite", "memory"'),
        ("bsp = 1\n", 1, "bsp is a table; write [bsp]"),
        ("[merk]\nmax_frame_bytes = 1000\n", 2, "allowed: a whole number from 1024 to 67108864 (bytes)"),
        ("[node]\nname = \n", 2, "not TOML: Invalid value"),
        ("[node]\nname = 'x", 2, "not TOML"),
        ("[node]\nname = 1\nname = 2\n", 3, "not TOML: Cannot overwrite"),
    ],
)
def test_bad_file_is_refused_with_line_and_what_is_allowed(write, text, line, says):
    """The error begins with file and line and tells what would have been right."""
    path = write(text)
    error = _refusal(path)

    assert str(error).startswith(f"{path}:{line}: ")
    assert says in str(error)
    assert error.line == line


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    """A file in another encoding is told apart from bad TOML."""
    path = tmp_path / "node.toml"
    path.write_bytes(b"[node]\nname = '\xff'\n")

    assert str(_refusal(path)) == f"{path}:2: is not UTF-8 text"


def test_missing_file_is_refused(tmp_path):
    """A configuration file that was named must be there."""
    assert "cannot be read: No such file" in str(_refusal(tmp_path / "absent.toml"))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("WAYSTATION_BHUMI__ACK_TIMEOUT_MS", "soon", "allowed: a whole number from 10 to 600000 (ms)"),
        ("WAYSTATION_BHUMI__TSL", "x", "did you mean tls?"),
        ("WAYSTATION_BUMI__TLS", "x", "did you mean bhumi?"),
        ("WAYSTATION_BHUMI_TLS", "x", "did you mean WAYSTATION_BHUMI__TLS?"),
        ("WAYSTATION_LIMITS__ENABLED", "yes", "allowed: true or false"),
        ("WAYSTATION_BSP__ENABLED", "yes", "allowed: true or false"),
    ],
)
def test_bad_variable_is_refused_by_name(name, value, says):
    """The error names the variable and what is allowed."""
    error = _refusal(environ={name: value})

    assert str(error).startswith(f"environment {name}: ")
    assert says in str(error)
    assert error.line is None


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("ws://a,ws://b", ["ws://a", "ws://b"]),
        ('["ws://a", "ws://b"]', ["ws://a", "ws://b"]),
        (" ['ws://a,b'] ", ["ws://a,b"]),
        ("[]", []),
        ("", []),
    ],
)
def test_list_is_given_with_commas_or_as_in_the_file(text, peers):
    """A flag and a variable take both forms."""
    flag = load_config(None, {}, {"merk.peers": text})
    variable = load_config(None, {"WAYSTATION_MERK__PEERS": text}, {})

    assert flag.of(MerkSettings).peers == variable.of(MerkSettings).peers == peers


@pytest.mark.parametrize("text", ['["ws://a"', "[ws://a]", "[1]", '["a"]\nx = 1 ]'])
def test_what_is_no_list_is_told_both_forms(text):
    """The error names the flag and how a list is written there."""
    error = str(_refusal(overrides={"merk.peers": text}))

    assert error.startswith("flag merk.peers: merk.peers = ")
    assert 'allowed: a list of text (texts joined by commas, such as a,b, or a TOML array, such as ["a", "b"])' in error


def test_other_variables_are_nobodys_business():
    """Names of other tools pass, also when they begin alike."""
    others = {"WAYSTATION_HOME_BREW": "x", "WAYSTATIONS__X": "y", "BHUMI__TLS": "z"}

    assert load_config(None, others, {}) == load_config(None, {}, {})


@pytest.mark.parametrize(
    ("name", "says"), [("tls", "named table.key"), ("bhumi.tsl", "did you mean tls?"), ("bhumi.tls", "host:port")]
)
def test_bad_flag_is_refused_by_name(name, says):
    """The error names the flag."""
    error = _refusal(overrides={name: "nonsense"})

    assert str(error).startswith(f"flag {name}: ")
    assert says in str(error)


def test_bad_value_is_refused_even_where_a_flag_wins(write):
    """A mistake in the file is not hidden by a flag."""
    error = _refusal(write("[bhumi]\nack_timeout_ms = 1\n"), overrides={"bhumi.ack_timeout_ms": "1000"})

    assert error.line == 2


def test_explain_names_the_origin_of_every_value(write):
    """Each key appears once, with its value in force and where that came from."""
    path = write("\n[bhumi]\ntls = '127.0.0.1:1'\n")
    rows = {
        row.name: row for row in explain(load_config(path, {"WAYSTATION_NODE__NAME": "n"}, {"limits.enabled": "false"}))
    }

    assert rows["bhumi.tls"][1:] == ("127.0.0.1:1", Origin(str(path), 3))
    assert rows["node.name"][1:] == ("n", Origin("environment WAYSTATION_NODE__NAME"))
    assert rows["limits.enabled"][1:] == (False, Origin("flag limits.enabled"))
    assert rows["store.url"][1:] == ("sqlite", Origin("default"))


def test_reload_reads_the_file_again_under_the_same_flags(write):
    """After an edit the file's new values hold, and flags still win."""
    path = write("[bhumi]\nack_timeout_ms = 100\n[node]\nname = 'a'\n")
    config = load_config(path, {}, {"node.name": "flag"})
    write("[bhumi]\nack_timeout_ms = 200\n[node]\nname = 'b'\n")
    fresh = reload_config(config)

    assert (fresh.of(BhumiSettings).ack_timeout_ms, fresh.node.name) == (200, "flag")


def test_other_variables_are_not_kept():
    """A configuration that reaches a log or a dump holds nobody else's secrets."""
    config = load_config(None, {"API_TOKEN": "secret", "WAYSTATION_NODE__NAME": "n"}, {})

    assert config.sources.environ == {"WAYSTATION_NODE__NAME": "n"}


def test_changes_tell_what_reloads_and_what_needs_a_restart():
    """Every differing key is named once with what SIGHUP can do about it."""
    old = load_config(None, {}, {})
    new = load_config(None, {}, {"node.drain_ms": "1", "bhumi.tls": "127.0.0.1:1"})

    assert changes(old, new) == [Change("node.drain_ms", reloads=True), Change("bhumi.tls", reloads=False)]
    assert changes(old, old) == []


@given(st.text(max_size=80))
def test_any_text_loads_or_is_a_config_error(tmp_path_factory, text):
    """Whatever stands in the file, the outcome is a configuration or one error that names the file."""
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    try:
        refusal = None
        load_config(path, {}, {})
    except ConfigError as error:
        refusal = str(error)

    assert refusal is None or refusal.startswith(str(path))


KEYS = st.sampled_from(["a", "b-c", "d_1"])
SCALARS = st.sampled_from(["1", '"x = 1"', "'[a]'", '"""\n[b]\n"""', "[1, [2,\n3]]", "{ q = 1 }", "2026-01-01"])


@settings(max_examples=50)
@given(
    st.lists(st.tuples(KEYS, st.dictionaries(KEYS, SCALARS, max_size=3)), max_size=4, unique_by=lambda item: item[0])
)
def test_line_of_every_key_is_where_it_was_written(tables):
    """For generated documents the line found is the line on which the generator put the key."""
    lines, expected = [], {}
    for table, keys in tables:
        lines += ["# [c] # note", f"[{table}] # x = ["]
        for key, value in keys.items():
            expected[table, key] = len("\n".join(lines).splitlines()) + 1
            lines.append(f"{key} = {value} # ] = '")
    text = "\n".join(lines)
    tomllib.loads(text)

    assert {path: find_line(text, *path) for path in expected} == expected


def test_table_inside_a_table_from_every_source(write):
    """A flag wins over the environment, which wins over the file, also for ``[limits.merk]``."""
    path = write("[limits]\nenabled = false\n[limits.merk]\nconnects_burst = 7\nconnects_per_second = 8\n")
    environ = {"WAYSTATION_LIMITS__MERK__CONNECTS_BURST": "9", "WAYSTATION_PIPELINE__INNER__X": "1"}
    from_file, from_environ = load_config(path, {}, {}), load_config(path, environ, {})
    from_flag = load_config(path, environ, {"limits.merk.connects_burst": "10"})

    limits = [config.of(MerkLimits) for config in (from_file, from_environ, from_flag)]
    assert limits == [MerkLimits(8, burst) for burst in (7, 9, 10)]
    assert not from_file.limits.enabled
    assert [str(config.origins["limits.merk.connects_burst"]) for config in (from_file, from_environ, from_flag)] == [
        f"{path}:4",
        "environment WAYSTATION_LIMITS__MERK__CONNECTS_BURST",
        "flag limits.merk.connects_burst",
    ]
    assert [change.reloads for change in changes(from_file, from_flag)] == [True]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[limits]\n[limits.merkk]\nx = 1\n", 2, "unknown key in [limits]: merkk; did you mean merk?"),
        ("[limits.merk]\nconnects_brst = 1\n", 2, "unknown key in [limits.merk]: connects_brst; did you mean"),
        ("[limits.merk]\n\nconnects_burst = 0\n", 3, "limits.merk.connects_burst = 0 is not allowed"),
        ("[limits]\nmerk = 3\n", 2, "limits.merk is a table; write [limits.merk]"),
    ],
)
def test_bad_table_inside_a_table_is_refused(write, text, line, says):
    """The error names the whole table, and the line."""
    error = _refusal(write(text))

    assert says in str(error)
    assert error.line == line


def test_table_of_the_pipeline_is_left_alone(tmp_path):
    """One file may serve node and pipeline: what is said to the pipeline is no business of the node's."""
    path = tmp_path / "node.toml"
    path.write_text('[node]\nname = "n"\n[pipeline]\nwitnesses = 3\n')
    config = load_config(path, {"WAYSTATION_PIPELINE__WITNESSES": "4"}, {})

    assert config.node.name == "n"
