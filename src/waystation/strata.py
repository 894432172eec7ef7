"""Strata for programs: everything of ``waystation.sdk.strata``."""

from waystation.sdk.strata import *  # noqa: F403 - the names of its __all__
