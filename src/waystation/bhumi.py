"""Bhumi for programs: everything of ``waystation.sdk.bhumi``."""

from waystation.sdk.bhumi import *  # noqa: F403 - the names of its __all__
