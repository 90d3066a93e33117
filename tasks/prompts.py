"""Prompt sets: reading the JSONL, naming a set by its hash, and choosing prompts for a probe."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

from configs.problems import ConfigError, Problem
from configs.values import Value
from tasks.prompt_lines import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_PROBLEMS = 100


class Message(Value):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    """Who speaks."""
    content: str
    """What is said, as plain text."""


class Prompt(Value):
    """One prompt: a conversation that the chat template renders, or a text that is sent as it is.

    Exactly one of ``messages`` and ``text`` is set; ``read_prompts`` sees to that.
    """

    id: str
    """Unique within its file; a repeated prompt carries the suffix "#2", "#3", ..."""
    kind: str
    """Kind of text: code, maths, prose, extraction, chat, analysis, or a word of your own."""
    messages: tuple[Message, ...] | None = None
    """A conversation that ends with the user; rendered with the model's chat template."""
    text: str | None = None
    """Text that is sent untouched, without a chat template."""

    def turns(self) -> list[dict[str, str]]:
        """Return the messages as the dictionaries that chat templates expect; a text has none."""
        return [
            {"role": message.role, "content": message.content} for message in self.messages or ()
        ]

    def plain_text(self) -> str:
        """Return what is sent with ``template: none``: the text, or the contents one by one."""
        if self.text is not None:
            return self.text
        return "\n\n".join(message.content for message in self.messages or ())


def read_prompts(text: str, source: str) -> tuple[Prompt, ...]:
    """Read a prompt set: one JSON object a line with id, kind, and messages or text.

    Blank lines and a byte order mark are ignored. Lines end at a line feed and nowhere else,
    because JSON strings may hold other characters that Python counts as line ends.

    Args:
        text: The file's content.
        source: Its name, for messages.

    Raises:
        ConfigError: with the problems of the whole file, each with line and key; when there are
            more than a hundred (the wrong file, most likely), the rest is only counted.
    """
    prompts: list[Prompt] = []
    problems: list[Problem] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        record, faults = parse_line(line)
        found = [Problem(source, fault.where, fault.message, number) for fault in faults]
        name = None if record is None else record.get("id")
        if isinstance(name, str) and (first := first_line.setdefault(name, number)) != number:
            found.append(
                Problem(source, "id", f'"{name}" was used on line {first} already', number)
            )
        if record is not None and not found:
            prompts.append(Prompt.model_validate(record))
        problems += found
    if not prompts and not problems:
        problems.append(Problem(source, "", "no prompts: the file is empty"))
    if len(problems) > MOST_PROBLEMS:
        more = f"... and {len(problems) - MOST_PROBLEMS} problems more"
        problems = [*problems[:MOST_PROBLEMS], Problem(source, "", more)]
    if problems:
        raise ConfigError(problems)
    return tuple(prompts)


def set_identity(prompts: Iterable[Prompt]) -> str:
    """Return the SHA-256 (hexadecimal) of a set: of what is asked, not of how the file is written.

    The order of the lines, the order of the keys and the spelling of characters in JSON do not
    count; neither do they in ``choose``, so that equal identities mean equal prompts in a probe.
    """
    rows = sorted(prompt.model_dump_json(exclude_none=True) for prompt in prompts)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def base_id(prompt_id: str) -> str:
    """Return the id of the prompt that a repeated one repeats; others come back as they are."""
    return prompt_id.partition("#")[0]


def choose(
    prompts: Iterable[Prompt], count: int, seed: int, kinds: Sequence[str] | None = None
) -> list[Prompt]:
    """Choose ``count`` prompts in a seeded order that keeps the kinds in proportion.

    Every beginning of the list holds each kind in its share of the set, so a probe that stops
    early, or one with fewer prompts, is no other mixture. With equal shares, as in the set that
    ships with the project, every six prompts in turn hold all six kinds. A shorter choice is the
    beginning of a longer one. The order comes from hashes of seed and id, not from a random
    generator: it is the same in every Python version and does not depend on the file's order.

    Only when the set is used up are prompts repeated, in a new order, as "<id>#2", "<id>#3", ...
    A prompt sent twice would find its tokens in the server's prefix cache, and its prefill would
    cost nothing. So a repeated prompt begins with a short line of its own, "(2)" and so on, in
    front of everything, the system message included: prefix caches compare from the first token,
    so nothing behind that line is found (what the chat template puts in front of the first
    message is shared by all prompts anyway). The line is chosen so as not to disturb
    acceptance: digits in brackets are ordinary text that a drafter has seen, unlike random
    letters; they belong to no language, so a German prompt stays a German prompt; they ask for
    nothing that the answer could dwell on; and they are three or four tokens long.
    Answers to repeated prompts are still no independent evidence: intervals over prompts
    must resample by ``base_id``.

    Args:
        prompts: The set.
        count: How many prompts; 0 gives an empty list.
        seed: Any integer; equal seeds give equal lists.
        kinds: Only these kinds; None or empty: all.

    Raises:
        ValueError: when the count is negative, or a kind is asked for that the set does not have,
            or there is nothing to choose from.
    """
    if count < 0:
        raise ValueError(f"cannot choose {count} prompts")
    everything = list(prompts)
    wanted = [p for p in everything if p.kind in kinds] if kinds else everything
    there = {prompt.kind for prompt in everything}
    missing = sorted(set(kinds or ()) - there)
    if missing:
        raise ValueError(
            f"no prompts of kind {', '.join(missing)}; the set has {', '.join(sorted(there))}"
        )
    if not wanted and count:
        raise ValueError("no prompts to choose from")
    chosen: list[Prompt] = []
    turn = 1
    while len(chosen) < count:
        chosen += [_repeated(prompt, turn) for prompt in _one_pass(wanted, seed, turn)]
        turn += 1
    return chosen[:count]


def _one_pass(prompts: Sequence[Prompt], seed: int, turn: int) -> list[Prompt]:
    """Return every prompt once, shuffled within its kind and the kinds spread evenly."""
    by_kind: dict[str, list[tuple[str, Prompt]]] = {}
    for prompt in prompts:
        key = hashlib.sha256(f"{seed}/{turn}/{prompt.id}".encode()).hexdigest()
        by_kind.setdefault(prompt.kind, []).append((key, prompt))
    spread: list[tuple[float, str, Prompt]] = []
    for members in by_kind.values():
        members.sort(key=lambda member: member[0])
        # The middles of n equal parts of the pass; the hash decides between kinds at one place.
        spread += [
            ((place + 0.5) / len(members), key, prompt)
            for place, (key, prompt) in enumerate(members)
        ]
    return [prompt for _, _, prompt in sorted(spread, key=lambda row: row[:2])]


def _repeated(prompt: Prompt, turn: int) -> Prompt:
    if turn == 1:
        return prompt
    mark = f"({turn})\n"
    again = {"id": f"{prompt.id}#{turn}"}
    if prompt.messages is None:
        return prompt.model_copy(update={**again, "text": mark + (prompt.text or "")})
    first = prompt.messages[0]
    marked = first.model_copy(update={"content": mark + first.content})
    return prompt.model_copy(update={**again, "messages": (marked, *prompt.messages[1:])})
