"""Prefect's notification blocks and automations, made from configs/notices.yaml; twice is once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, assert_never

from prefect.blocks.notifications import (
    CustomWebhookNotificationBlock,
    SendgridEmail,
    SlackWebhook,
)
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from pydantic import SecretStr

from configs.notices import FILE, Destination, Email, Slack, Webhook
from configs.problems import ConfigError, Problem
from flows.telling import HOST_LOST, MORNING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from configs.notices import Notices

_OURS: Final = "eagle3: "
_KEYS: Final[Mapping[str, str]] = {"morning": MORNING, "host_lost": HOST_LOST}


def read_secrets(notices: Notices) -> dict[str, str]:
    """The secrets that the destinations name, from the environment.

    Raises:
        ConfigError: Variables that are not set.
    """
    named = {
        f"to.{name}.{key}": variable
        for name, destination in notices.to.items()
        for key, variable in destination.model_dump().items()
        if key.endswith("_from")
    }
    wrong = [
        Problem(str(FILE), where, f"{variable} is not set: set it where you run this command")
        for where, variable in named.items()
        if not os.environ.get(variable)
    ]
    if wrong:
        raise ConfigError(wrong)
    return {variable: os.environ[variable] for variable in named.values()}


def set_up_notices(notices: Notices, say: Callable[[str], None]) -> None:
    """Makes blocks and automations as the file says, and takes away ours that it no longer names.

    Raises:
        ConfigError: A secret is not set.
    """
    secrets = read_secrets(notices)
    blocks = {
        name: _block(destination, secrets).save(f"eagle3-{_slug(name)}", overwrite=True)
        for name, destination in notices.to.items()
    }
    wanted = {
        f"{_OURS}{key} to {name}": _automation(f"{_OURS}{key} to {name}", event, blocks[name])
        for key, event in _KEYS.items()
        for name in getattr(notices, key)
    }
    with get_client(sync_client=True) as client:
        _make(client, wanted)
    told = [f"{key} to {', '.join(getattr(notices, key)) or 'nobody'}" for key in _KEYS]
    say(f"notices: {'; '.join(told)}")


def _make(client: SyncPrefectClient, wanted: Mapping[str, AutomationCore]) -> None:
    there = {found.name: found.id for found in client.read_automations()}
    for name, automation in wanted.items():
        if name in there:
            client.update_automation(there[name], automation)
        else:
            client.create_automation(automation)
    for name, known in there.items():
        if name.startswith(_OURS) and name not in wanted:
            client.delete_automation(known)


def _block(
    destination: Destination, secrets: Mapping[str, str]
) -> SlackWebhook | SendgridEmail | CustomWebhookNotificationBlock:
    match destination:
        case Slack(url_from=variable):
            return SlackWebhook(url=SecretStr(secrets[variable]))
        case Email(api_key_from=variable, sender=sender, to=to):
            key = SecretStr(secrets[variable])
            return SendgridEmail(api_key=key, sender_email=sender, to_emails=list(to))
        case Webhook(url_from=variable):
            # The address as a secret of the block, so that no page and no API shows it.
            return CustomWebhookNotificationBlock(
                name="eagle3",
                url="{{url}}",
                json_data={"subject": "{{subject}}", "body": "{{body}}"},
                secrets=_secret({"url": secrets[variable]}),
            )
        case _:
            assert_never(destination)


def _secret(values: dict[str, str]) -> Any:
    from prefect.types import SecretDict
    from pydantic import TypeAdapter

    return TypeAdapter(SecretDict).validate_python(values)


def _automation(name: str, event: str, block: Any) -> AutomationCore:
    return AutomationCore(
        name=name,
        description="Made by `eagle3-sweep up` from configs/notices.yaml; changes here are lost.",
        enabled=True,
        trigger=EventTrigger(
            expect={event},
            # One message for each event: events are told apart by their ids.
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[
            SendNotification(
                block_document_id=block,
                subject="{{ event.payload.subject }}",
                body="{{ event.payload.text }}",
            )
        ],
    )


def _slug(name: str) -> str:
    """A block's name: lower case, digits and dashes."""
    return name.replace(".", "-").replace("_", "-")
