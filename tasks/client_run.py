"""The probe of kind bench-serving at one concurrency: the engine's own client, run on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from configs.flags import flag_value, whole_flag
from configs.layers import arm_flags, named
from configs.speculation import Off
from infra.errors import AgentRefusal
from infra.store import write_bytes
from tasks.bench_result import Circumstances, read_bench
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
from tasks.client_record import ClientRun, in_host_time
from tasks.drive import flush_cache
from tasks.side_job import ended, result_of
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.names import FlagValue
    from configs.probe import BenchServing, Stream
    from tasks.drive import Server, Text
    from tasks.venue import Site

_MARGIN_S = 30.0
_SAID = "client.log"
# A proxy of the login's environment must not come between client and server.
_ENV = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
# Settings of the server's tokenizer that the client needs too: SGLang's client takes remote code
# in any case (get_tokenizer in 0.5.9 to 0.5.23), vLLM's only if told.
_TOKENIZER = {
    "sglang": {"tokenizer-path": "tokenizer"},
    "vllm": {
        "tokenizer": "tokenizer",
        "tokenizer-mode": "tokenizer-mode",
        "trust-remote-code": "trust-remote-code",
    },
}


class Check(NamedTuple):
    """What is cross-checked, and with what."""

    name: str
    probe: BenchServing
    of: Stream
    """The probe of ours that it repeats."""
    release: str | None
    """Of the installed engine, as far as it is known."""

    def levels(self) -> tuple[int, ...]:
        """Requests in flight, one run each."""
        return self.probe.levels(self.of)


def client_level(server: Server, check: Check, texts: Sequence[Text], level: int) -> ClientRun:
    """Has the engine's own client send what our probe sent at this concurrency, and reads its word.

    Whatever goes wrong is this probe's trouble and not the trial's: our figures were taken before,
    and stand.
    """
    site, of = server.site, check.of
    kind, flags = site.engine.kind, arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    ranks = whole_flag(flags, named("dp-size", kind), kind) or 1
    job = f"client-{check.name}-c{level}"
    asked = Asked(
        engine=kind,
        release=check.release,
        port=server.handle.port,
        model=site.agent.from_cwd(site.engine.model),
        served=_served(site, flags),
        tokenizer=_tokenizer(site, flags),
        requests=len(texts),
        concurrency=level,
        seed=site.sweep.seed,
        tag=job,
    )
    argv = [site.python, *client_words(asked, of)]
    bare = ClientRun(
        probe=check.name,
        of=check.probe.of,
        concurrency=level,
        requests=len(texts),
        tool=tool_of(kind, check.release),
        release=check.release,
        command=tuple(site.mask.text(word) for word in argv),
        acceptance_of=whose_acceptance(kind, flushed=of.flush, dp_size=ranks),
        every_rank=kind != "sglang" or ranks == 1,
        unmatched=unmatched(kind, of),
    )
    known = Circumstances(
        requested=len(texts),
        wanted_output_len=of.sampling.max_new_tokens,
        ignore_eos=of.sampling.ignore_eos,
        # On random tokens no acceptance is claimed, not even somebody else's.
        spec_active=of.random is None
        and not isinstance(site.sweep.arms[site.trial.arm].speculation, Off),
        dp_size=ranks,
        tag=job if kind == "sglang" else None,
    )
    request = {
        "argv": argv,
        "env": _ENV,
        "files": {PROMPTS: prompts_file(kind, texts)},
        "headers_path": server.handle.headers_path,
        "timeout_s": check.probe.timeout_s,
    }
    try:
        if of.flush:
            flush_cache(site, server.handle)
        ran = _run(server, job, request)
    except (StageFailedError, AgentRefusal) as error:
        said = error.failure.message if isinstance(error, StageFailedError) else str(error)
        return bare.model_copy(update={"trouble": site.mask.text(said)[-500:]})
    told, scale = read_bench(ran.line, known), site.host.time_scale
    return bare.model_copy(
        update={"seconds": ran.seconds * scale, "result": in_host_time(told, scale)}
    )


def _served(site: Site, flags: Mapping[str, FlagValue]) -> str:
    """The name under which the server serves the target; of several the first."""
    told = flag_value(flags, "served-model-name", site.engine.kind)
    if isinstance(told, tuple):
        told = told[0] if told else None
    return str(told or site.engine.model)


def _tokenizer(site: Site, flags: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """The server's settings of the tokenizer as words of the client's command line."""
    kind = site.engine.kind
    words: list[str] = []
    for flag, option in _TOKENIZER[kind].items():
        value = flag_value(flags, flag, kind)
        if value is True:
            words.append(f"--{option}")
        elif isinstance(value, str):
            words += [f"--{option}", _folder(site, value) if option == "tokenizer" else value]
    return tuple(words)


def _folder(site: Site, name: str) -> str:
    """A tokenizer's folder by its whole path, since the client runs elsewhere; else a hub's name."""
    path = site.agent.from_cwd(name)
    files = ("tokenizer_config.json", "tokenizer.json", "config.json")
    there = any(site.agent.head(f"{path}/{file}", 1) is not None for file in files)
    return path if there else name


class _Ran(NamedTuple):
    """A client that ended well."""

    seconds: float
    line: str


def _run(server: Server, job: str, request: dict[str, Any]) -> _Ran:
    """Runs the client on the host, and keeps what it wrote.

    Raises:
        AgentRefusal: It did not end, or not well.
        StageFailedError: The engine died.
    """
    site, within_s = server.site, float(request["timeout_s"]) + _MARGIN_S
    start = site.agent.prepare(site.folder, job, "client", request)
    try:
        done = ended(server, job, within_s, "the engine's own client", start)
    finally:
        _kept(site, job, _SAID, f"{job}.log")
    result = result_of(done)
    line = _kept(site, job, RESULT, f"{job}.jsonl")
    if result["exit"] != 0:
        lines = [text for text in str(result["said"]).splitlines() if text.strip()]
        last = lines[-1].strip() if lines else "it said nothing"
        raise AgentRefusal("client_failed", f"exit code {result['exit']}: {last}", {})
    if line is None:
        raise AgentRefusal("client_failed", f"it ended well and wrote no {RESULT}", {})
    return _Ran(float(result["seconds"]), line.decode(errors="replace"))


def _kept(site: Site, job: str, name: str, here: str) -> bytes | None:
    """A file of the job, kept under ``clients/`` of the trial; None where there is none."""
    try:
        raw = site.agent.get(f"{site.folder}/jobs/{job}/{name}")
    except FileNotFoundError:
        return None
    masked = site.mask.raw(raw)
    write_bytes(site.keep.path / "clients" / here, masked)
    return masked
