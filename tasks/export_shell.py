"""An exported setting as a launch script and as a ``docker run`` line."""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING

from tasks.export_plan import Variable, from_home, is_absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tasks.export_plan import Deployment, SourcePatch

# What the projects themselves publish; each tag is a release's number.
_IMAGES = {"sglang": "lmsysorg/sglang", "vllm": "vllm/vllm-openai"}

_NOT_MEASURED = (
    "The trial did not run in a container: image and tag are the engine project's own for this "
    "release. Measure there before you rely on it."
)


def launch_script(plan: Deployment, evidence: Sequence[str]) -> str:
    """A script that starts the engine as the trial did; it stands beside its patches."""
    lines = ["#!/usr/bin/env bash", *comments(evidence), "", "set -euo pipefail", ""]
    lines += _asked(plan)
    lines += [f"cd -- {_shell_path(plan.cwd)}", ""]
    for patch in plan.patches:
        lines += [*_held(patch), ""]
    lines += [f"unset {name}" for name in plan.unset]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(plan.env.items())]
    lines += [f'export {name}="${{{of}}}"' for name, of in sorted(plan.secrets.items())]
    command = [shlex.quote(plan.python), *_paired(plan.words)]
    return "\n".join([*lines, "", _continued(["exec", *command])]) + "\n"


def docker_script(plan: Deployment, evidence: Sequence[str]) -> str:
    """The same in a container of the engine's own image, with the host's network and folders."""
    # A local part (+cu128) says how a wheel was built; no tag has it.
    tag = f":v{plan.version.partition('+')[0]}" if plan.version else ""
    image = f"{_IMAGES[plan.engine]}{tag}"
    lines = [
        "#!/usr/bin/env bash",
        *comments([*evidence, "", _NOT_MEASURED]),
        "",
        "set -euo pipefail",
        "",
    ]
    lines += _asked(plan)
    lines.append(f'IMAGE="${{IMAGE:-{image}}}"')
    if plan.patches:  # before the change of folder: the script's own path may be a relative one
        lines.append('here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"')
    lines += [f"cd -- {_shell_path(plan.cwd)}", ""]
    lines += [f'export {to}="${{{of}}}"' for to, of in sorted(plan.secrets.items()) if to != of]
    if plan.patches:
        lines.append("# shellcheck disable=SC2016  # what is quoted runs in the container")
    command = [*_options(plan), *_entry(plan), *_paired(plan.words)]
    return "\n".join([*lines, _continued(["exec", *command])]) + "\n"


def _options(plan: Deployment) -> list[str]:
    options = ["docker run --rm --gpus all --ipc=host --network=host", "--ulimit memlock=-1"]
    options += [f"--env {shlex.quote(f'{n}={v}')}" for n, v in sorted(plan.env.items())]
    options += [f"--env {name}" for name in sorted(plan.secrets)]  # docker reads the values itself
    options += [_mount(folder) for folder in dict.fromkeys(plan.folders)]
    options += [
        f'--mount "type=bind,src=$here/{p.file},dst=/patches/{p.file},readonly"'
        for p in plan.patches
    ]
    return [*options, '--workdir "$PWD"']


def _entry(plan: Deployment) -> list[str]:
    if not plan.patches:
        return ["--entrypoint python3", '"$IMAGE"']
    return ["--entrypoint bash", '"$IMAGE"', f"-c {shlex.quote(_patched(plan))} bash"]


def comments(lines: Iterable[str]) -> list[str]:
    """Lines as comments of a script or a unit; no text can leave its comment."""
    return [f"# {_one_line(line)}".rstrip() for line in lines]


def apply_line(patch: SourcePatch) -> str:
    """The command that applies a patch on the host, in the folder of the export."""
    return f"patch --forward -p1 -d {shlex.quote(patch.package)} < {shlex.quote(patch.file)}"


def _one_line(text: str) -> str:
    """A text without line ends, control characters or a last backslash, which would join lines."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.rstrip().rstrip("\\")


def _asked(plan: Deployment) -> list[str]:
    lines = [
        f': "${{{name}:?is a secret: set it in the environment, it stands in no file}}"'
        for name in plan.asked
    ]
    return [*lines, f'PORT="${{PORT:-{plan.port}}}"']


def _shell_path(path: str) -> str:
    rest = from_home(path)
    if rest is None:
        return shlex.quote(path)
    return '"$HOME"' + (f"/{shlex.quote(rest)}" if rest else "")


def _held(patch: SourcePatch) -> list[str]:
    """Refuses to start on another source than the trial's: it would fail minutes later, or lie."""
    outcome = patch.outcome
    said = (
        f"{outcome.path} is not the patched file of the trial ({outcome.name}); "
        f"apply it in the folder of this script: {apply_line(patch)}"
    )
    return [
        f"if ! printf '%s  %s\\n' {outcome.sha256_after} {shlex.quote(outcome.path)} |",
        "  sha256sum --check --status; then",
        f"  printf '%s\\n' {shlex.quote(said)} >&2",
        "  exit 1",
        "fi",
    ]


def _patched(plan: Deployment) -> str:
    """What runs in the container: the patches on the image's own source, then the engine."""
    find = f'import importlib.util as u; print(u.find_spec("{plan.engine}").submodule_search_locations[0])'
    steps = [f'package="$(python3 -c {shlex.quote(find)})"']
    steps += [f'patch --forward -p1 -d "$package" < /patches/{p.file}' for p in plan.patches]
    return " && ".join([*steps, 'exec python3 "$@"'])


def _mount(folder: str) -> str:
    """A model's folder, read only, under its own name; docker refuses one that is not there."""
    place = folder if is_absolute(folder) else posixpath.join("$PWD", folder)
    rest = from_home(folder)
    place = posixpath.join("$HOME", rest) if rest is not None else place
    head, _, tail = place.partition("/") if place.startswith("$") else ("", "", place)
    path = f'"{head}"/{shlex.quote(tail)}' if head else shlex.quote(tail)
    return f"--mount type=bind,src={path},dst={path},readonly"


def _paired(words: Iterable[str | Variable]) -> Iterator[str]:
    """Words for a shell, an option and its value together."""
    held: list[str] = []
    for word in words:
        if isinstance(word, str) and word.startswith("--") and held:
            yield " ".join(held)
            held = []
        held.append(f'"${{{word.name}}}"' if isinstance(word, Variable) else shlex.quote(word))
    yield " ".join(held)


def _continued(parts: Sequence[str]) -> str:
    """One command over several lines."""
    first, *rest = [f"{parts[0]} {parts[1]}", *parts[2:]]
    return " \\\n".join([first, *(f"  {part}" for part in rest)])
