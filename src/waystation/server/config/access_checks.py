"""Parses the lists of ``[access]`` (who may use the node), and refuses an entry that names nobody.

``config.load`` checks each list with it; ``NodeServer`` gives the parsed ``AccessRules`` to ``engine.access``.
"""

from waystation.engine.access import AccessRules, parse_access
from waystation.server.config.settings import AccessSettings

__all__ = ["access_rules", "check_access"]


def access_rules(settings: AccessSettings) -> AccessRules:
    """Return the lists as the engine asks them.

    Raises:
        LocalError: An entry is none that its list takes; begins with the name of the setting.
    """
    return parse_access(settings.allow, settings.deny, settings.unlimited)


def check_access(settings: AccessSettings, name: str) -> None:
    """Check one list of ``[access]``.

    Raises:
        LocalError: An entry is none that the list takes; begins with the name of the setting.
    """
    entries: list[str] = getattr(settings, name)
    parse_access(**{"allow": [], "deny": [], "unlimited": [], name: entries})
