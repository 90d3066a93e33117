"""The prompts of a trial, as the engine gets them: chosen, rendered, the same in every block."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from configs.probe import RANDOM, Own, Profile, Stream, own_of, profiles_of, rungs_of, streams_of
from configs.problems import ConfigError, Problem
from configs.read import SHIPPED
from tasks.background import lengthened, passages
from tasks.chat_template import (
    ChatTemplate,
    ChatTemplateError,
    read_chat_template,
    render,
    without_bos,
)
from tasks.drive import Text
from tasks.prompts import choose, read_prompts, set_identity
from tasks.random_prompts import random_prompts
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.sweep import Sweep
    from tasks.prompts import Prompt
    from tasks.venue import Site

BACKGROUND: Final = "mixed"
"""The shipped set whose texts make prompts longer."""


def read_sets(sweep: Sweep) -> dict[str, tuple[Prompt, ...]]:
    """The prompt sets that a sweep's probes name, by name.

    Raises:
        ConfigError: A set that is not there, or what is wrong in it.
    """
    streams, profiles = streams_of(sweep.probes), profiles_of(sweep.probes)
    named = {name: probe.prompts for name, probe in streams.items() if probe.random is None}
    named |= {name: probe.prompts for name, probe in profiles.items()}
    sets = {prompts: _read_set(prompts, sweep, name) for name, prompts in named.items()}
    longer = next((name for name, probe in streams.items() if any(probe.context_tokens)), None)
    if longer is not None:
        sets[BACKGROUND] = _read_set(BACKGROUND, sweep, longer, kinds=False)
    return sets


def identities(sets: Mapping[str, Sequence[Prompt]]) -> dict[str, str]:
    """What goes into the fingerprint of every trial that uses these prompts."""
    return {f"prompts:{name}": set_identity(prompts) for name, prompts in sets.items()}


def fetch_template(site: Site) -> ChatTemplate | None:
    """The target's own chat template, where a probe wants it.

    Raises:
        StageFailedError: The model has none, or none that can be read.
    """
    sweep = site.sweep
    texts = [probe for probe in streams_of(sweep.probes).values() if probe.random is None]
    asking: list[Own] = [*texts, *profiles_of(sweep.probes).values()]
    if all(probe.template.kind == "none" for probe in asking):
        return None
    folder = site.agent.from_cwd(site.engine.model)
    files: dict[str, str | None] = {}
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        try:
            files[name] = site.agent.get(posixpath.join(folder, name)).decode(errors="replace")
        except FileNotFoundError:
            files[name] = None
    try:
        return read_chat_template(files["tokenizer_config.json"], files["chat_template.jinja"])
    except ChatTemplateError as error:
        raise failed("survey", "model_config_invalid", f"{folder}: {error}") from error


def texts_of(
    sweep: Sweep, sets: Mapping[str, Sequence[Prompt]], template: ChatTemplate | None
) -> dict[str, dict[int, list[Text]]]:
    """Probe (and length) -> concurrency -> its requests' texts; the same in every trial.

    Raises:
        StageFailedError: The template refuses a prompt.
    """
    probes: dict[str, Own] = {**rungs_of(sweep.probes), **profiles_of(sweep.probes)}
    return {
        name: {
            level: _texts(probe, sweep.seed, probe.requests(level), sets, template)
            for level in probe.concurrency
        }
        for name, probe in probes.items()
    }


def _texts(
    probe: Own,
    seed: int,
    count: int,
    sets: Mapping[str, Sequence[Prompt]],
    template: ChatTemplate | None,
) -> list[Text]:
    match probe:
        case Stream():
            if probe.random is not None:
                return [
                    Text(f"random-{number}", RANDOM, "", ids)
                    for number, ids in enumerate(random_prompts(probe.random, count, seed), start=1)
                ]
            (length,) = probe.context_tokens or (0,)
        case Profile():
            length = 0
        case _:
            assert_never(probe)
    front = passages(sets[BACKGROUND]) if length else ()
    chosen = choose(sets[probe.prompts], count, seed, probe.kinds or None)
    return [
        Text(
            prompt.id,
            prompt.kind,
            _rendered(lengthened(prompt, length, number, seed, front), probe, template),
        )
        for number, prompt in enumerate(chosen, start=1)
    ]


def _rendered(prompt: Prompt, probe: Own, template: ChatTemplate | None) -> str:
    if probe.template.kind == "none" or prompt.text is not None or template is None:
        return prompt.plain_text()
    try:
        text = render(template, prompt.turns(), probe.template.arguments)
    except ChatTemplateError as error:
        raise failed("survey", "model_config_invalid", f"prompt {prompt.id}: {error}") from error
    # The engine's tokenizer puts the begin token in front of a text by itself.
    return without_bos(template, text)


def _read_set(name: str, sweep: Sweep, probe: str, *, kinds: bool = True) -> tuple[Prompt, ...]:
    where = f"probes.{probe}.prompts"
    file = f"configs/sweeps/{sweep.name}.yaml"
    candidates = [
        Path(name).expanduser(),
        Path("configs/prompts") / f"{name}.jsonl",
        SHIPPED / "prompts" / f"{name}.jsonl",
    ]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        there = ", ".join(sorted(p.stem for p in (SHIPPED / "prompts").glob("*.jsonl")))
        raise ConfigError(
            [Problem(file, where, f"no prompt set {name!r}: a path of yours, or one of {there}")]
        )
    prompts = read_prompts(path.read_text(encoding="utf-8"), str(path))
    wanted = set(own_of(sweep.probes)[probe].kinds) if kinds else set()
    unknown = wanted - {prompt.kind for prompt in prompts}
    if unknown:
        have = ", ".join(sorted({prompt.kind for prompt in prompts}))
        raise ConfigError(
            [
                Problem(
                    file,
                    f"probes.{probe}.kinds",
                    f"{', '.join(sorted(unknown))} is no kind of this set: it has {have}",
                )
            ]
        )
    return prompts
