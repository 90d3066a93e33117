"""Who is told what: `configs/notices.yaml`, read by `eagle3-sweep up` and `deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from configs.names import Name, Text
from configs.problems import WrongKeyError
from configs.read import parse
from configs.secret_names import SecretName
from configs.values import Value

FILE: Final = Path("configs") / "notices.yaml"


class Slack(Value):
    """A Slack channel, through an incoming webhook."""

    kind: Literal["slack"] = "slack"
    url_from: SecretName
    """Name of the variable that holds the webhook's address: it is a secret."""


class Email(Value):
    """E-mail through SendGrid, the one mail service that Prefect's own blocks know."""

    kind: Literal["email"] = "email"
    api_key_from: SecretName
    """Name of the variable that holds SendGrid's API key."""
    sender: Text
    to: Annotated[tuple[Text, ...], Field(min_length=1)]


class Webhook(Value):
    """Any address that takes JSON by POST: {"subject": ..., "body": ...}."""

    kind: Literal["webhook"] = "webhook"
    url_from: SecretName
    """Name of the variable that holds the address."""


Destination = Slack | Email | Webhook


class Notices(Value):
    """Who is told what."""

    to: dict[Name, Destination] = {}
    """Destinations by name."""
    morning: tuple[Name, ...] = ()
    """Told once each morning what the night found."""
    host_lost: tuple[Name, ...] = ()
    """Told at once when a host is lost."""

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        for key in ("morning", "host_lost"):
            for name in getattr(self, key):
                if name not in self.to:
                    known = ", ".join(self.to) or "nothing is described under to"
                    raise WrongKeyError(key, f"no destination is called {name!r}: {known}")
        return self


def read_notices(file: Path = FILE) -> Notices | None:
    """The notices of the folder that we are in; None where there is no such file.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    if not file.is_file():
        return None
    return parse(Notices, file.read_text(encoding="utf-8"), str(file))
