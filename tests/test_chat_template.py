"""Chat templates: models' templates render as their engines would, and failures explain."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.chat_template import (
    ChatTemplate,
    ChatTemplateError,
    read_chat_template,
    render,
    without_bos,
)

USER = [{"role": "user", "content": "  What is a weir? "}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a weir?"},
    {"role": "assistant", "content": "A wall across a river."},
    {"role": "user", "content": "Why?"},
]

# Turns between two marks, with a switch for thinking.
CHATML = """
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# Headers, a date in the system turn, the begin token in front of everything.
HEADERS = """{{ bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set rules, rest = messages[0].content, messages[1:] %}
{%- else %}
    {%- set rules, rest = '', messages %}
{%- endif %}
{{- '<|head|>system<|/head|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n\\n' + rules }}{{ eos_token }}
{%- for message in rest %}
    {%- if message.role not in ['user', 'assistant'] %}{% continue %}{% endif %}
    {{- '<|head|>' + message.role + '<|/head|>\\n\\n' + message.content | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}"""

# Macros, one mark per role, a default system turn, no begin token, thinking on unless told.
MARKED = """{%- macro show(content) -%}
  {%- if content is string -%}{{ content }}
  {%- else -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- if messages[0]['role'] != 'system' -%}
  <|im_system|>system<|im_middle|>You are helpful.<|im_end|>
{%- endif -%}
{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}<|im_user|>user<|im_middle|>
  {%- elif message['role'] == 'assistant' -%}<|im_assistant|>assistant<|im_middle|>
  {%- else -%}<|im_system|>system<|im_middle|>{%- endif -%}
  {{ show(message['content']) }}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
  <|im_assistant|>assistant<|im_middle|>
  {%- if thinking is defined and not thinking -%}<think></think>{%- else -%}<think>{%- endif -%}
{%- endif -%}"""


def config(template: object = None, **more: object) -> str:
    settings: dict[str, object] = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        **more,
    }
    return json.dumps(settings if template is None else {**settings, "chat_template": template})


def rendered(source: str, messages: list[dict[str, str]] = USER, **arguments: object) -> str:
    return render(read_chat_template(config(source)), messages, arguments)


def test_a_template_with_marks_renders_up_to_the_answer():
    assert rendered(CHATML, TALK) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is a weir?<|im_end|>\n"
        "<|im_start|>assistant\nA wall across a river.<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_thinking_is_switched_by_an_argument_of_the_probe():
    assert rendered(CHATML, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert rendered(CHATML, enable_thinking=True).endswith("assistant\n")
    assert rendered(MARKED).endswith("<|im_middle|><think>")
    assert rendered(MARKED, thinking=False).endswith("<|im_middle|><think></think>")


def test_a_template_with_headers_prints_special_tokens_and_skips_with_continue():
    assert rendered(HEADERS, [*TALK[:1], {"role": "tool", "content": "?"}, *TALK[1:2]]) == (
        "<s><|head|>system<|/head|>\n\nToday: 01 Jan 2026\n\nBe brief.</s>"
        "<|head|>user<|/head|>\n\nWhat is a weir?</s>"
        "<|head|>assistant<|/head|>\n\n"
    )


def test_a_template_with_macros_and_a_default_system_turn():
    assert rendered(MARKED, TALK[1:2]) == (
        "<|im_system|>system<|im_middle|>You are helpful.<|im_end|>"
        "<|im_user|>user<|im_middle|>What is a weir?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>"
    )


def test_the_date_is_the_same_every_day_unless_the_caller_gives_one():
    template = read_chat_template(config(HEADERS))
    assert render(template, TALK) == render(template, TALK)
    assert "Today: 09 Jun 2027" in render(template, TALK, now=datetime(2027, 6, 9, tzinfo=UTC))


def test_blocks_are_trimmed_and_a_block_indented_on_its_line_leaves_no_space():
    source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    assert rendered(source) == "  What is a weir? \n"


def test_tojson_leaves_characters_alone_and_knows_the_usual_arguments():
    tools = [{"name": "größe", "mark": "<&'>"}]
    compact = "{{ messages[0].content }}{{ tools | tojson(separators=(',', ':')) }}"
    indented = "{{ messages[0].content }}{{ tools | tojson(indent=2) }}"
    assert rendered(compact, tools=tools).endswith('[{"name":"größe","mark":"<&\'>"}]')
    assert '[\n  {\n    "name": "größe"' in rendered(indented, tools=tools)


def test_absent_tools_and_documents_are_none_and_not_undefined():
    source = "{{ messages[0].content }}{{ tools is none and documents is none }}"
    assert rendered(source).endswith("True")


def test_text_between_generation_marks_is_rendered_and_its_variables_stay_inside():
    source = (
        "{% for m in messages %}{% generation %}{% set x = 1 %}{{ m.content }}{% endgeneration %}"
        "{% endfor %}{{ x is defined }}"
    )
    assert rendered(source) == "  What is a weir? False"


def test_a_dictionary_of_a_message_may_be_read_with_get_and_items():
    assert rendered("{{ messages[0].get('name', '-') }}{{ messages[0].content }}")[0] == "-"


def test_the_separate_template_file_wins_and_the_tokens_still_come_from_the_configuration():
    template = read_chat_template(
        config("old"), "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    )
    assert render(template, USER) == "<s>  What is a weir? </s>"


def test_a_template_file_alone_is_enough():
    assert render(read_chat_template(None, CHATML), USER).startswith("<|im_start|>user")


def test_of_several_named_templates_the_default_or_the_named_one_is_taken():
    several = [
        {"name": "tool_use", "template": "T{{ messages[0].content }}"},
        {"name": "default", "template": "D{{ messages[0].content }}"},
    ]
    assert render(read_chat_template(config(several)), USER)[0] == "D"
    assert render(read_chat_template(config(several), name="tool_use"), USER)[0] == "T"
    assert render(read_chat_template(config(several[:1])), USER)[0] == "T"
    with pytest.raises(ChatTemplateError, match=r'called "rag"; .* has default, tool_use'):
        read_chat_template(config(several), name="rag")


@pytest.mark.parametrize(
    ("settings", "jinja"),
    [(None, None), (config(), None), (config(""), None), (config([]), None), (config(), " \n")],
)
def test_a_model_without_a_template_is_told_how_to_do_without(settings, jinja):
    with pytest.raises(ChatTemplateError, match=r"template: \{kind: none\}"):
        read_chat_template(settings, jinja)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{", "tokenizer_config.json is not JSON"),
        ("<html>", "tokenizer_config.json is not JSON"),
        ("[]", "not an object"),
        ("[" * 100_000, "is not JSON"),
        (config(3), "neither a string nor a list"),
    ],
)
def test_a_configuration_that_cannot_be_read_says_so(settings, said):
    with pytest.raises(ChatTemplateError, match=said):
        read_chat_template(settings)


def test_a_configuration_with_a_byte_order_mark_is_read():
    assert read_chat_template("\ufeff" + config("x")).source == "x"


def test_special_tokens_are_read_in_both_forms_and_flags_are_no_tokens():
    template = read_chat_template(config("x", pad_token=None, unk_token="<?>", add_bos_token=True))
    assert template.tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<?>"}
    assert template.adds_bos is True
    assert read_chat_template(config("x")).adds_bos is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refused the prompt: roles must"),
        ("a\n{% if %}", r"cannot be read: .* \(its line 2\)"),
        ("{% for m in messages %}", "cannot be read"),
        ("{{ nothing.at.all }}", "refused the prompt: .*undefined"),
        ("{{ 1 / 0 }}", "refused the prompt: ZeroDivisionError"),
        ("{{ messages + 1 }}", "refused the prompt: TypeError"),
        ("{{ ''.__class__.__mro__ }}", "refused the prompt"),
        ("{% set _ = messages.append(1) %}", "refused the prompt"),
        ("{% include 'other' %}", "refused the prompt"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "refused the prompt"),
        ("Hello", "left out the text of the last message"),
        ("{{ '' }}", "left out the text of the last message"),
        (
            "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
            "left out the text of the last message",
        ),
    ],
)
def test_a_template_that_does_not_render_the_prompt_says_why(source, said):
    with pytest.raises(ChatTemplateError, match=said):
        rendered(source)


