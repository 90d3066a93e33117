"""Patch files: what they may say, and the methods that come out of them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from configs.patch import Body, Delegate, Patch
from configs.read import read_patch
from configs.version import parse_version, within

SHAPE = {
    "name": "p",
    "module": "srt/models/m.py",
    "class_name": "Model",
    "methods": [{"kind": "delegate", "name": "hook", "to": "inner"}],
    "versions": ">=1.0",
    "below": "not there",
    "upstream": "https://example.org/1",
}


def test_the_shipped_patch_adds_the_three_hooks_of_eagle3():
    patch = read_patch("kimi_k25_eagle3")
    assert patch.method_names == (
        "set_eagle3_layers_to_capture",
        "get_embed_and_head",
        "set_embed_and_head",
    )
    assert within("0.5.9", patch.versions)
    assert not within("0.5.8.post1", patch.versions)
    assert not within("0.5.10", patch.versions)
    assert "19689" in patch.upstream
    assert "0.5.9" in patch.below


class Inner:
    def everything(self, a, b=2, /, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, more


def run(method: Delegate, inner):
    space: dict[str, Any] = {}
    exec(method.text(), space)
    owner = type("Model", (), {method.name: space[method.name]})()
    owner.inner = inner
    return getattr(owner, method.name)


def test_a_delegate_passes_every_kind_of_parameter_on():
    method = Delegate(
        name="everything",
        to="inner",
        parameters=("a", "b=2", "/", "c=3", "*rest", "d", "e=5", "**more"),
    )
    assert run(method, Inner())(1, 20, 30, 4, d=6, x=7) == (1, 20, 30, (4,), 6, 5, {"x": 7})


@pytest.mark.parametrize("inner", [None, object()])
def test_a_delegate_says_what_is_lacking_instead_of_doing_nothing(inner):
    method = Delegate(name="everything", to="inner")
    with pytest.raises(
        AttributeError, match=rf"inner \({type(inner).__name__}\) has no everything"
    ):
        run(method, inner)()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"module": "/etc/passwd.py"}, "inside the package"),
        ({"module": "../x.py"}, "inside the package"),
        ({"module": "srt/models/kimi"}, "inside the package"),
        ({"class_name": "a b"}, "not a Python name"),
        ({"name": "x\nimport os"}, "may hold letters"),
        ({"package": "sg lang"}, "not a Python name"),
        ({"versions": "about 0.5"}, "version range"),
        ({"versions": ">=new"}, "version number"),
        ({"methods": []}, "at least 1"),
        ({"methods": [SHAPE["methods"][0]] * 2}, "twice"),
        ({"methods": [{"kind": "delegate", "name": "f", "to": "x", "parameters": ["="]}]}, "parse"),
        ({"methods": [{"kind": "body", "name": "f", "source": "def f(:"}]}, "not valid"),
        ({"methods": [{"kind": "body", "name": "f", "source": "def g(self): ..."}]}, "defines g"),
        ({"methods": [{"kind": "body", "name": "f", "source": "x = 1"}]}, "one plain def"),
        ({"metods": []}, "Extra inputs"),
    ],
)
def test_a_patch_that_could_not_work_is_refused_when_it_is_read(change, word):
    with pytest.raises(ValidationError, match=word):
        Patch.model_validate(SHAPE | change)


def test_a_body_is_taken_as_written():
    source = "@property\ndef f(self):\n    return 1\n\n"
    assert Body(name="f", source=source).text() == source.rstrip() + "\n"


def test_releases_sort_as_packages_write_them():
    texts = ["0.5.9.dev3", "0.5.9a1", "0.5.9rc1", "0.5.9", "0.5.9.post1", "0.5.10rc0", "0.5.10"]
    versions = [parse_version(text) for text in texts]
    assert versions == sorted(versions)
    assert parse_version("0.5.9+cu128") == parse_version("v0.5.9.0") == parse_version(" 0.5.9 ")
    assert parse_version("1.0-1") == parse_version("1.0.post1")
    assert within("0.5.9rc1", "<0.5.9, !=0.5.8")
    assert not within("0.5.8", "<0.5.9, !=0.5.8")


@pytest.mark.parametrize("text", ["", "main", "0.5.x", "0.5.9 beta build", "v"])
def test_what_is_no_version_is_said_to_be_none(text):
    with pytest.raises(ValueError, match="not a version number"):
        parse_version(text)
