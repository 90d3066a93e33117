"""Asks the product about a case of kind ``user-config``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from configs.explain import only_causes, unknown_key
from configs.fairness import unfairness
from configs.host import Host
from configs.names import truth_of, whole
from configs.problems import ConfigError, Problem, Said
from configs.read import Document, line_of, parse, read_document
from configs.rules import host_problems, problems, warnings
from configs.sweep import Sweep
from tasks.launch import engine_argv
from tests.case_files import the_file
from tests.neutral_config import HOST, SWEEP, VLLM, build, leaves, place, words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROBE = {"kind": "stream", "prompts": "mixed", "requests_per_slot": 1, "concurrency": [1]}
BASE = {"question": "?", "hosts": ["it"], "probes": {"load": PROBE}}
MACHINE = {
    "name": "it",
    "host_class": "it",
    "python": "python3",
    "gpus": 8,
    "connect": {"kind": "ssh", "user": "me"},
}


def user_config(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    try:
        document = read_document(the_file(folder, "experiment.yaml"))
    except ConfigError as error:
        return {"ok": False, "problems": [_plain(problem) for problem in error.problems]}
    neutral, machine = document.data, {**MACHINE, "gpus": given.get("gpus_on_host", 8)}
    if "pair" in neutral:
        return _pair(neutral["pair"], machine)
    if "experiments" in neutral:
        return _experiments(neutral, document, machine)
    if neutral.get("framework") == "vllm":
        return _vllm(neutral, document)
    return _single(neutral, document, machine)


def _single(neutral: dict[str, Any], document: Document, machine: Any) -> dict[str, Any]:
    found, sweep, host = _read(neutral, "it", machine)
    said = [_problem(each, document) for each in found]
    outcome: dict[str, Any] = {"ok": not said, "problems": said}
    wrong = {problem["field"] for problem in said}
    outcome["accepted"] = {k: whole(v) for k, v in leaves(neutral).items() if k not in wrong}
    if sweep is not None and host is not None:
        argv = engine_argv(sweep, host, "it", {}, port=host.port or 0)
        outcome["argv_element"] = next(word for word in argv if word.endswith(sweep.engine.model))
        outcome["warnings"] = [words(said.message) for said in warnings(sweep)]
    return outcome


def _read(
    neutral: dict[str, Any], arm: str, machine: Any
) -> tuple[list[Said], Sweep | None, Host | None]:
    known = [key for key in [*SWEEP, *HOST] if "." not in key]
    found = [Said(key, unknown_key(key, known)) for key in neutral if key not in known]
    host, more = _parse(Host, build(neutral, HOST, arm, machine), HOST, arm)
    base = {**BASE, "baseline": arm, "arms": {arm: {}}}
    sweep, most = _parse(Sweep, build(neutral, SWEEP, arm, base), SWEEP, arm)
    found = only_causes([*found, *more, *most])
    if sweep is not None and host is not None:
        found += [
            Said(place(said.where, SWEEP, arm), words(said.message))
            for said in problems(sweep, host)
        ]
    return found, sweep, host


def _parse(model: Any, tree: Any, table: dict[str, str], arm: str) -> tuple[Any, list[Said]]:
    try:
        return parse(model, json.dumps(tree), ""), []
    except ConfigError as error:
        return None, [Said(place(p.where, table, arm), words(p.message)) for p in error.problems]


def _vllm(neutral: dict[str, Any], document: Document) -> dict[str, Any]:
    chain = neutral["speculative"].get("num_speculative_tokens")
    told = {"num_steps": chain, "topk": 1, "draft_tokens": chain + 1} if chain else {}
    speculation = {"kind": neutral["speculative"]["method"], **told}
    base = {**BASE, "baseline": "it", "arms": {"it": {"speculation": speculation}}}
    given = {key: neutral[key] for key in ("name", "framework", "model", "tp")}
    given["speculative"] = {"draft": neutral["speculative"]["draft"]}
    sweep, found = _parse(Sweep, build(given, VLLM, "it", base), VLLM, "it")
    if sweep is None:
        return {"ok": False, "problems": [_problem(said, document) for said in found]}
    host = parse(Host, json.dumps(build({"host": "it"}, HOST, "", MACHINE)), "")
    assert problems(sweep, host) == []
    argv = engine_argv(sweep, host, "it", {}, port=neutral["port"])
    at = argv.index("--speculative-config") if "--speculative-config" in argv else len(argv)
    return {"ok": True, "argv_contains": argv[at : at + 2], "warnings": []}


def _experiments(neutral: dict[str, Any], document: Document, machine: Any) -> dict[str, Any]:
    read = [_read(experiment, "it", machine) for experiment in neutral["experiments"]]
    wrong_in_all = [
        _problem(said._replace(where=f"experiments[{index}].{said.where}"), document)
        for index, (found, _, _) in enumerate(read)
        for said in found
    ]
    hosts = [host for _, _, host in read if host is not None]
    if neutral.get("parallel", 1) > 1 and len(hosts) == len(read):
        for shared in host_problems(hosts):
            at, text = (
                re.sub(r"hosts\.(\d+)", r"experiments[\1]", part)
                for part in (shared.where, words(shared.message))
            )
            wrong_in_all.append({"field": at, "reason": text})
    return {"ok": not wrong_in_all, "problems": wrong_in_all, "warnings": []}


def _pair(pair: dict[str, Any], machine: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {
        **BASE,
        "name": "pair",
        "baseline": "baseline",
        "arms": {name: {} for name in pair},
    }
    for name, neutral in pair.items():
        tree = build(neutral, SWEEP, name, tree)
    sweep, found = _parse(Sweep, tree, SWEEP, "spec")
    host = parse(Host, json.dumps(build({"host": "it"}, HOST, "", machine)), "")
    unfair = unfairness(sweep) if sweep is not None else []
    rest = [said for said in problems(sweep, host) if said not in unfair] if sweep else found
    cautions = [*unfair, *(warnings(sweep) if sweep else ())]
    return {
        "ok": not rest,
        "problems": [{"field": said.where, "reason": said.message} for said in rest],
        "warnings": [words(f"{said.where.split('.')[-1]}: {said.message}") for said in cautions],
        "comparable": not unfair,
    }


def _problem(said: Said, document: Document) -> dict[str, Any]:
    at = said.where.replace("[", ".").replace("]", "")
    got = leaves(document.data).get(said.where)
    truth = truth_of(got)
    problem = Problem("", said.where, said.message, line_of(document, at))
    return _plain(problem) | {"got": got if truth is None else truth}


def _plain(problem: Problem) -> dict[str, Any]:
    close: Iterable[str] = re.findall(r"did you mean (\S+)\?", problem.message)
    return {
        "field": problem.where,
        "reason": problem.message,
        "line": problem.line,
        "did_you_mean": next(iter(close), None),
    }
