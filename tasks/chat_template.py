"""Renders conversations with a model's own chat template, as its tokenizer files give it.

Templates are Jinja programs that models bring along. They expect the environment that the
Hugging Face documentation describes ("Template writing", transformers 4.50; renderings compared
with those of transformers 5.24):
blocks trimmed, ``raise_exception``, ``strftime_now``, ``tojson`` that leaves every character as
it is, ``break`` and ``continue``, the ``generation`` block, and the special tokens by name.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Never

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser

CONFIG = "tokenizer_config.json"
JINJA = "chat_template.jinja"
DEFAULT = "default"
# A template that prints today's date would make other prompts every day, and trials of two
# nights would not be comparable; so "now" is the same moment unless the caller says otherwise.
NOW = datetime(2026, 1, 1)  # noqa: DTZ001 - templates format local time, no zone is meant
OURS = ("messages", "add_generation_prompt")


class ChatTemplateError(ValueError):
    """The model's chat template is missing, cannot be read, or does not render the prompt."""


class ChatTemplate(Value):
    """A model's chat template with the special tokens that it may print."""

    source: str
    """The Jinja text."""
    tokens: dict[str, str]
    """Special tokens by name: bos_token, eos_token, ..."""
    adds_bos: bool | None
    """Whether the tokenizer puts the begin token in front of a text by itself; None: not said."""


def read_chat_template(
    config: str | None, jinja: str | None = None, name: str = DEFAULT
) -> ChatTemplate:
    """Find the chat template in the text of a model's tokenizer files.

    ``chat_template.jinja`` wins over ``chat_template`` in ``tokenizer_config.json``, as it does
    in transformers; the special tokens come from the latter in both cases.

    Args:
        config: Text of tokenizer_config.json, or None when there is no such file.
        jinja: Text of chat_template.jinja, or None when there is no such file.
        name: Which one to take where the configuration holds several named templates.

    Raises:
        ChatTemplateError: when there is no template, or the configuration cannot be read.
    """
    settings = _settings(config)
    source = jinja if jinja is not None else _named(settings.get("chat_template"), name)
    if source is None or not source.strip():
        raise ChatTemplateError(
            f"the model has no chat template, neither in {JINJA} nor in {CONFIG}: it is a base "
            "model, or the file was not copied. To send the prompts' plain text without a "
            "template, write `template: {kind: none}` in the probe"
        )
    tokens = {
        key: token
        for key, value in settings.items()
        if key.endswith("_token") and (token := _token(value)) is not None
    }
    adds = settings.get("add_bos_token")
    return ChatTemplate(
        source=source, tokens=tokens, adds_bos=adds if isinstance(adds, bool) else None
    )


def render(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, str]],
    arguments: Mapping[str, object] | None = None,
    now: datetime = NOW,
) -> str:
    """Render a conversation up to the point where the assistant begins to answer.

    The template runs in Jinja's sandbox: it cannot reach files, modules or attributes with an
    underscore. It can still take long, so use the templates of models that you would run.

    Args:
        template: From ``read_chat_template``.
        messages: Dictionaries with role and content, such as ``Prompt.turns`` returns.
        arguments: Extra arguments of the template, such as enable_thinking or thinking.
        now: What ``strftime_now`` formats.

    Raises:
        ChatTemplateError: when the template cannot be read or raises, when an argument would
            replace one of ours, or when the rendering lacks the text of the last message.
    """
    extra = dict(arguments or {})
    taken = sorted(set(extra) & set(OURS))
    if taken:
        raise ChatTemplateError(f"{', '.join(taken)}: not an argument that a probe may set")
    values = {
        "tools": None,
        "documents": None,
        **template.tokens,
        **extra,
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": True,
    }
    try:
        text = _environment(now).from_string(template.source).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateError(
            f"the chat template cannot be read: {error.message} (its line {error.lineno})"
        ) from error
    # A template is a program of somebody else's: it may raise whatever Python can.
    except Exception as error:
        raise ChatTemplateError(
            f"the chat template refused the prompt: {_first_line(error)}"
        ) from error
    last = messages[-1]["content"] if messages else ""
    if _without_spaces(last) not in _without_spaces(text) or not text:
        raise ChatTemplateError(
            "the chat template left out the text of the last message: it probably expects the "
            "content in another form (a list of parts) or another order of roles"
        )
    return text


def without_bos(template: ChatTemplate, text: str) -> str:
    """Drop a begin token that the template printed.

    For rendered text that goes through a tokenizer which adds a begin token of its own: two of
    them are a prompt that the model was never trained on. Only the caller knows what the engine
    does with text; ``ChatTemplate.adds_bos`` is what the tokenizer's configuration says.
    """
    bos = template.tokens.get("bos_token", "")
    return text.removeprefix(bos)


def _settings(config: str | None) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        value = json.loads(config.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ChatTemplateError(f"{CONFIG} is not JSON: {_first_line(error)}") from error
    if not isinstance(value, dict):
        raise ChatTemplateError(f"{CONFIG} is JSON, but not an object")
    return value


def _named(value: object, name: str) -> str | None:
    """Return the template out of a string or a list of {name, template}."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ChatTemplateError(f"chat_template in {CONFIG} is neither a string nor a list")
    named: dict[str, str] = {
        entry["name"]: entry["template"]
        for entry in value
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("template"), str)
    }
    if name in named:
        return named[name]
    if len(named) == 1 and name == DEFAULT:
        return next(iter(named.values()))
    if not named:
        return None
    raise ChatTemplateError(
        f'no chat template is called "{name}"; {CONFIG} has {", ".join(sorted(named))}'
    )


def _token(value: object) -> str | None:
    """Return a special token that is written as a string or as an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``: marks the assistant's words for training.

    Rendering shows what is inside and nothing else; what is set inside stays inside.
    """

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment(now: datetime) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is text for a tokenizer, not a web page
        extensions=[loopcontrols, _Generation],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> Never:
    raise jinja2.TemplateError(str(message))


def _first_line(error: Exception) -> str:
    """Return the error in one short line, with its type where the text alone says little."""
    lines = str(error).strip().splitlines() or [""]
    words = lines[0][:300]
    return (
        words
        if isinstance(error, jinja2.TemplateError) and words
        else (f"{type(error).__name__}: {words}" if words else type(error).__name__)
    )


def _without_spaces(text: str) -> str:
    return "".join(text.split())
