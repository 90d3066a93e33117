"""One HTTP request to a server on this host, bounded in time and size."""

from __future__ import annotations

import http.client
import time
from typing import Any

from infra.agent import folders
from infra.agent.refusal import Refusal

LONGEST_S = 2.0
MOST_BYTES = 1 << 20


def http_call(asked: dict[str, Any]) -> dict[str, Any]:
    """Asks the server on a local port; any status is an answer.

    Raises:
        Refusal: ``unreachable`` (nobody listens, or the connection broke), ``timeout``,
            ``not_http``, ``no_headers``.
    """
    return ask(asked, min(float(asked.get("timeout_s", LONGEST_S)), LONGEST_S))


def ask(asked: dict[str, Any], within_s: float) -> dict[str, Any]:
    """The same for a piece of work on the host, which may wait longer than a command."""
    started = time.monotonic()
    until = started + within_s
    port = int(asked["port"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_left(until))
    body = asked.get("body")
    try:
        connection.request(
            asked["method"],
            asked["path"],
            body=body.encode() if isinstance(body, str) else body,
            headers=_headers(asked),
        )
        _within(connection, until)
        response = connection.getresponse()
        data = _read(connection, response, until)
    except TimeoutError as fault:
        raise Refusal("timeout", f"port {port} did not answer in time") from fault
    except http.client.HTTPException as fault:
        if isinstance(fault, ConnectionError):
            raise Refusal("unreachable", f"port {port}: {fault}") from fault
        raise Refusal("not_http", f"port {port}: {type(fault).__name__} {fault}") from fault
    except OSError as fault:
        raise Refusal("unreachable", f"port {port}: {fault}") from fault
    finally:
        connection.close()
    return {
        "status": response.status,
        "body": data.decode("utf-8", "replace"),
        "seconds": time.monotonic() - started,
    }


def http_calls(asked: dict[str, Any]) -> dict[str, Any]:
    """Several requests in order, up to the first that is not answered with 200.

    A round trip over SSH for each would cost more than the requests themselves.
    """
    shared = {key: value for key, value in asked.items() if key != "requests"}
    answers: list[dict[str, Any]] = []
    for one in asked["requests"]:
        try:
            answers.append({"error": None, **http_call({**shared, **one})})
        except Refusal as refusal:
            answers.append({"error": refusal.error, "message": str(refusal)})
        if answers[-1].get("status") != 200:
            break
    return {"answers": answers}


def _headers(asked: dict[str, Any]) -> dict[str, str]:
    headers = {"Content-Type": "application/json"} if asked.get("body") is not None else {}
    return {**headers, **secret_headers(asked)}


def secret_headers(asked: dict[str, Any]) -> dict[str, str]:
    """Headers that stand in a file of ours (0600), not in an argument that ``ps`` shows."""
    path = asked.get("headers_path")
    if path is None:
        return {}
    found = folders.read_object(path)
    if found is None:
        raise Refusal("no_headers", f"{path} is not there, or no JSON object")
    return {str(name): str(value) for name, value in found.items()}


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _within(connection: http.client.HTTPConnection, until: float) -> None:
    """Socket timeouts are per call; this keeps the whole within the limit."""
    left = _left(until)
    if connection.sock is not None:
        connection.sock.settimeout(left)


def _read(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float
) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < MOST_BYTES:
        _within(connection, until)
        part = response.read1(MOST_BYTES - size)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)
