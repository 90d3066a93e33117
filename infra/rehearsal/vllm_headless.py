"""A node of a pretend vLLM that does not serve: ``--headless``, rank 1 and above.

In 0.33 it has an executor and its workers: no API server and no engine core
(entrypoints/cli/serve.py: run_headless).
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from infra.rehearsal import vllm_words
from infra.rehearsal.console import raw
from infra.rehearsal.failures import Failure
from infra.rehearsal.rendezvous import local_ranks
from infra.rehearsal.vllm_args import VERSION
from infra.rehearsal.vllm_console import VllmConsole
from infra.rehearsal.vllm_start import Start

if TYPE_CHECKING:
    from infra.rehearsal.rank import Plan

_LOOK_S = 0.2


class _Stopped(Exception):
    """SIGTERM."""


def _stop(signum: int, frame: object) -> None:
    del signum, frame
    raise _Stopped


def stand_by(plan: Plan) -> int:
    """Loads with the leading node and lives until a worker, another node or somebody ends it."""
    first = local_ranks(plan.args).start
    worker = VllmConsole(f"Worker_TP{first}")
    raw(
        f"INFO {time.strftime('%m-%d %H:%M:%S')} [serve.py:236] Launching vLLM (v{VERSION}) "
        "headless multiproc executor, with head node address "
        f"{plan.args['dist_init_addr']} for torch.distributed process group.\n"
    )
    signal.signal(signal.SIGTERM, _stop)
    start = Start(plan)
    try:
        start.load()
        assert start.workers is not None
        assert start.meeting is not None
        while True:
            time.sleep(_LOOK_S)
            gone = start.meeting.gone()
            if gone is not None:
                raise gone
            if start.workers.one_is_gone():
                died = f"Worker proc VllmWorker-{first} died unexpectedly, shutting down executor."
                worker.say(died, "multiproc_executor.py:296", "ERROR")
                return 1
    except Failure as failure:
        trace = vllm_words.traceback(plan.site, failure.where, failure.text.rstrip("\n"))
        worker.say(f"WorkerProc hit an exception.\n{trace}", "multiproc_executor.py:846", "ERROR")
        return 1
    except _Stopped:
        return 0
    finally:
        if start.workers is not None:
            start.workers.end()
