"""The job that asks an installed engine which options its own parser has; kept by version."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from infra.agent import commands, folders
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal

_LOOK_S = 30.0
_ASK_S = 180.0
_NAME = re.compile(r"[a-z][a-z0-9_-]*\Z")

# find_spec does not import the package, which would take its tensor library too.
_LOOK = """
import importlib.metadata as metadata, importlib.util, json, os, sys
package, file = sys.argv[1], sys.argv[2]
try:
    version = metadata.version(package)
except metadata.PackageNotFoundError:
    version = None
spec = importlib.util.find_spec(package)
places = list(spec.submodule_search_locations or []) if spec else []
stamps = [os.stat(os.path.join(place, file)) for place in places if os.path.exists(os.path.join(place, file))]
print(json.dumps({"version": version, "stamps": [[s.st_size, s.st_mtime_ns] for s in stamps]}))
"""

# The engine's program runs as it would, up to the moment at which it reads its arguments.
_ASK = """
import argparse, json, os, runpy, sys
module, mark, words = sys.argv[1], sys.argv[2], sys.argv[3:]
known = argparse.ArgumentParser.parse_known_args

def options(parser):
    found = []
    for action in parser._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        if names:
            found.append(names)
        if isinstance(action, argparse._SubParsersAction) and words[0] in action.choices:
            found += options(action.choices[words[0]])
    return found

def told(self, *given, **more):
    found = options(self)
    if not any(mark in names for names in found):
        return known(self, *given, **more)
    sys.stdout.flush()
    os.write(1, b"\\n" + json.dumps(found).encode() + b"\\n")
    os._exit(0)

argparse.ArgumentParser.parse_known_args = told
sys.argv = [module, *words]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def options(job: Job) -> dict[str, Any]:
    """Every option name of the parser that the engine itself would use.

    What is asked: ``python``, ``package``, ``file`` (of the package, whose change means another
    parser), ``module`` (what ``python -m`` runs), ``mark`` (an option that tells the right parser)
    and ``words`` (arguments up to the parser); ``keep`` is the folder of earlier answers.

    Returns:
        ``version`` (None: not installed), ``options`` (lists of names of one option each, None if
        the parser could not be asked), ``error`` (why not), ``kept`` (whether it was known).
    """
    asked = job.request
    if not _NAME.match(asked["package"]):
        raise Refusal("bad_name", f"not a package: {asked['package']!r}")
    looked = commands.run([asked["python"], "-c", _LOOK, asked["package"], asked["file"]], _LOOK_S)
    try:
        found = folders.loads_last_line(looked["stdout"])
    except Refusal:
        return _unknown(None, looked)
    if found["version"] is None:
        return {"version": None, "options": None, "error": "not installed", "kept": False}
    folders.own_folder(asked["keep"])
    path = os.path.join(asked["keep"], _file(asked, found))
    known = folders.read_object(path)
    if known is not None:
        return {**known, "kept": True}
    words = [asked["module"], asked["mark"], *asked["words"]]
    got = commands.run([asked["python"], "-c", _ASK, *words], _ASK_S)
    try:
        names = _last_list(got["stdout"])
    except ValueError:
        return _unknown(found["version"], got)
    answer = {"version": found["version"], "options": names, "error": None}
    folders.write_json(path, answer)
    return {**answer, "kept": False}


def _file(asked: dict[str, Any], found: dict[str, Any]) -> str:
    """Where the answer of this parser is kept: by version, and by what may differ within one."""
    parts = [asked["python"], asked["module"], *asked["words"], str(found["stamps"])]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    version = re.sub(r"[^A-Za-z0-9.+-]", "_", str(found["version"]))
    return f"{asked['package']}-{version}-{digest}.json"


def _last_list(text: str) -> list[list[str]]:
    """The last line that is a list; engines print before it whatever they like."""
    for line in reversed(text.splitlines()):
        if line.startswith("["):
            value = json.loads(line)
            if isinstance(value, list):
                return value
    raise ValueError("no list of options")


def _unknown(version: Any, got: dict[str, Any]) -> dict[str, Any]:
    said = got["stderr"].strip().splitlines()
    why = got["error"] or (said[-1][:300] if said else f"exit code {got['exit']}")
    return {"version": version, "options": None, "error": why, "kept": False}
