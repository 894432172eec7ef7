"""What an operator may say about the pipeline."""

import dataclasses

from waystation.core.settings import check
from waystation.pipeline.settings import PipelineSettings


def test_every_default_is_allowed() -> None:
    """Each default passes the check that a given value must pass, and has help for people."""
    defaults = PipelineSettings()
    for field in dataclasses.fields(PipelineSettings):
        check(PipelineSettings, field.name, getattr(defaults, field.name))

        assert field.metadata["help"].endswith(".")
