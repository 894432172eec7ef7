"""Laws of server.bsp.tables, whose lists of groups and peers are read further than others."""

import pytest

from waystation.core.errors import ConfigError
from waystation.protocols.bsp.settings import BspSettings, read_groups, read_peers
from waystation.server.bsp.tables import BspListenSettings
from waystation.server.config.load import load_config
from waystation.server.config.settings import Address

KEY = "ab" * 32
GROUP = f'[[bsp.groups]]\nclient_id = "{"01" * 32}"\ndescriptor = "00"\n'


@pytest.fixture
def write(tmp_path):
    """Write a configuration file and return its path."""

    def write(text):
        path = tmp_path / "node.toml"
        path.write_text(text)
        return path

    return write


def group(client_id="01" * 32, descriptor="00", **more):
    """Return a file with one group in it, after one line of something else."""
    lines = [f'client_id = "{client_id}"', f'descriptor = "{descriptor}"', *(f"{k} = {v}" for k, v in more.items())]
    return "[bsp]\n[[bsp.groups]]\n" + "\n".join(lines) + "\n"


def peer(**keys):
    """Return a file with one peer in it."""
    return "\n[[bsp.peers]]\n" + "".join(f'{name} = "{text}"\n' for name, text in keys.items())


def test_defaults_are_those_of_the_design():
    """The node listens with TLS on port 7443, takes no bare records, and is a member of nothing."""
    config = load_config(None, {}, {})
    listen, bsp = config.of(BspListenSettings), config.of(BspSettings)

    assert (listen.enabled, listen.tls, listen.plain, listen.path) == (True, Address("*", 7443), None, "/bsp")
    assert (bsp.profile, bsp.mode, bsp.groups, bsp.peers) == ("seed", "auto", [], [])


def test_groups_and_peers_are_read_from_the_file(write):
    """Lists of tables hold texts, and lists of text where a list belongs."""
    more = {"format": '"deps_v1"', "share_with": f'["{KEY}"]', "name": '"tea"'}
    config = load_config(write(group(**more) + peer(key=KEY, url="bsp+tls://other:7443")), {}, {})
    (found,), (known,) = read_groups(config.of(BspSettings).groups), read_peers(config.of(BspSettings).peers)

    assert (found.client_id, found.descriptor, found.format) == (b"\1" * 32, b"\0", "deps_v1")
    assert (found.share_with, found.name) == ((bytes.fromhex(KEY),), "tea")
    assert (known.key, known.url) == (bytes.fromhex(KEY), "bsp+tls://other:7443")


def test_lists_of_tables_can_be_flags_and_variables():
    """Where there is no file an array in TOML says the same."""
    groups = f'[{{client_id = "{"01" * 32}", descriptor = "", share_with = ["{KEY}"]}}]'
    config = load_config(None, {"WAYSTATION_BSP__PEERS": f'[{{key="{KEY}"}}]'}, {"bsp.groups": groups})

    assert config.of(BspSettings).groups == [{"client_id": "01" * 32, "descriptor": "", "share_with": [KEY]}]
    assert config.of(BspSettings).peers == [{"key": KEY}]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[bsp]\ntsl = ''\n", 2, "unknown key in [bsp]: tsl; did you mean tls?"),
        ('[bsp]\nprofile = "brier"\n', 2, 'allowed: one of "seed", "briar"'),
        ('[bsp]\nmode = "bulk"\n', 2, 'allowed: one of "auto", "interactive", "batch"'),
        ('[bsp]\nplain = "0.0.0.0:1"\n', 2, "only a loopback address"),
        ('[bsp]\nplain = "127.0.0.1:1"\n', 2, "so bsp.plain_peer must say whose they are"),
        ('[bsp]\nplain_peer = "ab"\n', 2, "bsp.plain_peer: "),
        ('[bsp]\ncert = "a.pem"\n', 2, "bsp.cert and bsp.key come together"),
        ('[bsp]\npath = "bsp"\n', 2, "bsp.path = 'bsp' is no path"),
        ('[bsp]\nterminator_certificate = "ab"\n', 2, "allowed: 64 hexadecimal digits"),
        (f'[bsp]\nowners = ["{KEY}", "x"]\n', 2, "bsp.owners: "),
        ("[bsp]\ngroups = [1]\n", 2, "a list of tables, each of names with texts or lists of text"),
        (group(share_with='["x"]'), 2, "bsp.groups: share_with: "),
        (group(share_with='"x"'), 2, "share_with = 'x' is not a list of keys"),
        (group(share_with="[1]"), 2, "a list of tables"),
        (group(frmat='"opaque"'), 2, "bsp.groups: unknown key frmat (known: client_id"),
        (group(format='"xml"'), 2, "allowed: opaque, deps_v1"),
        (group(descriptor="zz"), 2, "is not hexadecimal"),
        (group(client_id="01"), 2, "bsp.groups: group 1: a client identifier has 32 bytes"),
        (group(descriptor="00" * 32_769, name='"tea"'), 2, "bsp.groups: group tea: a descriptor has 32768 bytes"),
        (group() + GROUP, 2, "one group is listed twice"),
        (peer(key="x"), 2, "bsp.peers: key: "),
        (peer(key=KEY, url="https://a"), 2, "is not a bsp+tls:// or bsp+wss:// address"),
        (peer(key=KEY, url="bsp+tls://"), 2, "is no address; allowed: bsp+tls://host:port or bsp+wss://host:port/path"),
        (peer(key=KEY, url="bsp+tls://a:99999"), 2, "is no address"),
        (peer(key=KEY, url="bsp+tls://a:1/path"), 2, "is no address"),
        (peer(key=KEY, url=f"bsp+tls://{'cd' * 32}@a:1"), 2, "another key"),
        (peer(key=KEY, url="bsp+wss://a b/bsp"), 2, "is no address"),
        (peer(key=KEY, host="a"), 2, "unknown key host"),
        (peer(key=KEY) + peer(key=KEY), 2, "one key is listed twice"),
    ],
)
def test_bad_table_is_refused_with_its_line(write, text, line, says):
    """The error begins with file and line and tells what would have been right."""
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


def test_longest_descriptor_of_each_profile_is_allowed(write):
    """32 KiB in the seed's profile, 16 KiB in Briar's; one byte more is refused."""
    briar = {"bsp.profile": "briar"}
    longest = load_config(write(group(descriptor="00" * 32_768)), {}, {})
    of_briar = load_config(write(group(client_id=b"org.example.tea".hex(), descriptor="00" * 16_384)), {}, briar)
    with pytest.raises(ConfigError, match="a descriptor has 16384 bytes at most"):
        load_config(write(group(client_id=b"org.example.tea".hex(), descriptor="00" * 16_385)), {}, briar)

    assert len(read_groups(longest.of(BspSettings).groups)[0].descriptor) == 32_768
    assert read_groups(of_briar.of(BspSettings).groups)[0].client_id == b"org.example.tea"
