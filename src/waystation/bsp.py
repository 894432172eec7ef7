"""BSP for programs: everything of ``waystation.sdk.bsp``."""

from waystation.sdk.bsp import *  # noqa: F403 - the names of its __all__
