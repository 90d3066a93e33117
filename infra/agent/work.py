"""The life of a job's own process."""

from __future__ import annotations

import os
from typing import Any

from infra.agent import facts, folders, jobs, reap
from infra.agent.jobs import Job
from infra.agent.journal import say_fault
from infra.agent.refusal import Refusal


def _work(kind: str, job: Job) -> dict[str, Any]:
    if kind == "facts":
        return facts.facts(job)
    if kind == "reap":
        return reap.reap(job)
    if kind == "collectives":
        from infra.agent import collectives

        return collectives.collectives(job)
    if kind == "profile":
        from infra.agent import recording

        return recording.record(job)
    if kind == "client":
        from infra.agent import client

        return client.run_client(job)
    if kind == "options":
        from infra.agent import options

        return options.options(job)
    # A zipped program is compiled anew each time: whoever reaps is in a hurry and needs no client.
    from infra.agent import drive

    return drive.drive(job)


def run_job(asked: dict[str, Any]) -> dict[str, Any]:
    """The life of a job's process: do the work, write its result, whatever comes of it."""
    folder = folders.existing_folder(asked["dir"])
    where = jobs.place(folder, asked["name"])
    try:
        request = folders.read_object(os.path.join(where, "request.json"))
        if request is None:
            raise Refusal("bad_request", "request.json is not a JSON object")
        result = {"ok": True, **_work(asked["job"], Job(folder, where, request))}
    except Refusal as refusal:
        result = refusal.answer()
    except Exception as fault:
        say_fault()
        result = {"ok": False, "error": "bug", "message": f"{type(fault).__name__}: {fault}"}
    folders.write_json(os.path.join(where, "result.json"), result)
    return {"name": asked["name"]}
