"""BSP over the other relays: everything of ``waystation.sdk.bridges``."""

from waystation.sdk.bridges import *  # noqa: F403 - the names of its __all__
