"""Everything that a client raises on purpose, in one tree; see ``waystation.sdk.errors``."""

from waystation.sdk.errors import *  # noqa: F403 - the names of its __all__