def test_a_template_may_trim_what_the_user_wrote():
    assert rendered("{{ messages[-1].content | trim }}") == "What is a weir?"


def test_messages_cannot_be_replaced_by_arguments_of_the_probe():
    with pytest.raises(ChatTemplateError, match="messages: not an argument"):
        render(read_chat_template(None, CHATML), USER, {"messages": []})


def test_the_callers_messages_are_left_as_they_were():
    messages = [dict(turn) for turn in TALK]
    rendered(MARKED, messages)
    assert messages == TALK


def test_a_begin_token_can_be_dropped_for_tokenizers_that_add_their_own():
    template = read_chat_template(config(HEADERS))
    text = render(template, USER)
    assert text == "<s>" + without_bos(template, text)
    assert without_bos(template, "no token") == "no token"
    assert without_bos(ChatTemplate(source="x", tokens={}, adds_bos=None), text) == text


pieces = st.lists(
    st.sampled_from(
        [
            "{{", "}}", "{%", "%}", "{%-", "-%}", "{#", "#}", "for m in messages", "endfor", "if",
            "else", "endif", "m.content", "messages[0]['content']", "bos_token", "macro f(x)",
            "endmacro", "f(1)", "set x = 1", "generation", "endgeneration", "break", "continue",
            "raise_exception(", ")", "strftime_now('%Y')", "|", "tojson", "trim", "+", "-", "/",
            "0", "'", '"', "\n", " ", "import 'x' as y", "extends 'x'", "block b", "call f()",
            "namespace(a=1)", "loop.index0", "\ud800", "\x00", "ß",
        ]
    )
    | st.text(max_size=3),
    max_size=14,
).map(" ".join)  # fmt: skip


@settings(deadline=None)  # a busy machine is no fault of the code
@given(pieces, st.text())
def test_no_template_fails_in_another_way(source, words):
    messages = [{"role": "user", "content": words}]
    with suppress(ChatTemplateError):
        text = render(read_chat_template(None, source), messages)
        assert "".join(words.split()) in "".join(text.split())


@settings(deadline=None)
@given(st.text() | st.from_type(dict).map(str))
def test_no_configuration_fails_in_another_way(text):
    with suppress(ChatTemplateError):
        read_chat_template(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("nc"), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["chat_template", "bos_token", "eos_token", "add_bos_token"]),
        json_values | st.lists(st.dictionaries(st.sampled_from(["name", "template"]), json_values)),
    )
)
def test_no_json_in_the_configuration_fails_in_another_way(settings):
    with suppress(ChatTemplateError):
        template = read_chat_template(json.dumps(settings))
        assert template.source.strip()
