"""Every kind of mistake in a file is named with file, line, key and what would be right."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.find import SHIPPED
from configs.host import Host
from configs.patch import Patch
from configs.problems import ConfigError
from configs.read import (
    check_sweep,
    line_of,
    parse,
    parse_document,
    parse_sweep,
    read_host,
    read_patch,
    read_sweep,
    to_yaml,
)
from configs.sweep import Sweep
from tests.sweeps import HOST, TEXT, changed, host, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator


def refused(text: str, model=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(model, text, "f.yaml") if model else parse_sweep(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


WRONG = {
    "misspelt key": (
        ("      num_steps: 3", "      num_step: 3"),
        "f.yaml:19: arms.a.speculation.num_step: unknown key: did you mean num_steps?",
    ),
    "misspelt required key": (
        ("      drafter: /models/a", "      draftr: /models/a"),
        "f.yaml:18: arms.a.speculation.draftr: unknown key: did you mean drafter?",
    ),
    "misspelt key at the top": (
        ("question:", "questoin:"),
        "f.yaml:2: questoin: unknown key: did you mean question?",
    ),
    "key of nobody": (
        ("  model: /models/target", "  model: /models/target\n  zzz: 1"),
        "f.yaml:7: engine.zzz: unknown key: known are kind, model, flags, env, env_from, weights",
    ),
    "kind missing": (
        ("      kind: eagle3\n", ""),
        (
            "f.yaml:16: arms.a.speculation.kind: is missing: one of off, eagle3, eagle, nextn, standalone, "
            "ngram"
        ),
    ),
    "kind unknown": (
        ("kind: eagle3", "kind: eagel3"),
        (
            "f.yaml:17: arms.a.speculation.kind: 'eagel3' is not known: did you mean eagle3? known are "
            "off, eagle3, eagle, nextn, standalone, ngram"
        ),
    ),
    "kind unlike any": (
        ("kind: eagle3", "kind: 7"),
        (
            "f.yaml:17: arms.a.speculation.kind: 7 is not known: one of off, eagle3, eagle, nextn, "
            "standalone, ngram"
        ),
    ),
    "a bare word for a mapping": (
        ("{kind: off}", "off"),
        "f.yaml:14: arms.base.speculation: must be a mapping, not 'off': write {kind: off}",
    ),
    "required key missing": (
        ("      drafter: /models/a\n", ""),
        (
            "f.yaml:16: arms.a.speculation.drafter: is missing (eagle3 needs it): Folder of the drafter "
            "on the host (--speculative-draft-model-path)"
        ),
    ),
    "yes for a number": (
        ("num_steps: 3", "num_steps: yes"),
        (
            "f.yaml:19: arms.a.speculation.num_steps: must be a whole number, not 'yes' (a boolean to "
            "many readers: a bare yes is true in YAML 1.1)"
        ),
    ),
    "true for a number": (
        ("num_steps: 3", "num_steps: true"),
        (
            "f.yaml:19: arms.a.speculation.num_steps: must be a whole number, not true (YAML reads a "
            "bare true/false as a boolean)"
        ),
    ),
    "no for a truth value": (
        ("blocks: 2", "keep_patch: no"),
        (
            "f.yaml:35: keep_patch: must be true or false, not 'no' (a boolean to many readers: a bare "
            "no is false in YAML 1.1)"
        ),
    ),
    "a fraction for a whole number": (
        ("blocks: 2", "blocks: 2.5"),
        "f.yaml:35: blocks: must be a whole number, not 2.5",
    ),
    "text for a number": (
        ("blocks: 2", "blocks: two"),
        "f.yaml:35: blocks: must be a whole number, not 'two'",
    ),
    "number for text, as it was written": (
        ("NCCL_PROTO: LL", "NCCL_PROTO: 0.10"),
        "f.yaml:29: factors.nccl.ll.env.NCCL_PROTO: must be text, not 0.10: put it in quotes",
    ),
    "date for text": (
        ("NCCL_PROTO: LL", "NCCL_PROTO: 2026-02-01"),
        "f.yaml:29: factors.nccl.ll.env.NCCL_PROTO: is read as a date: put it in quotes",
    ),
    "nothing": (
        ("  model: /models/target", "  model:"),
        "f.yaml:6: engine.model: must be text, not nothing (null)",
    ),
    "empty text": (
        ("model: /models/target", "model: ''"),
        "f.yaml:6: engine.model: must not be empty",
    ),
    "one for a list": (
        ("hosts: [box]", "hosts: box"),
        "f.yaml:3: hosts: must be a list, not 'box': write [box]",
    ),
    "empty list": (("[1, 8]", "[]"), "f.yaml:34: probes.load.concurrency: must not be empty"),
    "zero": (
        ("[1, 8]", "[0]"),
        "f.yaml:34: probes.load.concurrency.0: must be at least 1, not 0",
    ),
    "level twice": (
        ("[1, 8]", "[8, 8]"),
        "f.yaml:34: probes.load.concurrency: 8 stands twice: name each level once",
    ),
    "infinite": (
        ("seed: 3", "same_margin: .inf"),
        "f.yaml:36: same_margin: '.inf' is no finite number: write an ordinary one",
    ),
    "too large for a number": (
        ("seed: 3", "same_margin: 1e999"),
        "f.yaml:36: same_margin: '1e999' is no finite number: write an ordinary one",
    ),
    "name in capitals": (
        ("name: two-drafters", "name: Two"),
        (
            "f.yaml:1: name: 'Two' does not fit: lower-case letters, digits, '.', '_' and '-' are "
            "allowed, a letter or digit first"
        ),
    ),
    "name of an arm": (
        ("  a:\n", "  A b:\n"),
        (
            "f.yaml:15: arms.A b: the name 'A b' does not fit: lower-case letters, digits, '.', '_' "
            "and '-' are allowed, a letter or digit first"
        ),
    ),
    "name of a variable": (
        ("NCCL_PROTO: LL", "NCCL-PROTO: LL"),
        (
            "f.yaml:29: factors.nccl.ll.env.NCCL-PROTO: the name 'NCCL-PROTO' does not fit: letters, "
            "digits and '_' are allowed, no digit first"
        ),
    ),
    "flag with a mapping": (
        ("tp-size: 8", "tp-size: {a: 1}"),
        (
            "f.yaml:8: engine.flags.tp-size: must be true, false, a number, text or a list of numbers "
            "and texts, not a mapping"
        ),
    ),
    "literal": (
        ("kind: stream", "kind: streams"),
        "f.yaml:32: probes.load.kind: 'streams' is not known: did you mean stream? known are stream, profile, bench-serving",
    ),
    "duplicate key": (
        ("seed: 3", "blocks: 3"),
        "f.yaml:36: blocks: duplicate key: stands in line 35 too: keep one",
    ),
    "number as a key": (("seed: 3", "3: 3"), "f.yaml:36: the key 3 is not text: put it in quotes"),
    "tag": (
        ("seed: 3", "seed: !seed 3"),
        "f.yaml:36: seed: has the tag !seed: take it out",
    ),
    "alias of nothing": (
        ("seed: 3", "seed: *three"),
        (
            "f.yaml:36: is not YAML: found undefined alias 'three': put text that starts with * & @ ` "
            "% in quotes"
        ),
    ),
    "NUL": (
        ("model: /models/target", 'model: "/models\\0"'),
        "f.yaml:6: engine.model: holds a character that no file name or argument may have",
    ),
    "half a surrogate pair": (
        ("model: /models/target", 'model: "/models\\ud800"'),
        "f.yaml:6: engine.model: holds a character that no file name or argument may have",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_line_key_and_remedy(name):
    change, message = WRONG[name]
    assert refused(changed(change)) == [message]


NOT_A_MAPPING = {
    "empty": ("", "f.yaml: empty file: a mapping of keys is expected"),
    "comments alone": ("# later\n", "f.yaml: empty file: a mapping of keys is expected"),
    "null": ("~\n", "f.yaml: empty file: a mapping of keys is expected"),
    "list": ("- a\n- b\n", "f.yaml:1: is a list: a mapping of keys is expected"),
    "word": ("hello\n", "f.yaml:1: is a single value: a mapping of keys is expected"),
    "tab": ("name: k25\n\ttp: 8\n", "f.yaml:2: is not YAML: tab used for indentation: use spaces"),
    "two documents": (
        "a: 1\n---\nb: 2\n",
        "f.yaml:2: holds more than one document (---): keep one",
    ),
    "open quote": (
        "name: 'x\n",
        "f.yaml:2: is not YAML: while scanning a quoted scalar: found unexpected end of stream",
    ),
    "second colon": (
        "name: a: b\n",
        "f.yaml:1: is not YAML: a second ':' in one value, or wrong indentation: put text in quotes",
    ),
    "YAML 1.1": (
        "%YAML 1.1\n---\na: yes\n",
        "f.yaml:1: asks for another YAML than 1.2: take the line out",
    ),
    "nested without end": ("[" * 5000, "f.yaml: is not YAML: nested too deeply"),
    "control character": (
        "a: \x07\n",
        "f.yaml: is not YAML: unacceptable character #x0007: special characters are not allowed",
    ),
}


@pytest.mark.parametrize("name", NOT_A_MAPPING)
def test_what_is_no_mapping_is_said_in_one_line(name):
    text, message = NOT_A_MAPPING[name]
    assert refused(text) == [message]


def test_all_mistakes_are_said_at_once():
    said = refused(changed(("num_steps: 3", "num_steps: x"), ("blocks: 2", "blokcs: 2")))
    assert len(said) == 2


def test_a_list_of_which_every_element_is_wrong_is_not_called_empty():
    assert len(refused(changed(("[1, 8]", "[0, x]")))) == 2


def test_aliases_that_expand_without_end_are_refused_in_no_time():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    assert "does an alias hold itself?" in refused(bomb)[0]
    assert "does an alias hold itself?" in refused("a: &a {b: *a}\n")[0]


def test_a_setting_may_be_written_once_and_used_twice():
    text = changed(
        (
            "      kind: eagle3\n      drafter: /models/a\n",
            "      &chain\n      kind: eagle3\n      drafter: /models/a\n",
        ),
        (
            "      kind: eagle3\n      drafter: /models/b\n",
            "      <<: *chain\n      drafter: /models/b\n",
        ),
    )
    b = parse_sweep(text, "f").arms["b"].speculation.model_dump()
    assert (b["drafter"], b["num_steps"]) == ("/models/b", 3)


def test_numbers_may_stand_in_quotes_or_have_a_zero_behind_the_point():
    plain = sweep()
    assert sweep(("blocks: 2", 'blocks: "2"'), ("num_steps: 3", "num_steps: 3.0")) == plain
    assert sweep(("tp-size: 8", 'tp-size: "8"')) == plain
    assert sweep(("seed: 3", "seed: 0x3")) == plain


def test_a_bare_word_where_text_is_wanted_is_that_word():
    assert sweep(("NCCL_PROTO: LL", "MY_WORD: no")).factors["nccl"]["ll"].env == {"MY_WORD": "no"}


def test_a_byte_order_mark_is_nothing(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert read_sweep(str(path)) == sweep()
    assert parse_sweep("\ufeff" + TEXT, "f") == sweep()


def test_line_ends_of_windows_change_no_line_number(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(changed(("blocks: 2", "blocks: x")).replace("\n", "\r\n").encode())
    with pytest.raises(ConfigError, match=r"s\.yaml:35: blocks: must be a whole number"):
        read_sweep(str(path))


def test_a_file_in_another_encoding_says_where(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(TEXT.encode() + "note: Gr\u00fc\u00dfe\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"s\.yaml:37: is not UTF-8 \(byte \d+\): save it as"):
        read_sweep(str(path))


def test_names_with_dots_find_their_line():
    said = refused(
        changed(("  a:\n", "  k2.5:\n"), ("num_steps: 3", "num_steps: x"), ("/models/a", "/a"))
    )
    assert said == ["f.yaml:19: arms.k2.5.speculation.num_steps: must be a whole number, not 'x'"]
    document = parse_document("a: 1\nab:\n  c: 2\n", "f")
    assert [line_of(document, where) for where in ("ab.c.d", "ab", "b", "")] == [3, 2, None, None]


def test_a_missing_file_names_the_nearest_one(tmp_path, monkeypatch):
    with pytest.raises(
        ConfigError, match=r"configs/sweeps/rehersal.yaml: .*did you mean rehearsal"
    ):
        read_sweep("rehersal")
    with pytest.raises(ConfigError, match=r"no such file: there are: .*kimi-k25-drafters"):
        read_sweep("zzz")
    with pytest.raises(ConfigError, match=r"copy .*blackwell-8x.yaml.example to configs/hosts/"):
        read_host("blackwell-8x")
    (tmp_path / "mine.yaml").write_text(TEXT)
    with pytest.raises(ConfigError, match=r"no such file: did you mean .*/mine.yaml\?"):
        read_sweep(str(tmp_path / "mien.yaml"))
    with pytest.raises(ConfigError, match="is a folder"):
        read_sweep(f"{tmp_path}/")
    with pytest.raises(ConfigError, match="no such file"):
        read_sweep("~nobody-of-this-name/x.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean mine.yaml\?"):
        read_sweep("mein.yaml")


def test_a_file_of_ones_own_goes_before_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "sweeps").mkdir(parents=True)
    (tmp_path / "configs" / "sweeps" / "rehearsal.yaml").write_text(TEXT)
    assert read_sweep("rehearsal").name == "two-drafters"


def test_a_host_is_called_as_its_file(tmp_path):
    path = tmp_path / "k2.5-box.yaml"
    path.write_text(json.dumps(HOST | {"name": "k2.5-box"}))
    assert read_host(str(path)).name == "k2.5-box"
    path.write_text(json.dumps(HOST))
    with pytest.raises(ConfigError, match=r":1: name: says 'box', the file is called 'k2.5-box'"):
        read_host(str(path))


def test_a_patch_says_what_is_wrong_with_its_body():
    text = to_yaml(read_patch("kimi_k25_eagle3"))
    assert parse(Patch, text, "f") == read_patch("kimi_k25_eagle3")
    (said,) = refused(text.replace("kind: delegate", "kind: delegat", 1), Patch)
    assert said == (
        "f.yaml:5: methods.0.kind: 'delegat' is not known: did you mean delegate? known are "
        "delegate, body"
    )
    (said,) = refused(text.replace("- layer_ids=None", '- "layer_ids="'), Patch)
    assert "parameters or doc of set_eagle3_layers_to_capture do not parse" in said


def test_a_sweep_from_a_form_is_checked_like_a_file():
    form = sweep().model_copy(update={"baseline": "nobody"})
    with pytest.raises(ConfigError, match="sweep: baseline: no arm is called 'nobody'"):
        check_sweep(form)


def test_a_value_reads_back_as_itself():
    for value in (sweep(), host(), host(connect={"kind": "address_file", "path": "x"})):
        assert parse(type(value), to_yaml(value), "f") == value


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029", "\ufeff", "\n", "\r", "\t", "\x1b"])
@pytest.mark.parametrize("form", ["a{}b", "{}", "{}b", "a {}", "{} b"])
def test_characters_that_end_lines_read_back_as_themselves(mark, form):
    """YAML 1.1 counts some of them as line breaks, and folds those in a plain text to a space."""
    value = sweep().model_copy(update={"question": form.format(mark)})
    assert parse_sweep(to_yaml(value), "f").question == form.format(mark)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_no_text_raises_anything_but_a_config_error(text):
    for model in (Sweep, Host, Patch):
        with suppress(ConfigError):
            parse(model, text, "f")


SIGNS = [*":-[]{},&*!|>'\"%@`#?~\t\n ", "<<", "  ", "---\n", "\u2028", "\x85"]
TAGS = ["!!int ", "!!python/object:x ", "!!binary x", "!!set {a}", "!!omap [a: 1]", "&a ", "*a"]
WORDS = ["kind: ", "2001-13-45", "0x", "1e999", "- ", "? "]
PIECES = st.sampled_from([*TEXT.splitlines(keepends=True), *SIGNS, *TAGS, *WORDS])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_heap_of_yaml_raises_anything_but_a_config_error(text):
    for model in (Sweep, Host):
        with suppress(ConfigError):
            parse(model, text, "f")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from paths(value, (*path, key))


SHAPE = parse_document(TEXT, "f").data


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([p for p in paths(SHAPE) if p]), JSON)
def test_no_value_at_any_key_raises_anything_but_a_config_error(path, value):
    tree = json.loads(json.dumps(SHAPE))
    into = tree
    for step in path[:-1]:
        into = into[step]
    into[path[-1]] = value
    with suppress(ConfigError):
        parse_sweep(json.dumps(tree), "f")


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()))
def test_any_text_for_a_path_reads_back_as_itself(text):
    if text.startswith("~") or text != text.strip():
        return
    value = sweep().model_copy(update={"engine": sweep().engine.model_copy(update={"model": text})})
    assert parse_sweep(to_yaml(value), "f").engine.model == text


def test_mistakes_in_flags_are_told_beside_mistakes_of_shape():
    """One round, not two: what can be said of flags does not wait for the rest."""
    text = (SHIPPED / "sweeps" / "rehearsal.yaml").read_text()
    text = text.replace("draft_tokens: 4", "draft_tokens: 5", 1).replace("tp-size: 8", "tp: 8")
    with pytest.raises(ConfigError) as refused:
        parse_sweep(text, "x.yaml")
    places = [problem.where for problem in refused.value.problems]
    assert places == ["arms.aq-medai-k2.speculation.draft_tokens", "engine.flags.tp"]
