"""Probes of kind bench-serving: what is refused, what the engines' clients are told, what is made of it."""

from __future__ import annotations

import ast
import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from configs.plan import make_plan
from configs.probe import BenchServing, clients_of, rungs_of, streams_of
from configs.problems import ConfigError
from configs.read import parse_sweep, to_yaml
from configs.releases import client_module, client_takes, known_names
from configs.rules import problems, warnings
from flows.question import Question
from flows.show import plan_text
from infra.rehearsal import sglang_client, vllm_client
from infra.rehearsal.client_traffic import Output, Prompt
from tasks.bench_result import BenchResult, Circumstances, read_bench
from tasks.check_client import CLIENT_GUARDS, TOLERATED, check_clients
from tasks.client_beside import FIGURES, beside, pairs_of
from tasks.client_command import (
    PROMPTS,
    RESULT,
    Asked,
    client_words,
    prompts_file,
    tool_of,
    unmatched,
    whose_acceptance,
)
from tasks.client_record import ClientRun, client_figures, in_host_time
from tasks.drive import Text
from tasks.entry import metrics_of
from tasks.record import Percentiles, TrialRecord
from tasks.report_client import _HEADS, client_section
from tasks.texts import read_sets, texts_of
from tests.builders import measurement, record
from tests.sweeps import changed, host, sweep, unchecked
from tests.wheels import file_in_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.probe import Stream
    from configs.releases import EngineKind
    from tasks.record import Finding, Measurement

ROOT = Path(__file__).parents[1]
CLIENT = """\
  standard:
    kind: bench-serving
    of: load
"""
BESIDE = ("blocks: 2", f"{CLIENT}blocks: 2")


def load(*changes: tuple[str, str]) -> Stream:
    return streams_of(sweep(*changes).probes)["load"]


def asked(engine: EngineKind = "sglang", release: str | None = "0.5.9", **fields: Any) -> Asked:
    default: dict[str, Any] = {
        "engine": engine,
        "release": release,
        "port": 30000,
        "model": "/models/target",
        "served": "target",
        "tokenizer": (),
        "requests": 80,
        "concurrency": 8,
        "seed": 3,
        "tag": "client-standard-c8",
    }
    return Asked(**(default | fields))


def options(words: Sequence[str]) -> dict[str, str | None]:
    """Option -> value of a command line in which every option begins with two dashes."""
    found = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word[2:]] = None if after.startswith("--") else after
    return found


def said(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(changed(("blocks: 2", f"{CLIENT}{text}blocks: 2")), "sweep.yaml")
    return "; ".join(map(str, caught.value.problems))


# What a sweep may ask for.


def test_it_is_told_apart_and_takes_another_probe_s_ladder():
    probes = sweep(BESIDE).probes
    assert list(streams_of(probes)) == list(rungs_of(probes)) == ["load"]
    (client,) = clients_of(probes).values()
    assert client == BenchServing(of="load")
    assert client.levels(streams_of(probes)["load"]) == (1, 8)
    assert BenchServing(of="load", concurrency=(8,)).levels(load()) == (8,)


def test_a_sweep_with_one_reads_back_as_itself():
    there = sweep(BESIDE)
    assert parse_sweep(to_yaml(there), "sweep.yaml") == there


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    concurrency: [8, 8]\n", "8 stands twice: name each level once"),
        ("    concurrency: [4]\n", "4 is not measured by load"),
        ("    prompts: mixed\n", "prompts: unknown key"),
        ("    timeout_s: 0\n", "timeout_s"),
    ],
)
def test_what_is_wrong_in_one_is_said(text, words):
    assert words in said(text)


def test_it_must_name_a_probe_that_is_measured():
    with pytest.raises(
        ConfigError, match=r"probes.standard.of: no probe .* 'lod': name one of load"
    ):
        sweep(("blocks: 2", CLIENT.replace("of: load", "of: lod") + "blocks: 2"))
    ladder = ("concurrency: [1, 8]\n", "concurrency: [1, 8]\n    context_tokens: [2048]\n")
    with pytest.raises(ConfigError, match="name one of load-ctx2048"):
        sweep(BESIDE, ladder)
    there = sweep(
        ("blocks: 2", CLIENT.replace("of: load", "of: load-ctx2048") + "blocks: 2"), ladder
    )
    assert clients_of(there.probes)["standard"].of in texts_of(there, read_sets(there), None)


