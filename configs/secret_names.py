"""Which variables hold secrets: their values come by name, and are written and shown nowhere."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from configs.names import ENV_PATTERN, EnvName

# Whole words of a name: TOKENIZERS_PARALLELISM and SGLANG_SIMULATE_ACC_TOKEN_MODE are no secrets.
_NAME: Final = re.compile(
    r"(?:^|_)(?:SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_|$)"
    r"|(?:^|_)(?:TOKEN|PAT|API_?KEY|(?:ACCESS|PRIVATE|ADMIN|AUTH)_?KEY)$"
)
# Values that say themselves what they are: Hugging Face, OpenAI, GitHub, Slack, AWS.
_VALUE: Final = re.compile(r"(?:hf_|sk-|gh[pousr]_|github_pat_|xox[abprs]-|AKIA)[A-Za-z0-9_-]{12,}")


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value must not be written anywhere."""
    return _NAME.search(name.upper()) is not None


def secret_reason(name: str, value: str) -> str | None:
    """Why a variable must not stand in a file with its value, or None if it may."""
    if not looks_secret(name) and not _VALUE.match(value):
        return None
    return (
        "looks like a secret written into a file: name it under env_from, and set it in the "
        "controller's environment"
    )


def _only_a_name(value: Any) -> Any:
    """The name of a variable; what may be the secret itself is refused and not repeated."""
    if isinstance(value, str) and (_VALUE.match(value) or not re.fullmatch(ENV_PATTERN, value)):
        raise ValueError(
            "is not the name of a variable (letters, digits and '_', no digit first), and may be "
            "the secret itself: name the variable that holds it, and write its value into no file"
        )
    return value


SecretName = Annotated[EnvName, BeforeValidator(_only_a_name)]
"""The name of a variable of the controller that holds a secret."""
