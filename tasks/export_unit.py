"""An exported setting as a systemd unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tasks.export_plan import Variable, from_home
from tasks.export_shell import comments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.export_plan import Deployment, SourcePatch

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SECRETS = "/etc/eagle3-sweep"
_RESTART = (
    "A server that was killed and started again on its port can hang (sglang#22779): look at it",
    "after a restart.",
)
_CHECK = 'printf \'%s  %s\\n\' "$1" "$2" | sha256sum --check --status'


def unit_file(plan: Deployment, evidence: Sequence[str]) -> str:
    """A unit that starts the engine as the trial did.

    Stopped as a sweep does it: SIGTERM to the server alone, which lets requests finish, then
    SIGKILL to all that is left of it.
    """
    lines = [
        *comments(evidence),
        "",
        "[Unit]",
        f"Description={_escaped(plan.label)} (eagle3-sweep)",
    ]
    lines += ["Wants=network-online.target", "After=network-online.target", "", "[Service]"]
    lines += ["Type=exec", *_place(plan)]
    lines.append(f"Environment=PORT={plan.port}")
    lines += [f"Environment={word(f'{n}={v}', runs=False)}" for n, v in sorted(plan.env.items())]
    lines += _secrets(plan)
    lines += [f"UnsetEnvironment={name}" for name in plan.unset]
    lines += [_check(patch) for patch in plan.patches]
    lines.append(f"ExecStart={_command(plan)}")
    lines += ["KillMode=mixed", "TimeoutStopSec=60", "LimitMEMLOCK=infinity", *comments(_RESTART)]
    lines += ["Restart=on-failure", "RestartSec=30"]
    return "\n".join([*lines, "", "[Install]", "WantedBy=multi-user.target"]) + "\n"


def word(text: str, *, runs: bool = True) -> str:
    """One word of a unit's setting: ``%`` is a specifier there, and ``$`` a variable in commands.

    Args:
        text: The word.
        runs: Whether it stands in a command.
    """
    escaped = text.replace("%", "%%")
    if runs:
        escaped = escaped.replace("$", "$$")
    if _PLAIN.fullmatch(text) is not None:
        return escaped
    quoted = escaped.replace("\\", "\\\\").replace('"', '\\"')
    quoted = quoted.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{quoted}"'


def _escaped(text: str) -> str:
    """A text outside words."""
    return text.replace("%", "%%")


def _place(plan: Deployment) -> Iterator[str]:
    yield f"User={plan.user}" if plan.user else "# User=whoever owns the engine's environment"
    home = from_home(plan.cwd)
    yield f"WorkingDirectory={'~' if home is not None else _escaped(plan.cwd)}"


def _secrets(plan: Deployment) -> Iterator[str]:
    if not plan.asked:
        return
    file = f"{_SECRETS}/{plan.slug}.env"
    names = sorted({*plan.secrets, *(w.name for w in plan.words if isinstance(w, Variable))})
    names = [name for name in names if name != "PORT"]
    yield from comments([f"Mode 0600, a line NAME=value each: {', '.join(names)}"])
    yield f"EnvironmentFile={_escaped(file)}"


def _check(patch: SourcePatch) -> str:
    """Refuses to start on another source than the trial's."""
    outcome = patch.outcome
    words = ["/bin/sh", "-c", _CHECK, "sh", outcome.sha256_after or "", outcome.path]
    return "ExecStartPre=" + " ".join(word(one) for one in words)


def _command(plan: Deployment) -> str:
    """The command over several lines; a folder below the home needs a program that goes there."""
    below = from_home(plan.cwd)
    parts = [
        f"/usr/bin/env {word(f'--chdir={below}')} {word(plan.python)}"
        if below
        else word(plan.python)
    ]
    for one in plan.words:
        said = f"${{{one.name}}}" if isinstance(one, Variable) else word(one)
        if isinstance(one, str) and one.startswith("--"):
            parts.append(said)
        else:
            parts[-1] += f" {said}"
    return " \\\n  ".join(parts)
