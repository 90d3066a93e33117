"""Failures that no engine's log shows: what the sweep itself sees or decides."""

from __future__ import annotations

from tasks.failure_table_form import FailureClass

HOST_FAILURES = (
    FailureClass(
        name="engine_died",
        cause="The engine's process ended and its log does not say why.",
        remedy="Read the last lines of the log and the host's dmesg.",
        who="engine",
        retry="same_once",
        citation="exit code 137 is the usual end of any failed sglang start, not proof of memory",
    ),
    FailureClass(
        name="ready_timeout",
        cause="The server was not ready within the time that the sweep allows.",
        remedy="See the stage it was in; allow more time for slow disks and kernel compiles.",
        who="user",
        retry="same_once",
    ),
    FailureClass(
        name="not_generating",
        cause="The server answers, but no token comes.",
        remedy="Start it again on a fresh port.",
        who="engine",
        retry="same_once",
        citation="sglang#4191, sglang#22779, vllm#39863",
    ),
    FailureClass(
        name="wrong_model_served",
        cause="The port answers for another model or another start than the one asked for.",
        remedy="Stop the other server, or take a free port.",
        who="host",
        retry="after_change",
        citation="sglang#22779, vllm#15987",
    ),
    FailureClass(
        name="speculation_not_active",
        cause="The server runs without the speculation that the arm asks for.",
        remedy="Compare asked and effective flags; see whether this version ignores one.",
        who="user",
        retry="after_change",
    ),
    FailureClass(
        name="foreign_gpu_process",
        cause="A process that is not ours holds a GPU.",
        remedy="Ask its owner; this sweep touches nothing that is not its own.",
        who="host",
        retry="after_gpus_free",
    ),
    FailureClass(
        name="gpu_memory_held",
        cause="GPU memory is in use and no process shows that holds it.",
        remedy="Wait, look from outside the container, restart the container.",
        who="host",
        retry="after_gpus_free",
        citation="sglang cli/killall.py:441",
    ),
    FailureClass(
        name="patch_refused",
        cause="The source is not what the patch was written for, so nothing was changed.",
        remedy="Read the reason; choose a version that the patch names, or none.",
        who="us",
        retry="after_change",
    ),
    FailureClass(
        name="drafter_refused",
        cause="The drafter's files cannot work with this target and engine.",
        remedy="Read the findings of the drafter check.",
        who="user",
        retry="after_change",
    ),
    FailureClass(
        name="host_claimed",
        cause="Another sweep works on this host.",
        remedy="Wait for it, or break its claim if its controller is gone.",
        who="host",
        retry="same_once",
    ),
    FailureClass(
        name="ssh_lost",
        cause="Contact with the host was lost; what happened there is not known.",
        remedy="Reconnect; the state file on the host says what became of the engine.",
        who="host",
        retry="same_once",
    ),
    FailureClass(
        name="host_rebooted",
        cause="The host's boot id changed: it was restarted during the trial.",
        remedy="Look why; the trial may run again.",
        who="host",
        retry="same_once",
    ),
    FailureClass(
        name="lease_expired",
        cause="Nobody renewed the engine's lease, so the host stopped it and freed the GPUs.",
        remedy="See whether the controller slept, died or lost its network.",
        who="host",
        retry="same_once",
    ),
    FailureClass(
        name="probe_failed",
        cause="A probe's requests failed although the engine was up.",
        remedy="Read the first errors in the probe's samples.",
        who="user",
        retry="no",
    ),
    FailureClass(
        name="cancelled",
        cause="The sweep was stopped by its user.",
        remedy="Run it again; what is done is kept.",
        who="user",
        retry="same_once",
    ),
    FailureClass(
        name="unknown_exception",
        cause="An exception that this table does not know.",
        remedy="Read the root line and the traceback in the log.",
        who="engine",
        retry="no",
    ),
)
