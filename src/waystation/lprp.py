"""LPRP for programs: everything of ``waystation.sdk.lprp``."""

from waystation.sdk.lprp import *  # noqa: F403 - the names of its __all__
