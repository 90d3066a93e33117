"""Patching a model file: only what is missing goes in, and every other byte stays."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.patch import Body, Patch
from configs.read import read_patch
from tasks.insertion import split_lines
from tasks.patching import apply_patch
from tests.wheels import file_in_wheel

PATCH = read_patch("kimi_k25_eagle3")
HOOKS = PATCH.method_names
NAME = PATCH.class_name

MODEL = f"""\
class {NAME}(object):
    def __init__(self, inner=None):
        self.language_model = inner

    def load_weights(self, weights):
        return list(weights)


EntryClass = [{NAME}]
"""


def patched(source: str | bytes, patch: Patch = PATCH, version: str | None = None):
    """Apply a patch that must insert, and check what must hold after every insertion."""
    source = source.encode() if isinstance(source, str) else source
    result = apply_patch(source, patch, version)
    assert result.action == "insert", result.message
    new = result.new_source
    compile(new, "m.py", "exec", dont_inherit=True)
    at = len(b"".join(split_lines(source)[: result.insert_line]))
    assert new[:at] + new[at + len(new) - len(source) :] == source
    again = apply_patch(new, patch, version)
    assert again.action == "complete_already"
    assert again.new_source == new
    assert again.applied_earlier
    return result


def refused(source: str | bytes | None):
    source = source.encode() if isinstance(source, str) else source
    result = apply_patch(source, PATCH)
    assert result.action == "refuse"
    assert result.new_source == (source or b"")
    assert result.sha256_after == result.sha256_before
    assert result.diff == ""
    assert result.message
    return result.reason


def complete(source: str):
    result = apply_patch(source.encode(), PATCH)
    assert result.action == "complete_already", result.message
    assert result.reason == "already_provided"
    assert not result.applied_earlier
    assert result.new_source == source.encode()
    return result


def body(text: str) -> str:
    """A model class with more in its body, and the rest of the file as usual."""
    return MODEL.replace("\n\n\nEntry", "\n\n" + textwrap.indent(text, "    ") + "\n\n\nEntry")


def methods(*names: str) -> str:
    return "\n\n".join(f"def {name}(self, *args):\n    return 1" for name in names)


class Inner:
    layers = None

    def set_eagle3_layers_to_capture(self, layer_ids=None):
        self.layers = layer_ids

    def get_embed_and_head(self):
        return "embed", "head"

    def set_embed_and_head(self, embed, head):
        self.set_to = embed, head


def test_the_inserted_methods_reach_the_inner_model():
    space: dict[str, Any] = {}
    exec(patched(MODEL).new_source, space)
    model = space[NAME](Inner())
    model.set_eagle3_layers_to_capture([1, 29, 57])
    assert model.language_model.layers == [1, 29, 57]
    assert model.get_embed_and_head() == ("embed", "head")
    model.set_embed_and_head("e", "h")
    assert model.language_model.set_to == ("e", "h")


def test_without_an_inner_model_the_methods_say_so():
    space: dict[str, Any] = {}
    exec(patched(MODEL).new_source, space)
    for name in HOOKS:
        arguments = (1, 2) if name == "set_embed_and_head" else ()
        with pytest.raises(AttributeError, match=f"language_model .NoneType. has no {name}"):
            getattr(space[NAME](None), name)(*arguments)


def test_the_record_of_an_insertion_says_what_was_done_where():
    result = patched(MODEL, version="0.5.9")
    assert result.missing == result.inserted == HOOKS
    assert (result.insert_after, result.insert_line) == ("load_weights", 6)
    assert (result.indent, result.newline) == ("    ", "lf")
    assert result.proven
    assert result.warnings == ()
    assert result.diff.startswith("--- a/srt/models/kimi_k25.py\n+++ b/srt/models/kimi_k25.py\n")
    taken_away = [line for line in result.diff.splitlines()[2:] if line.startswith("-")]
    assert taken_away == []
    assert "new_source" not in result.model_dump_json()
    assert type(result).model_validate_json(result.model_dump_json()).diff == result.diff


def test_only_what_is_missing_goes_in():
    result = patched(body(methods("set_eagle3_layers_to_capture")))
    assert result.missing == ("get_embed_and_head", "set_embed_and_head")
    assert result.new_source.count(b"def set_eagle3_layers_to_capture") == 1
    assert result.insert_after == "load_weights"


def test_a_method_behind_the_anchor_keeps_its_distance():
    new = patched(MODEL.replace("(weights)\n", "(weights)\n    def last(self): ...\n")).new_source
    assert b"set_embed_and_head(embed, head)\n\n    def last(self): ...\n" in new


def test_comments_of_the_method_above_stay_with_it():
    source = MODEL.replace(
        "(weights)\n", "(weights)\n        # of the method\n    # of the class\n"
    )
    new = patched(source).new_source
    assert b"# of the method\n\n    # Added by" in new
    assert new.index(b"# of the class") > new.index(b"def set_embed_and_head")


def test_a_class_without_the_anchor_grows_at_its_end():
    source = MODEL.replace("load_weights", "unload") + "\nx = 1\n"
    result = patched(source)
    assert result.insert_after == "end_of_class"
    assert b"list(weights)\n\n    # Added by" in result.new_source


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("newline", "name"), [("\r\n", "crlf"), ("\r", "cr"), ("\n", "lf")])
@pytest.mark.parametrize("final", [True, False])
def test_line_endings_stay_and_are_taken_up(newline, name, final):
    text = MODEL if final else MODEL.split("\n\n\nEntry", maxsplit=1)[0]
    result = patched(text.replace("\n", newline).encode())
    assert result.newline == name
    assert result.final_newline_before is final
    new = result.new_source.replace(newline.encode(), b"")
    assert b"\r" not in new
    assert b"\n" not in new
    assert result.new_source.endswith((b"\n", b"\r")) is final


def test_a_file_that_mixes_line_endings_keeps_each_of_them():
    lines = MODEL.splitlines(keepends=True)
    mixed = "".join(line.replace("\n", "\r\n") if i else line for i, line in enumerate(lines))
    result = patched(mixed)
    assert result.newline == "crlf"
    assert any("mixes line endings" in text for text in result.warnings)


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbf" + MODEL.encode(),
        b"# -*- coding: latin-1 -*-\nx = '\xe9\xff'\n" + MODEL.encode(),
        b"# coding: cp1251\n# \xcf\xf0\xe8\n" + MODEL.encode(),
        '# ünïcode \u2028 and \x85 are no line ends, "\x0b" neither\n'.encode() + MODEL.encode(),
        MODEL.replace("\n\n    def load", "\n\x0c\n    def load").encode(),
        MODEL.replace("    def __init__", "\x0c    def __init__").encode(),
        MODEL.replace("list(weights)", "'''\n  a string\n# over lines\n'''").encode(),
        MODEL.replace("list(weights)", "list( \\\n  weights)  # why").encode(),
        MODEL.replace("list(weights)", "list(weights)   \t").encode(),
        MODEL.replace("\n\n    def", "\n    \t\n    def").encode(),
    ],
)
def test_odd_bytes_elsewhere_stay_as_they_are(source):
    patched(source)


def test_tabs_and_narrow_steps_are_taken_up():
    for unit in ("\t", "  ", "   ", "        "):
        new = patched(MODEL.replace("    ", unit)).new_source.decode()
        assert f"\n{unit}def set_embed_and_head(self, embed, head):\n{unit}{unit}" in new


def test_a_class_inside_a_block_is_patched_at_its_depth():
    source = "import sys\nif sys:\n" + textwrap.indent(MODEL, "    ") + "else:\n    x = 1\n"
    result = patched(source)
    assert result.indent == "        "
    assert b"\n        def get_embed_and_head(self):\n            " in result.new_source


def test_text_that_the_encoding_cannot_hold_is_refused():
    method = Body(name="hook", source='def hook(self):\n    return "π"\n')
    patch = PATCH.model_copy(update={"methods": (method,)})
    result = apply_patch(b"# coding: latin-1\n" + MODEL.encode(), patch)
    assert (result.action, result.reason) == ("refuse", "encoding_too_small")


def test_a_body_is_reindented_but_its_strings_are_not():
    source = 'def hook(self):\n    text = """a\n    b\n"""\n    if text:\n        return text\n'
    patch = PATCH.model_copy(update={"methods": (Body(name="hook", source=source),)})
    result = patched(MODEL.replace("    ", "\t").replace("\n", "\r\n"), patch)
    space: dict[str, Any] = {}
    exec(result.new_source, space)
    assert space[NAME]().hook() == "a\n    b\n"
    assert b"\r\n\t\tif text:\r\n\t\t\treturn text\r\n" in result.new_source


def test_a_patch_may_bring_a_property():
    source = "@property\ndef lm_head(self):\n    return self.language_model.lm_head\n"
    patch = PATCH.model_copy(update={"methods": (Body(name="lm_head", source=source),)})
    assert (
        b"    @property\n    def lm_head(self):\n        return" in patched(MODEL, patch).new_source
    )


@given(
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    unit=st.sampled_from([" ", "  ", "    ", "\t"]),
    have=st.sets(st.sampled_from(HOOKS), max_size=2),
    tail=st.sampled_from(["", "\n", "\n\n\n", "\n# end", "\n    # deep\n", "\nx = '''\n\n'''\n"]),
    head=st.sampled_from(["", "\ufeff", "# coding: utf-8\n", '"""Doc.\n\n"""\n', "\n\n"]),
    between=st.sampled_from(["", "\n", "\n\n", "\n    # note\n"]),
)
def test_any_mixture_of_shapes_gains_exactly_what_it_lacks(  # noqa: PLR0917
    newline, unit, have, tail, head, between
):
    text = MODEL.split("\n\n\nEntry", maxsplit=1)[0] + "\n" + between
    text += textwrap.indent(methods(*sorted(have)), "    ") if have else ""
    source = (head + text.rstrip(" ") + tail).replace("    ", unit).replace("\n", newline)
    result = patched(source)
    assert set(result.missing) == set(HOOKS) - have


# --- already there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        methods(*HOOKS),
        "\n".join(f"{name} = print" for name in HOOKS),
        "a = b = " + " = ".join(HOOKS) + " = print",
        f"from x import {', '.join(HOOKS)}",
        f"from x import a as {HOOKS[0]}\n" + methods(*HOOKS[1:]),
        "if X:\n"
        + textwrap.indent(methods(*HOOKS), "  ")
        + "\nelse:\n  from x import "
        + ", ".join(HOOKS),
        "try:\n  from x import "
        + ", ".join(HOOKS)
        + "\nexcept ImportError:\n"
        + textwrap.indent(methods(*HOOKS), "  "),
        "with X:\n" + textwrap.indent(methods(*HOOKS), "  "),
        "@staticmethod\ndef set_eagle3_layers_to_capture(ids=None): return 1\n"
        + methods(*HOOKS[1:]),
    ],
)
def test_methods_in_any_working_form_count_as_there(text):
    complete(body(text))


def test_methods_of_a_base_in_the_same_file_count_as_there():
    base = (
        "class Root:\n"
        + textwrap.indent(methods(*HOOKS), "    ")
        + "\n\n\nclass Base(Root): ...\n\n"
    )
    assert complete(base + MODEL.replace("(object)", "(Base)")).missing == ()
    complete(base + f"class {NAME}(Base): pass\n")


def test_a_base_that_only_asks_for_the_methods_does_not_have_them():
    stubs = "\n".join(f"    def {name}(self): raise NotImplementedError" for name in HOOKS)
    assert (
        patched(f"class Base:\n{stubs}\n\n" + MODEL.replace("(object)", "(Base)")).missing == HOOKS
    )


def test_names_elsewhere_in_the_file_do_not_count():
    source = f"# {HOOKS}\nx = {list(HOOKS)!r}\n{methods(*HOOKS)}\n\n\nclass Other:\n"
    source += (
        textwrap.indent(methods(*HOOKS), "    ") + f"\n\n    class {NAME}:\n        pass\n\n\n"
    )
    source += MODEL + f"\nOther.{HOOKS[0]} = print\nmodel = {NAME}()\nmodel.{HOOKS[0]}()\n"
    assert patched(source).missing == HOOKS


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "file_not_found"),
        ("", "class_not_found"),
        (f"from other import {NAME}\n", "class_not_found"),
        (f"'''\n{MODEL}'''\n", "class_not_found"),
        (f"def make():\n    class {NAME}: ...\n", "class_not_found"),
        (MODEL + "text = [\n", "not_valid_python"),
        (MODEL.replace("        return", "\treturn"), "not_valid_python"),
        (MODEL + "return 1\n", "not_valid_python"),
        (b"\xff\xfe" + MODEL.encode("utf-16-le"), "not_valid_python"),
        (MODEL.encode() + b"# \xff\n", "not_valid_python"),
        (b"# coding: no-such\n" + MODEL.encode(), "not_valid_python"),
        (MODEL.encode() + b"\x00", "not_valid_python"),
        ("<<<<<<< HEAD\n" + MODEL, "not_valid_python"),
        (MODEL + MODEL, "class_defined_more_than_once"),
        (f"if X:\n  class {NAME}: x = 1\nelse:\n  class {NAME}: x = 2\n",
         "class_defined_more_than_once"),
        (f"class {NAME}: language_model = None\n", "class_body_on_one_line"),
        (MODEL.replace("language_model", "model"), "delegate_attribute_missing"),
        (body("if X:\n" + textwrap.indent(methods(HOOKS[0]), "  ")),
         "method_defined_conditionally"),
        (body("try:\n  from x import " + ", ".join(HOOKS) + "\nexcept ImportError: pass"),
         "method_defined_conditionally"),
        (body("for x in y:\n" + textwrap.indent(methods(*HOOKS), "  ")),
         "method_defined_conditionally"),
        (body(methods(*HOOKS).replace("def get", "async def get")), "method_is_async"),
        (body(methods(*HOOKS).replace("def get", "@property\ndef get")), "method_is_property"),
        (body("get_embed_and_head = property(print)"), "method_is_property"),
        (body("def get_embed_and_head(self):\n  'Doc.'\n  raise NotImplementedError('x')"),
         "method_is_stub"),
        (body("def get_embed_and_head(self): ..."), "method_is_stub"),
        (body("get_embed_and_head = None"), "method_is_not_callable"),
    ],
)  # fmt: skip
def test_what_cannot_be_patched_with_certainty_is_left_alone(source, reason):
    assert refused(source) == reason


@pytest.mark.parametrize(
    "tail",
    [
        f"{NAME}.get_embed_and_head = print\n",
        f"setattr({NAME}, 'get_embed_and_head', print)\n",
        f"cls = {NAME}\ncls.get_embed_and_head = print\n",
        f"if X:\n    {NAME}.get_embed_and_head = print\n",
        f"for n in names():\n    setattr({NAME}, n, print)\n",
        f"def add():\n    {NAME}.get_embed_and_head = print\nadd()\n",
        "def hooked(cls):\n    cls.get_embed_and_head = print\n    return cls\n",
    ],
)
def test_methods_that_are_set_from_outside_are_left_to_whoever_sets_them(tail):
    assert refused(MODEL + tail) == "provided_outside_class_body"


def test_a_refusal_says_what_is_missing_when_the_server_runs():
    loop = f"for n in {HOOKS[1:]!r}:\n    setattr({NAME}, n, print)\n"
    assert apply_patch((MODEL + loop).encode(), PATCH).runtime_missing == HOOKS[:1]
    unknown = f"for n in names():\n    setattr({NAME}, n, print)\n"
    assert apply_patch((MODEL + unknown).encode(), PATCH).runtime_missing is None
    switch = body("if ON:\n" + textwrap.indent(methods(HOOKS[0]), "  "))
    for value, missing in (("True", HOOKS[1:]), ("not True", HOOKS), ("f()", HOOKS)):
        source = f"ON = {value}\n{switch}".encode()
        assert apply_patch(source, PATCH).runtime_missing == missing


def test_a_broken_file_is_named_by_its_line():
    source = MODEL.replace("return list(weights)", "return list(weights]")
    assert apply_patch(source.encode(), PATCH).message.startswith("line 6: ")


def test_a_missing_file_is_explained_by_the_patch():
    assert apply_patch(None, PATCH, "0.5.8").message == PATCH.below


# --- doubts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (MODEL.replace("(object)", "(Hooks)"), "base Hooks"),
        (MODEL.replace("(object)", "(pkg.Hooks[int])"), "base pkg.Hooks"),
        (MODEL.replace("(object)", "(metaclass=Meta)"), "metaclass Meta"),
        ("@pkg.wrap(1)\n" + MODEL, "decorator pkg.wrap"),
        (body("def __getattr__(self, name): return 1"), "__getattr__"),
        (MODEL + f"{NAME} = wrap({NAME})\n", "bound again"),
        (MODEL.replace(f"[{NAME}]", "[Other]"), "EntryClass"),
    ],
)
def test_what_the_text_cannot_settle_is_a_warning(source, word):
    assert any(word in text for text in patched(source).warnings)


@pytest.mark.parametrize("base", ["nn.Module", "torch.nn.Module", "object", "Generic[T]"])
def test_bases_that_bring_no_hooks_are_no_warning(base):
    assert patched(MODEL.replace("(object)", f"({base})")).warnings == ()


def test_a_version_outside_the_range_is_a_warning_and_the_file_decides():
    for version in ("0.5.8.post1", "0.5.10", "0.5.12.dev3+gabc"):
        assert any("outside" in text for text in patched(MODEL, version=version).warnings)
    assert any("could not be read" in text for text in patched(MODEL, version="main").warnings)
    assert patched(MODEL, version="0.5.9.post2").warnings == ()


# --- the real files ----------------------------------------------------------------------------


@pytest.mark.network
def test_sglang_0_5_9_gains_the_three_hooks_and_nothing_else_changes():
    source = file_in_wheel("sglang", "0.5.9", PATCH.module)
    assert source is not None
    result = patched(source, version="0.5.9")
    assert result.missing == HOOKS
    assert result.insert_after == "load_weights"
    assert result.warnings == ()
    added = [line for line in result.diff.splitlines()[2:] if line.startswith("+")]
    new = result.new_source.splitlines(keepends=True)
    at = result.insert_line or 0
    assert b"".join(new[:at] + new[at + len(added) :]) == source


@pytest.mark.network
def test_sglang_0_5_10_needs_no_patch():
    source = file_in_wheel("sglang", "0.5.10.post1", PATCH.module)
    assert source is not None
    result = apply_patch(source, PATCH, "0.5.10.post1")
    assert result.action == "complete_already"
    assert result.new_source == source
    assert result.warnings == ()
