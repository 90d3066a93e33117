"""The base of every value that crosses a file, a process or a form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen model that refuses unknown keys.

    A misspelt key that is silently ignored keeps a night running with the wrong setting;
    so unknown keys are errors everywhere (``extra="forbid"``). Docstrings below the fields
    become the help texts of Prefect's run form.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )
