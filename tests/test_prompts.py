"""Prompt sets: what a user is told about a broken file, and which prompts a probe gets."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.problems import ConfigError
from tasks.prompts import Message, Prompt, base_id, choose, read_prompts, set_identity

SHIPPED = Path(__file__).parent.parent / "configs" / "prompts" / "mixed.jsonl"
KINDS = ("code", "maths", "prose", "extraction", "chat", "analysis")


def line(**changes: object) -> str:
    record: dict[str, object] = {
        "id": "a-1",
        "kind": "chat",
        "messages": [{"role": "user", "content": "Hello?"}],
    }
    return json.dumps({k: v for k, v in {**record, **changes}.items() if v != "absent"})


def turns(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": f"words of {role}"} for role in roles]


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_prompts(text, "mine.jsonl")
    return [str(problem) for problem in caught.value.problems]


def a_set(**counts: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(
            id=f"{kind}-{i}",
            kind=kind,
            messages=(Message(role="user", content=f"{kind} question {i}"),),
        )
        for kind, count in counts.items()
        for i in range(count)
    )


def test_the_shipped_set_holds_sixteen_prompts_of_each_of_six_kinds():
    prompts = read_prompts(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)
    assert Counter(prompt.kind for prompt in prompts) == dict.fromkeys(KINDS, 16)
    assert all(prompt.id.startswith(prompt.kind + "-") for prompt in prompts)


def test_no_two_shipped_prompts_begin_alike_so_none_finds_another_in_the_prefix_cache():
    prompts = read_prompts(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)
    beginnings = Counter(prompt.plain_text()[:24] for prompt in prompts)
    assert [start for start, count in beginnings.items() if count > 1] == []


def test_the_readme_of_the_shipped_set_states_its_identity():
    prompts = read_prompts(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)
    readme = (SHIPPED.parent / "README.md").read_text(encoding="utf-8")
    assert set_identity(prompts) in readme


def test_messages_and_plain_texts_are_read():
    chat, text = read_prompts(
        line(messages=turns("system", "user", "assistant", "user"))
        + "\n"
        + line(id="b", messages="absent", text="Once upon a time"),
        "mine.jsonl",
    )
    assert [turn["role"] for turn in chat.turns()] == ["system", "user", "assistant", "user"]
    assert chat.plain_text().startswith("words of system\n\nwords of user")
    assert (text.turns(), text.plain_text()) == ([], "Once upon a time")


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_do_no_harm():
    prompts = read_prompts("\ufeff" + line() + "\r\n\r\n" + line(id="b") + "\r\n", "mine.jsonl")
    assert [prompt.id for prompt in prompts] == ["a-1", "b"]


def test_a_line_separator_inside_a_prompt_does_not_end_its_line():
    raw = line().replace("Hello?", "one\u2028two\x85three")
    (prompt,) = read_prompts(raw, "mine.jsonl")
    assert prompt.plain_text() == "one\u2028two\x85three"


def test_all_problems_of_a_file_come_at_once_each_with_its_line():
    text = "\n".join([line(), "{not json", line(id="b", kind=None), line(), "", "[1]"])
    assert problems(text) == [
        "mine.jsonl:2: not JSON: Expecting property name enclosed in double quotes at column 2",
        "mine.jsonl:3: kind: missing",
        'mine.jsonl:4: id: "a-1" was used on line 1 already',
        "mine.jsonl:6: an object is needed, with id, kind and messages or text, not a list",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (line(id="absent"), "id: missing"),
        (line(id=7), "id: must be a string, not a number"),
        (line(id="two words"), 'id: "two words" is not 1 to 80 of'),
        (line(id="code-01#2"), 'id: "code-01#2" is not 1 to 80 of'),
        (line(id=""), 'id: "" is not 1 to 80 of'),
        (line(id="x" * 81), "is not 1 to 80 of"),
        (line(kind=True), "kind: must be a string, not true or false"),
        (line(promt="x"), "promt: unknown key (known: id, kind, messages, text)"),
        (line(messages="absent"), "messages or text is missing"),
        (line(text="x"), "messages and text exclude each other"),
        (line(messages="absent", text=" \n"), "text: empty"),
        (line(messages="absent", text=["x"]), "text: must be a string (plain text, no parts)"),
        (line(messages=[]), "messages: must be a list of messages, not an empty list"),
        (line(messages="Hello"), "messages: must be a list of messages, not a string"),
        (line(messages=["Hello"]), "messages.1: an object with role and content is needed"),
        (line(messages=[{"role": "user"}]), "messages.1.content: missing"),
        (line(messages=[{"content": "x"}]), "messages.1.role: must be system, user or assistant"),
        (
            line(messages=[{"role": "human", "content": "x"}]),
            'messages.1.role: must be system, user or assistant, not "human"',
        ),
        (
            line(messages=[{"role": "user", "content": "x", "name": "y"}]),
            "messages.1.name: unknown key (known: role, content)",
        ),
        (
            line(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
            "messages.1.content: must be a string (plain text, no parts), not a list",
        ),
        (line(messages=turns("system")), "a system message alone asks nothing"),
        (line(messages=turns("user", "system")), "a system message may only come first"),
        (line(messages=turns("assistant", "user")), "must take turns, the user first"),
        (line(messages=turns("user", "user")), "must take turns, the user first"),
        (line(messages=turns("user", "assistant")), "the last message must be the user's"),
        ('{"id": "a", "id": "b", "kind": "c", "text": "x"}', "id: this key stands twice"),
        ('{"id": "a", "kind": "c", "text": "\\ud83d"}', "text: holds half of a surrogate pair"),
        ("[" * 100_000, "not JSON that can be read"),
        ('{"id": ' + "9" * 5000 + "}", "not JSON that can be read"),
        ("null", "not null"),
    ],
)
def test_each_mistake_is_named(wrong, said):
    (found,) = problems(wrong)
    assert found.startswith("mine.jsonl:1: ")
    assert said in found


def test_several_mistakes_of_one_prompt_are_all_named():
    assert len(problems(line(id="#", kind=3, messages=[{"role": "x", "content": ""}]))) == 4


def test_a_file_without_prompts_is_refused():
    assert problems("\n \n") == ["mine.jsonl: no prompts: the file is empty"]


def test_the_wrong_file_altogether_does_not_flood_the_terminal():
    found = problems("no prompt at all\n" * 5000)
    assert len(found) == 101
    assert found[-1] == "mine.jsonl: ... and 4900 problems more"


@settings(deadline=None)  # a busy machine is no fault of the code
@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_no_text_makes_reading_fail_in_another_way(text):
    with suppress(ConfigError):
        read_prompts(text, "mine.jsonl")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["role", "content"]), inner)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["id", "kind", "messages", "text", "more"]), json_values),
)
def test_no_json_makes_reading_fail_in_another_way(record):
    with suppress(ConfigError):
        (prompt,) = read_prompts(json.dumps(record), "mine.jsonl")
        assert prompt.plain_text().strip()


def test_the_identity_is_of_the_prompts_and_not_of_the_file():
    first, second = line(), line(id="b", messages=turns("user"))
    spaced = json.dumps(json.loads(first), indent=None, separators=(" , ", " : "))
    once = read_prompts(first + "\n" + second, "x")
    other_way = read_prompts(second + "\n\n" + spaced, "y")
    assert set_identity(once) == set_identity(other_way)
    assert len(set_identity(once)) == 64


def test_any_change_of_a_prompt_changes_the_identity():
    changed = (line(id="z"), line(kind="code"), line(messages=turns("user")))
    identities = {set_identity(read_prompts(text, "x")) for text in (line(), *changed)}
    assert len(identities) == 4
    assert set_identity(a_set(code=2)) != set_identity(a_set(code=1))


def test_a_choice_depends_on_the_seed_and_on_nothing_else():
    prompts = a_set(code=16, chat=16)
    ids = [prompt.id for prompt in choose(prompts, 32, seed=7)]
    assert ids == [prompt.id for prompt in choose(reversed(prompts), 32, seed=7)]
    assert ids != [prompt.id for prompt in choose(prompts, 32, seed=8)]
    assert sorted(ids) == sorted(prompt.id for prompt in prompts)


def test_a_choice_stays_the_same_in_later_versions():
    assert [prompt.id for prompt in choose(a_set(a=2, b=2), 6, seed=1)] == [
        "a-0",
        "b-1",
        "a-1",
        "b-0",
        "b-0#2",
        "a-1#2",
    ]


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(KINDS), st.integers(1, 12), min_size=1),
    st.integers(0, 60),
    st.integers(),
)
def test_every_beginning_of_a_choice_holds_the_kinds_in_their_shares(counts, count, seed):
    prompts = a_set(**counts)
    chosen = choose(prompts, count, seed)
    assert len(chosen) == count
    assert len({prompt.id for prompt in chosen}) == count
    for end in range(1, min(count, len(prompts)) + 1):
        found = Counter(prompt.kind for prompt in chosen[:end])
        for kind, size in counts.items():
            assert abs(found[kind] - end * size / len(prompts)) <= 1 + len(counts) / 2


def test_with_equal_shares_every_six_prompts_hold_all_six_kinds():
    chosen = choose(a_set(**dict.fromkeys(KINDS, 16)), 96, seed=3)
    for start in range(0, 96, 6):
        assert {prompt.kind for prompt in chosen[start : start + 6]} == set(KINDS)


def test_a_shorter_choice_is_the_beginning_of_a_longer_one():
    prompts = a_set(code=3, chat=5)
    longest = choose(prompts, 40, seed=0)
    assert all(choose(prompts, count, seed=0) == longest[:count] for count in range(40))


def test_only_the_kinds_asked_for_are_chosen():
    prompts = a_set(code=3, chat=5, prose=2)
    assert {prompt.kind for prompt in choose(prompts, 20, 0, ["code", "prose"])} == {
        "code",
        "prose",
    }
    assert choose(prompts, 20, 0, ()) == choose(prompts, 20, 0)


def test_a_kind_that_the_set_lacks_is_named_with_those_that_it_has():
    with pytest.raises(ValueError, match=r"no prompts of kind cod; the set has chat, code"):
        choose(a_set(code=1, chat=1), 2, 0, ["cod", "chat"])


def test_a_negative_count_and_an_empty_set_are_refused():
    with pytest.raises(ValueError, match="cannot choose -1 prompts"):
        choose(a_set(code=1), -1, 0)
    with pytest.raises(ValueError, match="no prompts to choose from"):
        choose((), 1, 0)
    assert choose((), 0, 0) == []


def test_prompts_are_repeated_only_when_the_set_is_used_up():
    chosen = choose(a_set(code=2, chat=1), 7, seed=5)
    assert all("#" not in prompt.id for prompt in chosen[:3])
    assert all(prompt.id.endswith("#2") for prompt in chosen[3:6])
    assert chosen[6].id.endswith("#3")
    assert {base_id(prompt.id) for prompt in chosen[3:6]} == {p.id for p in chosen[:3]}


def test_a_repeated_prompt_differs_from_its_first_character_on():
    (prompt,) = read_prompts(line(messages=turns("system", "user", "assistant", "user")), "x")
    (text,) = read_prompts(line(id="t", messages="absent", text="Il était une fois"), "x")
    first, again, third = choose([prompt], 3, seed=0)
    assert first == prompt
    assert again.turns()[0]["content"] == "(2)\nwords of system"
    assert again.turns()[1:] == prompt.turns()[1:]
    assert third.turns()[0]["content"] == "(3)\nwords of system"
    assert choose([text], 2, seed=0)[1].text == "(2)\nIl était une fois"


def test_base_id_leaves_other_ids_alone():
    assert (base_id("code-01"), base_id("code-01#12")) == ("code-01", "code-01")