def test_what_a_client_cannot_do_is_refused():
    short = ("concurrency: [1, 8]\n", "concurrency: [1, 8]\n    sampling: {max_new_tokens: 3}\n")
    assert any("for no fewer than 4" in p.message for p in problems(unchecked(BESIDE, short)))
    drawn = (
        "prompts: mixed",
        "prompts: random\n    random: {tokens: 512, range_ratio: 0.25}",
    )
    told = [p.message for p in problems(unchecked(BESIDE, drawn))]
    assert any("draws lengths from 128 to 512" in message for message in told)


def test_it_changes_no_warning_and_no_limit_but_belongs_to_the_intent():
    assert warnings(sweep(BESIDE)) == warnings(sweep())
    before, after = make_plan(sweep()), make_plan(sweep(BESIDE))
    assert [t.id for t in before.trials] == [t.id for t in after.trials]
    assert before.trials[0].intent != after.trials[0].intent


def test_the_plan_says_that_it_is_a_cross_check():
    there = sweep(BESIDE)
    question = Question(
        sweep=there,
        hosts={"box": host()},
        patches=(),
        plan=make_plan(there),
        warnings=(),
        sets={},
    )
    out = io.StringIO()
    Console(file=out, width=200).print(plan_text(question))
    shown = " ".join(out.getvalue().split())
    assert "standard: after those, the engine's own load generator" in shown
    assert "traffic of load at 1, 8 users; a cross-check, in no ratio" in shown


# What the clients are told.


@pytest.mark.parametrize(
    ("release", "module", "ready"),
    [
        ("0.5.9", "sglang.bench_serving", False),
        ("0.5.10", "sglang.bench_serving", True),
        ("0.5.12.post1", "sglang.bench_serving", True),
        ("0.5.14", "sglang.bench_serving", True),
        ("0.5.15", "sglang.benchmark.serving", True),
        ("0.5.23", "sglang.benchmark.serving", True),
        ("0.6.1", "sglang.benchmark.serving", True),
        ("0.5.8", "sglang.bench_serving", False),
        (None, "sglang.bench_serving", False),
    ],
)
def test_the_module_and_the_options_go_by_the_release(release, module, ready):
    assert tool_of("sglang", release) == client_module(release) == module
    words = client_words(asked(release=release), load())
    assert words[:2] == ["-m", module]
    given = options(words)
    assert given.get("ready-check-timeout-sec") == ("0" if ready else None)
    if release != "0.5.8":
        lacking = [name for name in given if not client_takes(name, release)]
        assert lacking == [], "every option that is given has a row in the table"


def test_sglang_s_client_is_told_the_probe():
    sampling = "    sampling: {max_new_tokens: 200, temperature: 0.7, top_p: 0.9}\n"
    probe = load(("concurrency: [1, 8]\n", f"concurrency: [1, 8]\n{sampling}"))
    given = options(client_words(asked(), probe))
    assert given["base-url"] == "http://127.0.0.1:30000"
    assert (given["num-prompts"], given["max-concurrency"], given["seed"]) == ("80", "8", "3")
    assert (given["dataset-name"], given["dataset-path"]) == ("custom", PROMPTS)
    assert (given["sharegpt-output-len"], given["request-rate"]) == ("200", "inf")
    assert (given["warmup-requests"], given["output-file"]) == ("0", RESULT)
    body = json.loads(given["extra-request-body"] or "")
    assert body == {"sampling_params": {"temperature": 0.7, "max_new_tokens": 200, "top_p": 0.9}}


