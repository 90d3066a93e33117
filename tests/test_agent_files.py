"""A patched file is what was asked for, compiles, and comes back exactly as it was."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.agent import files
from infra.agent.files import file
from infra.agent.put_back import put_back
from infra.agent.refusal import Refusal

OLD = b"class A:\r\n\tpass\r\n"
NEW = b"class A:\r\n\tdef f(self):\r\n\t\treturn 1\r\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "site" / "kimi_k25.py"
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(0o640)
    os.utime(path, ns=(10**18, 10**18))
    return path


def write(path: Path, new: bytes = NEW, expect: bytes = OLD, python: str = sys.executable):
    content = path.parent / "content"
    content.write_bytes(new)
    asked = {"op": "write", "path": str(path), "content_path": str(content), "python": python}
    return file({**asked, "expect_sha256": sha(expect)})


def restore(path: Path):
    return file({"op": "restore", "path": str(path)})


def refused(call) -> str:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value.error


def test_a_write_keeps_the_mode_and_a_restore_gives_everything_back(module):
    before = module.stat()
    answer = write(module)
    assert module.read_bytes() == NEW
    assert (answer["sha256"], answer["backed_up"]) == (sha(NEW), True)
    assert module.stat().st_mode == before.st_mode
    assert restore(module)["restored"] is True
    after = module.stat()
    assert module.read_bytes() == OLD
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    )
    assert sorted(p.name for p in module.parent.iterdir()) == ["content", "kimi_k25.py"]


def test_a_package_cache_that_shares_the_file_is_not_written_to(module, tmp_path):
    cached = tmp_path / "cache.py"
    os.link(module, cached)
    write(module)
    assert cached.read_bytes() == OLD


def test_a_link_into_a_cache_comes_back_as_a_link(module, tmp_path):
    link = tmp_path / "linked.py"
    link.symlink_to(module)
    write(link)
    assert (link.read_bytes(), module.read_bytes()) == (NEW, OLD)
    restore(link)
    assert link.is_symlink()


def test_a_second_write_keeps_the_first_original(module):
    write(module)
    assert write(module, NEW + b"# more\r\n", expect=NEW)["backed_up"] is False
    restore(module)
    assert module.read_bytes() == OLD


def test_restore_is_safe_to_repeat(module):
    write(module)
    restore(module)
    answer = restore(module)
    assert (answer["restored"], answer["had_backup"], answer["sha256"]) == (False, False, sha(OLD))


def test_a_file_that_is_not_what_was_read_is_left_alone(module):
    assert refused(lambda: write(module, expect=b"other")) == "changed"
    assert module.read_bytes() == OLD
    assert refused(lambda: write(module.with_name("none.py"))) == "no_such_file"


def test_a_write_whose_answer_was_lost_is_asked_again_and_says_what_it_did(module):
    first = write(module)
    assert write(module) == first
    assert write(module, NEW + b"# more\n", expect=NEW) == write(
        module, NEW + b"# more\n", expect=NEW
    )
    restore(module)
    assert module.read_bytes() == OLD


def test_the_wanted_text_by_somebody_else_s_hand_is_not_ours(module):
    module.write_bytes(NEW)
    assert refused(lambda: write(module)) == "changed"


def test_what_does_not_compile_never_gets_in_place(module):
    before = module.stat()
    assert refused(lambda: write(module, b"class A\n")) == "does_not_compile"
    assert module.stat().st_ino == before.st_ino
    assert not Path(f"{module}{files.BACKUP}").exists()


def test_a_python_that_is_not_there_is_said(module):
    assert refused(lambda: write(module, python="/nowhere/python")) == "no_python"


def test_an_upgrade_between_write_and_restore_is_not_undone(module):
    write(module)
    module.write_bytes(b"# version 2\n")
    assert refused(lambda: restore(module)) == "changed"
    assert module.read_bytes() == b"# version 2\n"


def test_a_stale_backup_is_not_taken_for_the_original(module):
    write(module)
    module.write_bytes(b"# version 2\n")
    write(module, b"# version 2, patched\n", expect=b"# version 2\n")
    restore(module)
    assert module.read_bytes() == b"# version 2\n"


def test_only_this_modules_bytecode_goes(module):
    cache = module.parent / "__pycache__"
    cache.mkdir()
    mine = ["kimi_k25.cpython-311.pyc", "kimi_k25.cpython-312.opt-1.pyc"]
    others = ["kimi_k25_vision.cpython-311.pyc", "kimi_k2.cpython-311.pyc"]
    for name in mine + others:
        (cache / name).write_bytes(b"")
    answer = file({"op": "clear_pycache", "path": str(module)})
    assert answer["removed"] == [str(cache / name) for name in mine]
    assert sorted(p.name for p in cache.iterdir()) == sorted(others)
    assert file({"op": "clear_pycache", "path": str(module)})["removed"] == []


def test_a_module_is_found_without_importing_its_package(tmp_path, monkeypatch):
    package = tmp_path / "pretend_engine"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "srt" / "m.py").write_bytes(OLD)
    info = tmp_path / "pretend_engine-0.5.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pretend_engine\nVersion: 0.5.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = {"op": "locate", "python": sys.executable, "package": "pretend_engine"}
    found = file({**asked, "relative": "srt/m.py"})
    assert found == {
        "path": str(package / "srt" / "m.py"),
        "exists": True,
        "version": "0.5.9",
        "source": base64.b64encode(OLD).decode(),
    }
    missing = file({**asked, "relative": "srt/none.py"})
    assert (missing["exists"], missing["source"]) == (False, None)
    assert missing["path"] == str(package / "srt" / "none.py")
    none = file({**asked, "package": "no_such_engine", "relative": "x.py"})
    assert none == {"path": None, "exists": False, "version": None, "source": None}


def test_unknown_operations_and_missing_keys_are_refused():
    assert refused(lambda: file({"op": "dance"})) == "unknown_op"
    assert refused(lambda: file({"op": "sha256"})) == "bad_request"
    assert file({"op": "sha256", "path": "/nowhere"})["exists"] is False


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["write", "restore", "again"]), max_size=6))
def test_any_order_of_writes_and_restores_ends_with_the_original(monkeypatch, tmp_path, steps):
    monkeypatch.setattr(files, "_check_compiles", lambda *_: None)
    path = tmp_path / "m.py"
    path.write_bytes(OLD)
    for index, step in enumerate(steps):
        if step == "restore":
            restore(path)
        else:
            new = NEW + b"# %d\n" % (index if step == "write" else 0)
            write(path, new, expect=path.read_bytes())
    restore(path)
    assert path.read_bytes() == OLD
    assert not Path(f"{path}{files.BACKUP}").exists()
    assert not Path(f"{path}{files.NOTE}").exists()


def test_what_is_listed_is_put_back_once_with_its_bytecode(tmp_path):
    module, content = tmp_path / "m.py", tmp_path / "new.py"
    listed = str(tmp_path / "patched.json")
    module.write_bytes(OLD)
    content.write_bytes(NEW)
    asked = {"op": "write", "path": str(module), "content_path": str(content)}
    file({**asked, "expect_sha256": sha(OLD), "python": sys.executable, "ledger": listed})
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    (cache / "m.cpython-311.pyc").write_bytes(b"x")
    told = put_back(listed)
    assert told == [{"path": str(module), "restored": True, "error": None, "message": None}]
    assert module.read_bytes() == OLD
    assert [*cache.iterdir()] == []
    assert put_back(listed) == []


def test_a_file_that_others_changed_since_is_theirs(tmp_path):
    module, content = tmp_path / "m.py", tmp_path / "new.py"
    listed = str(tmp_path / "patched.json")
    module.write_bytes(OLD)
    content.write_bytes(NEW)
    asked = {"op": "write", "path": str(module), "content_path": str(content)}
    file({**asked, "expect_sha256": sha(OLD), "python": sys.executable, "ledger": listed})
    module.write_bytes(b"another release")
    assert [row["error"] for row in put_back(listed)] == ["changed"]
    assert module.read_bytes() == b"another release"
    assert put_back(listed) == []
