"""A pretend engine as a child process of a test, and clients for it."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Self

from infra.rehearsal import knobs, memory, tree

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = """
    def set_eagle3_layers_to_capture(self, layer_ids: Optional[List[int]] = None):
        self.language_model.set_eagle3_layers_to_capture(layer_ids)

    def get_embed_and_head(self) -> Tuple[torch.Tensor, torch.Tensor]:
        return self.language_model.get_embed_and_head()

    def set_embed_and_head(self, embed: torch.Tensor, head: torch.Tensor) -> None:
        self.language_model.set_embed_and_head(embed, head)
"""
BOUND_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build(folder: Path, **changed: Any) -> Path:
    """A quick host: short starts, no noise."""
    settings = knobs.Knobs(start_s=0.2, noise_cv=0.0, drain_check_s=0.05)
    tree.build(folder, replace(settings, **changed))
    return folder


def model_file(folder: Path) -> Path:
    return folder / "home/site/sglang/srt/models/kimi_k25.py"


def patch(folder: Path, hooks: str = HOOKS) -> None:
    path = model_file(folder)
    path.write_text(path.read_text().replace("\n\nEntryClass", f"{hooks}\n\nEntryClass"))


def eagle3(drafter: str = "k25-tuned", steps: int = 3, **more: Any) -> list[str]:
    flags = ["--speculative-algorithm", "EAGLE3"]
    flags += ["--speculative-draft-model-path", f"data/eagle3/{drafter}"]
    flags += ["--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"]
    flags += ["--speculative-num-draft-tokens", str(steps + 1)]
    for name, value in more.items():
        flags += ["--" + name.replace("_", "-"), str(value)]
    return flags


def wait_free(folder: Path, gpu: int) -> None:
    """Killed processes hold their memory for a moment longer, here as on a real card."""
    until = time.monotonic() + BOUND_S
    while memory.holders(folder, gpu):
        assert time.monotonic() < until, "a dead engine still holds memory"


class Engine:
    """One engine; its stderr is read as it comes."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        port: int | None = None,
        script: Path | None = None,
        **env: str,
    ):
        self.port = port or free_port()
        self.folder = folder
        home = folder / "home"
        command = [str(home / "venv/bin/python"), "-m", "sglang.launch_server"]
        command += ["--model-path", "shared/kimi-k2.5-int4", "--tp-size", "8"]
        command += ["--port", str(self.port), *flags]
        if script is not None:  # a script that starts one, with the port in its environment
            command, env = ["bash", str(script)], {"PORT": str(self.port), **env}
        clean = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(home), **env}
        self.process = subprocess.Popen(
            command, cwd=home, env=clean, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        self.log = ""
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,))
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(BOUND_S)

    def _read(self, pipe: IO[bytes]) -> None:
        """Keep the log as it comes; a full pipe would stop the engine."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        with pipe:
            while data := os.read(pipe.fileno(), 65_536):
                with self._news:
                    self.log += decoder.decode(data)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, text: str, times: int = 1) -> None:
        with self._news:
            found = self._news.wait_for(
                lambda: self.log.count(text) >= times or self._ended, timeout=BOUND_S
            )
            assert found, f"no {text!r} within the bound:\n{self.log[-3000:]}"
            assert self.log.count(text) >= times, f"ended first:\n{self.log[-3000:]}"

    def ready(self) -> Engine:
        self.wait_for("The server is fired up and ready to roll!")
        return self

    def ended(self) -> int:
        """The exit code as a shell gives it, once the whole log is read."""
        with self._news:
            assert self._news.wait_for(lambda: self._ended, timeout=BOUND_S), self.log[-3000:]
        code = self.process.wait(BOUND_S)
        return 128 - code if code < 0 else code

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ask(self, path: str, body: object = None, method: str | None = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, path: str, body: object = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def generate(self, prompt: str, tokens: int, **more: Any) -> Any:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
        return self.json("/generate", {"text": prompt, "sampling_params": sampling})


@dataclass(frozen=True)
class Streamed:
    """What a client saw of one stream: moments of chunks, and the last chunk's meta_info."""

    sent: float
    times: list[float]
    meta: dict[str, Any]
    payloads: list[dict[str, Any]]


async def stream(port: int, prompt: str, tokens: int, keep: bool = False) -> Streamed:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = json.dumps({"text": prompt, "stream": True, "sampling_params": sampling}).encode()
    head = f"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    loop = asyncio.get_running_loop()
    sent = loop.time()
    writer.write(head.encode() + body)
    times, payloads, last = [], [], b""
    try:
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readuntil(b"\r\n"), 16):
            event = (await reader.readexactly(size + 2))[:-2]
            if event != b"data: [DONE]\n\n":
                times.append(loop.time())
                last = event
                if keep:
                    payloads.append(json.loads(event[6:]))
    finally:
        writer.close()
    return Streamed(sent, times, json.loads(last[6:])["meta_info"], payloads)


async def closed_loop(port: int, users: int, rounds: int, tokens: int) -> list[Streamed]:
    """So many users, each sending its next request when the last one is over."""

    async def user(number: int) -> list[Streamed]:
        return [await stream(port, f"user {number} asks {n}", tokens) for n in range(rounds)]

    return [one for each in await asyncio.gather(*map(user, range(users))) for one in each]