def test_vllm_s_client_is_told_the_probe():
    words = client_words(asked("vllm", "0.33.0", tokenizer=("--trust-remote-code",)), load())
    assert words[:4] == ["-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    given = options(words)
    assert (given["model"], given["served-model-name"]) == ("/models/target", "target")
    assert (given["num-prompts"], given["max-concurrency"]) == ("80", "8")
    for switch in ("skip-chat-template", "disable-shuffle", "no-oversample", "trust-remote-code"):
        assert given[switch] is None
        assert f"--{switch}" in words
    body = json.loads(given["extra-body"] or "")
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (256, 0.0, -1)
    assert not {"prompt", "stream", "return_token_ids"} & set(body)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_random_tokens_keep_their_length(engine):
    probe = load(("prompts: mixed", "prompts: random\n    random: {tokens: 512}"))
    given = options(client_words(asked(engine), probe))
    assert given["dataset-name"] == {"sglang": "random-ids", "vllm": "random"}[engine]
    # SGLang's ratio is the shortest length by the longest, vLLM's the way up and down.
    assert given["random-range-ratio"] == {"sglang": "1.0", "vllm": "0.0"}[engine]
    assert (given["random-input-len"], given["random-output-len"]) == ("512", "256")
    assert any(text.startswith("random token") for text in unmatched(engine, probe))


def test_the_pretend_clients_take_what_the_real_ones_are_told():
    for change in ((), (("prompts: mixed", "prompts: random\n    random: {tokens: 512}"),)):
        words = client_words(asked(), load(*change))
        assert sglang_client.parser().parse_args(words[2:]).num_prompts == 80
        words = client_words(asked("vllm", "0.33.0"), load(*change))
        assert vllm_client.parser().parse_args(words[2:]).num_prompts == 80
    for parser, words in (
        (sglang_client.parser(), ["--ready-check-timeout-sec", "0"]),
        (vllm_client.parser(), ["bench", "serve", "--tag", "x"]),
    ):
        with pytest.raises(SystemExit) as left:
            parser.parse_args(words)
        assert left.value.code == 2


@pytest.mark.network
def test_the_pretend_options_are_those_of_the_wheel():
    """Name, type and default of every option of the pretend client, in 0.5.9's own source."""
    source = file_in_wheel("sglang", "0.5.9", "bench_serving.py")
    assert source is not None
    real = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            told = {word.arg: ast.unparse(word.value) for word in node.keywords}
            for name in (a.value for a in node.args if isinstance(a, ast.Constant)):
                real[name] = (told.get("type"), told.get("action"), told.get("default"))
    for action in sglang_client.parser()._actions[1:]:
        kind, switch, default = real[action.option_strings[0]]
        assert (switch == "'store_true'") == (action.nargs == 0), action.dest
        assert kind in {None, getattr(action.type, "__name__", None)}, action.dest
        if switch is None and action.dest != "dataset_name":  # the real one has more of those
            assert repr(action.default) == str(default).replace("float('inf')", "inf"), action.dest


def real(name: str) -> str:
    return (ROOT / "tests/fixtures/clients" / name).read_text()


def outputs() -> list[Output]:
    one = Output(Prompt("x" * 40, 10, 4), success=True, ttft=0.1, latency=0.4, tokens=4)
    one.gaps = [0.1, 0.1, 0.1]
    return [one, Output(Prompt("y", 1, 4), error="Internal Server Error")]


def test_the_pretend_line_has_the_keys_of_the_real_one_in_their_order():
    args = sglang_client.parser().parse_args(client_words(asked(), load())[2:])
    line = sglang_client._line(args, outputs(), 0.5, {"server_info": {}, "accept_length": 2.5})
    assert list(line) == list(json.loads(real("sglang-0.5.9.jsonl")))
    assert (line["completed"], line["output_throughput"]) == (1, 8.0)

    args = vllm_client.parser().parse_args(client_words(asked("vllm"), load())[2:])
    grown = {
        "num_drafts": 9.0,
        "num_draft_tokens": 27.0,
        "num_accepted_tokens": 9.0,
        "pos0": 6.0,
        "pos1": 3.0,
    }
    told = vllm_client._speculation(dict.fromkeys(grown, 0.0), grown)
    line = vllm_client._line(args, outputs(), 0.5, told)
    assert list(line) == list(json.loads(real("vllm-0.33.0.jsonl")))
    assert (line["completed"], line["failed"], told["spec_decode_acceptance_length"]) == (1, 1, 2.0)


def test_of_nothing_the_pretend_client_writes_nan_as_the_real_one_does():
    args = sglang_client.parser().parse_args(client_words(asked(), load())[2:])
    lost = outputs()[1:]
    line = sglang_client._line(args, lost, 0.5, {"server_info": None, "accept_length": 2.7})
    text = json.dumps(line)
    assert '"mean_e2e_latency_ms": NaN' in text
    assert '"request_rate": Infinity' in text
    told = read_bench(text, Circumstances(requested=1, spec_active=True))
    assert (told.reason, told.accept_len) == ("all_requests_failed", None)


@pytest.mark.parametrize(
    ("name", "requests", "speed", "accept"),
    [
        ("sglang-0.5.9.jsonl", 6, 144.2, 2.816),
        ("vllm-0.33.0.jsonl", 6, 343.8, 2.821),
        ("sglang-0.5.12.post1-h200.jsonl", 64, 1424.1, 3.033),
    ],
)
def test_what_the_real_clients_wrote_is_read(name, requests, speed, accept):
    told = read_bench(real(name), Circumstances(requested=requests, spec_active=True))
    assert (told.valid, told.completed, told.request_rate) == (True, requests, "inf")
    assert told.output_throughput == pytest.approx(speed, rel=1e-3)
    assert told.accept_len == pytest.approx(accept, rel=1e-3)


def test_prompts_are_laid_in_each_client_s_format():
    texts = [Text("a", "chat", 'Say "hi"\nthen stop.'), Text("b", "code", "def f():")]
    rows = [json.loads(line) for line in prompts_file("sglang", texts).splitlines()]
    assert [row["conversations"][0]["content"] for row in rows] == [t.text for t in texts]
    assert all(len(row["conversations"]) == 2 for row in rows), "it drops lone turns"
    rows = [json.loads(line) for line in prompts_file("vllm", texts).splitlines()]
    assert [row["prompt"] for row in rows] == [t.text for t in texts]
    assert prompts_file("vllm", [Text("r", "random", "", (1, 2))]) == ""


def test_whose_acceptance_it_is_is_named():
    alone = whose_acceptance("sglang", flushed=True, dp_size=4)
    assert "of data-parallel rank 0 of 4 alone" in alone
    assert "rank" not in whose_acceptance("sglang", flushed=True, dp_size=1)
    assert "last emptied" in whose_acceptance("sglang", flushed=False, dp_size=1)
    assert "counters over its run" in whose_acceptance("vllm", flushed=True, dp_size=4)


def test_the_table_knows_the_modules():
    first = {name: known.first for (kind, name), known in known_names().items() if kind == "module"}
    assert first == {"sglang.bench_serving": "0.5.9", "sglang.benchmark.serving": "0.5.15"}


# What is made of their word.

TOLD = BenchResult(
    valid=True,
    completed=80,
    requested=80,
    duration_s=10.0,
    output_throughput=1000.0,
    median_ttft_ms=100.0,
    p99_ttft_ms=200.0,
    median_tpot_ms=8.0,
    accept_len=2.5,
)
RUN = ClientRun(
    probe="standard",
    of="load",
    concurrency=8,
    requests=80,
    tool="sglang.bench_serving",
    release="0.5.9",
    result=TOLD,
    acceptance_of="the server's average since the cache was emptied before it",
    unmatched=("a new connection for every request",),
)


def ours(**fields: Any) -> Measurement:
    default: dict[str, Any] = {
        "probe": "load",
        "concurrency": 8,
        "full_output_tok_s": 1000.0,
        "ttft_s": Percentiles(p50=0.1, p90=0.15, p99=0.2),
        "tpot_s": Percentiles(p50=0.008, p90=0.009, p99=0.01),
        "accept_length": 2.5,
    }
    return measurement(**(default | fields))


def run(told: dict[str, Any] | None = None, **fields: Any) -> ClientRun:
    result = TOLD.model_copy(update=told or {})
    return RUN.model_copy(update={"result": result, **fields})


def found(one: ClientRun, *measured: Measurement) -> dict[str, Finding]:
    return {f.name: f for f in check_clients([one], measured or [ours()])}


def test_figures_that_agree_are_no_finding():
    assert found(RUN) == {}
    assert [pair.off for pair in pairs_of(RUN, [ours()])] == pytest.approx([0, 0, 0, 0])


TRIPS = {
    "client_failed": (run(result=None, trouble="exit code 1"), "exit code 1"),
    "client_unusable": (
        run({"valid": False, "reason": "requests_failed", "completed": 70}),
        "requests_failed: 70 of 80",
    ),
    "client_rank_zero": (
        run(every_rank=False, acceptance_of="of data-parallel rank 0 of 4 alone"),
        "2.5 is of data-parallel rank 0 of 4 alone",
    ),
    "client_disagrees": (run({"output_throughput": 850.0}), "-15.0%, limit 10%"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_every_guard_trips_and_makes_no_trial_suspect(name):
    one, words = TRIPS[name]
    (finding,) = found(one).values()
    assert (finding.name, finding.where) == (name, "standard c8")
    assert words in finding.evidence
    assert finding.tolerated == TOLERATED


def test_all_guards_are_tried_and_written_down():
    assert set(TRIPS) == {guard.name for guard in CLIENT_GUARDS}
    page = (ROOT / "docs/engines.md").read_text()
    assert [g.name for g in CLIENT_GUARDS if f"`{g.name}`" not in page] == []


@pytest.mark.parametrize(
    ("told", "more", "apart"),
    [
        ({"output_throughput": 905.0}, {}, False),
        ({"median_tpot_ms": 9.0}, {}, True),
        ({"median_ttft_ms": 125.0}, {}, True),
        ({"median_ttft_ms": 125.0}, {"requests": 8}, False),  # medians of few are noise
        ({"accept_len": 2.2}, {}, True),
        ({"accept_len": None}, {}, False),
        ({"output_throughput": None}, {}, False),
    ],
)
def test_how_far_apart_is_too_far(told, more, apart):
    assert ("client_disagrees" in found(run(told, **more))) is apart


def test_a_few_milliseconds_are_no_disagreement():
    quick = ours(ttft_s=Percentiles(p50=0.012, p90=0.02, p99=0.03))
    assert found(run({"median_ttft_ms": 18.0}), quick) == {}


def test_the_accept_length_of_one_rank_is_not_held_against_ours():
    alone = run({"accept_len": 1.9}, every_rank=False)
    assert set(found(alone)) == {"client_rank_zero"}
    text = client_section([record(measurements=(ours(),), clients=(alone,))])
    assert "| 2.50 / 1.90, -24.0% |" in text, "shown, and not in bold"


def test_on_a_host_in_fast_motion_its_word_is_put_in_the_host_s_time():
    slow = in_host_time(TOLD, 5.0)
    assert (slow.duration_s, slow.output_throughput, slow.median_tpot_ms) == (50.0, 200.0, 40.0)
    assert slow.accept_len == 2.5


def test_the_index_gets_its_figures_under_a_prefix_of_their_own():
    one = record(measurements=(ours(),), clients=(RUN,))
    points = {(name, step): value for name, value, step in metrics_of(one)}
    assert points["standard/client_output_tok_s", 8] == 1000.0
    assert points["standard/c8_client_tpot_s_p50", 0] == pytest.approx(0.008)
    assert not [name for name, _ in points if name.startswith("load/") and "client" in name]
    assert list(client_figures(run({"valid": False}))) == []


def test_a_record_of_before_is_read_as_one_without_clients():
    told = record().model_dump(mode="json")
    del told["clients"]
    assert TrialRecord.model_validate(told).clients == ()


# The report.


def records() -> list[TrialRecord]:
    base = record(
        arm="base", baseline=True, trial="b01-base", measurements=(ours(),), clients=(RUN,)
    )
    low = run({"output_throughput": 850.0}, every_rank=True)
    fast = ours(full_output_tok_s=1000.0)
    one = record(arm="a", baseline=False, trial="b01-a", measurements=(fast,), clients=(low,))
    lost = run(result=None, trouble="exit code 1: No module named sglang.bench_serving")
    two = record(arm="a", baseline=False, trial="b02-a", measurements=(fast,), clients=(lost,))
    return [base, one, two]


def test_the_report_sets_both_side_by_side():
    text = client_section(records())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| setting | users | client | tokens/s | TTFT p50 | TPOT p50 |")
    assert rows[2].startswith(
        "| base (baseline) | 8 | sglang.bench_serving 0.5.9 | 1,000 / 1,000, +0.0%"
    )
    assert "| 100 / 100 ms, +0.0% | 8.00 / 8.00 ms, +0.0% | 2.50 / 2.50, +0.0% |" in rows[2]
    assert "1,000 / 850, **-15.0%**" in rows[3]
    assert rows[3].endswith("| 1 |"), "the trial without figures is not counted"
    assert "b02-a, standard at 8 users: no figures of" in text
    assert "No module named" in text
    assert "not matched: a new connection for every request" in text
    assert "the server's average since the cache was emptied before it" in text
    assert client_section([record()]) == ""


def test_every_figure_has_a_column():
    assert set(_HEADS) == {figure.name for figure in FIGURES}


def test_differences_are_taken_within_each_trial():
    first = record(trial="b01-a", arm="a", measurements=(ours(),), clients=(RUN,))
    slower = ours(full_output_tok_s=500.0)
    second = record(
        trial="b02-a", arm="a", measurements=(slower,), clients=(run({"output_throughput": 550.0}),)
    )
    (line,) = beside([first, second])
    assert line.trials == 2
    assert line.offs["output_tok_s"] == pytest.approx(0.05), "(0 % + 10 %) / 2"


def test_the_command_stands_in_the_record_as_it_was_run():
    words = ["/venv/bin/python", *client_words(asked(), load())]
    kept = RUN.model_copy(update={"command": tuple(words)})
    assert shlex.split(shlex.join(kept.command)) == words
