"""MERK for programs: everything of ``waystation.sdk.merk``."""

from waystation.sdk.merk import *  # noqa: F403 - the names of its __all__
