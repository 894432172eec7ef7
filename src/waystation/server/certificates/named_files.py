"""Checks that the files which settings name are there, so that a start refuses a wrong path with file and line.

``waystation serve`` calls it first: a configuration goes in, a ``ConfigError`` comes out for a missing file. Without it
the error would come later, from the TLS library, without file and line.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from waystation.server.certificates.chosen import certificate_setting, tls_listeners
from waystation.server.config.values import Config
from waystation.server.home import Home
from waystation.server.registry import protocol_tables

__all__ = ["check_named_files"]

_AUTHORITY: Final = "peers_ca"


def check_named_files(config: Config) -> None:
    """Refuse a certificate, key or authority that a setting in use names and that is not there.

    The home's own may be missing: a start makes them.

    Raises:
        ConfigError: One is missing, or a folder. What cannot be read is not this check's matter.
    """
    home = Home(config.node.home)
    made = {file.absolute() for file in (home.cert_path, home.tls_key_path, home.ca_path)}
    for name, path in _named(config):
        if Path(path).absolute() in made:
            continue
        try:
            is_folder = Path(path).is_dir()
            Path(path).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise config.origin(name).refuse(f'{name} = "{path}": there is no such file') from error
        except OSError:
            continue
        if is_folder:
            raise config.origin(name).refuse(f'{name} = "{path}" is a folder; name the file in it')


def _named(config: Config) -> Iterator[tuple[str, str]]:
    """Yield setting and path of every file that is read at the start."""
    settings = {certificate_setting(config, table) for table in tls_listeners(config).values()} - {""}
    for setting in sorted(settings):
        table = setting.removesuffix(".cert")
        listen = next((each.listen for each in protocol_tables() if each.name == table), None)
        part = config.node if listen is None else config.of(listen)
        yield from ((f"{table}.{key}", getattr(part, key)) for key in ("cert", "key"))
    for each in protocol_tables():
        path = getattr(config.of(each.settings), _AUTHORITY, "")
        if path and config.of(each.listen).enabled:
            yield f"{each.name}.{_AUTHORITY}", path
