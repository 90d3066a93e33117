"""Which GPUs of a host are free, busy or unknown, and whether the host may be used at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.values import Value
from tasks.smi_csv import COMPUTE_APPS, QUERY_GPU, GpuApp, GpuRow, read_apps, read_gpus
from tasks.smi_messages import Trouble, find_trouble
from tasks.smi_table import MigDevice, TableProcess, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A GPU with less memory in use than this, and no process on it, is free. An idle driver holds
#: some hundred MiB on some cards; SGLang's own rule (10 % of the card) would call 14 GB free.
FREE_BELOW_MIB = 1024


class GpuSurvey(Value):
    """What ``nvidia-smi`` says of a host, judged."""

    free: tuple[int, ...] = ()
    """Indices of GPUs with no process and next to no memory in use."""
    busy: tuple[int, ...] = ()
    """Indices of GPUs that a visible process computes on."""
    unknown: tuple[int, ...] = ()
    """Indices of GPUs whose memory is held by nobody visible, or whose memory is not reported."""
    holders: tuple[int, ...] = ()
    """Process ids that hold a GPU, as this host's namespace numbers them."""
    gpus: tuple[GpuRow, ...] = ()
    """One row per GPU."""
    apps: tuple[GpuApp, ...] = ()
    """Compute processes as the query lists them."""
    processes: tuple[TableProcess, ...] = ()
    """Processes of the human table, graphics ones too."""
    mig: bool = False
    """Whether a GPU is split into MIG devices."""
    mig_devices: tuple[MigDevice, ...] = ()
    """The MIG devices, from the human table."""
    host_ok: bool = True
    """Whether the host can be used once its GPUs are free."""
    reason: str | None = None
    """Why not, as one machine word."""
    message: str | None = None
    """The line of the driver that says so."""
    bus_id: str | None = None
    """PCI address of the GPU that is in trouble, as printed."""
    warnings: tuple[str, ...] = ()
    """What to tell the operator, one sentence each."""

    @property
    def all_free(self) -> bool:
        """Whether a launch on every GPU of the host may start now."""
        return self.host_ok and bool(self.free) and not self.busy and not self.unknown


def survey_gpus(
    gpus_text: str,
    apps_text: str = "",
    *,
    gpu_columns: Sequence[str] = QUERY_GPU,
    app_columns: Sequence[str] = COMPUTE_APPS,
    exit_code: int = 0,
    wanted: int | None = None,
    free_below_mib: float | None = None,
) -> GpuSurvey:
    """Judge the output of ``nvidia-smi``: a CSV query with or without header, or the table.

    Args:
        gpus_text: output of ``--query-gpu=…``, or of plain ``nvidia-smi``.
        apps_text: output of ``--query-compute-apps=…``.
        gpu_columns: the fields asked for, where the output has no header.
        app_columns: the same for the compute apps.
        exit_code: of the first command.
        wanted: how many GPUs the sweep needs.
        free_below_mib: memory in use below which an idle GPU is free; ``FREE_BELOW_MIB`` if None.
    """
    table = read_table(gpus_text)
    rows = table.gpus or read_gpus(gpus_text, gpu_columns)
    apps = read_apps(apps_text, app_columns)
    trouble = find_trouble(f"{gpus_text}\n{apps_text}", exit_code)
    mig = table.mig or any(row.mig for row in rows) or any(app.on_mig for app in apps)
    if trouble is None and mig:
        trouble = Trouble("mig_enabled", "a GPU is split into MIG devices")
    if trouble is None and not rows and not table.seen:
        trouble = Trouble("no_gpu_rows", "nvidia-smi printed nothing that names a GPU")
    if trouble is None and wanted is not None and len(rows) < wanted:
        trouble = Trouble("too_few_gpus", f"{len(rows)} GPUs seen, {wanted} wanted")
    limit = FREE_BELOW_MIB if free_below_mib is None else free_below_mib
    free, busy, unknown, warnings = _sort_out(rows, apps, table.processes, limit)
    return GpuSurvey(
        free=free,
        busy=busy,
        unknown=unknown,
        holders=tuple(sorted({a.pid for a in apps} | {p.pid for p in table.compute})),
        gpus=rows,
        apps=apps,
        processes=table.processes,
        mig=mig,
        mig_devices=table.mig_devices,
        host_ok=trouble is None,
        reason=trouble.reason if trouble else None,
        message=trouble.message if trouble else None,
        bus_id=trouble.bus_id if trouble else None,
        warnings=(*warnings, *_stray_apps(rows, apps)),
    )


def _sort_out(
    rows: Sequence[GpuRow],
    apps: Sequence[GpuApp],
    processes: Sequence[TableProcess],
    limit: float,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    free, busy, unknown, warnings = [], [], [], []
    shared = {r.uuid for r in rows if sum(r.uuid == other.uuid for other in rows) > 1}
    for row in rows:
        named = any(app.gpu_uuid == row.uuid for app in apps if row.uuid)
        # A masked listing gives several GPUs one identifier: then memory tells which is meant.
        if named and row.uuid in shared and row.used_mib is not None:
            named = row.used_mib >= limit
        named = named or any(p.gpu == row.index and p.computes for p in processes)
        if named:
            busy.append(row.index)
        elif row.used_mib is None:
            unknown.append(row.index)
            warnings.append(f"GPU {row.index}: memory in use is not reported ({row.memory_words})")
        elif row.used_mib >= limit:
            unknown.append(row.index)
            warnings.append(
                f"GPU {row.index}: {row.used_mib:g} MiB used, no process visible "
                "(a process of another PID namespace or container, or one that is dying)"
            )
        else:
            free.append(row.index)
    return tuple(free), tuple(busy), tuple(unknown), tuple(warnings)


def _stray_apps(rows: Sequence[GpuRow], apps: Sequence[GpuApp]) -> list[str]:
    known = {row.uuid for row in rows}
    return [
        f"process {app.pid} ({app.name or 'name not shown'}) computes on GPU {app.gpu_uuid}, "
        "which is not in the list of GPUs"
        for app in apps
        if rows and app.gpu_uuid not in known and not app.on_mig
    ]
