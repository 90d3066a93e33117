"""On the GPU machine: takes the EAGLE-3 hook out of SGLang's Llama, turns the kit's prompts ours, makes a target."""

import argparse
import ast
import json
import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
HOOK = "set_eagle3_layers_to_capture"


def remove_hook(path: Path) -> None:
    """Removes the method from class LlamaForCausalLM, and nothing else."""
    source = path.read_text()
    lines = source.splitlines(keepends=True)
    node = next(
        method
        for found in ast.parse(source).body
        if isinstance(found, ast.ClassDef) and found.name == "LlamaForCausalLM"
        for method in found.body
        if isinstance(method, ast.FunctionDef) and method.name == HOOK
    )
    path.write_text("".join(lines[: node.lineno - 1] + lines[node.end_lineno :]))
    print(f"{HOOK}: lines {node.lineno} to {node.end_lineno} removed from {path}")


def convert_prompts(kit: Path, ours: Path) -> None:
    """From bench_serving's conversations to one text a line."""
    rows = [json.loads(line)["conversations"][0]["content"] for line in kit.open()]
    texts = list(dict.fromkeys(rows))
    ours.write_text(
        "".join(
            json.dumps({"id": f"stdlib-{n:03d}", "kind": "code", "text": text}) + "\n"
            for n, text in enumerate(texts)
        )
    )
    print(f"{len(texts)} prompts")


def make_target(kit: Path, target: Path, prompts: Path) -> None:
    """A Llama of 7 billion parameters without weights (--load-format dummy), by the kit's means."""
    shape = argparse.Namespace(
        vocab=2048, hidden=4096, inter=14336, heads=64, kv_heads=8, head_dim=64, max_len=4096
    )
    _, texts = _write_target(kit, target, shape, layers=32)
    _write_prompts(prompts, (random.Random(number).choice(texts)[:200] for number in range(64)))


X8_LAYERS = 61
X8_SHAPE = argparse.Namespace(
    vocab=2048, hidden=7168, inter=4096, heads=64, kv_heads=8, head_dim=128, max_len=4096
)
"""Width, heads and depth of Kimi-K2 (width and depth of DeepSeek-V3 too), hence their messages; the
feed-forward part is narrow and dense. README.md says why it is a Llama and not their class."""
X8_AUX = (1, 29, 57)
"""SGLang 0.5.12 adds one to each: the layers that it takes where a drafter names none."""


def make_x8(kit: Path, folder: Path, gpus: int) -> None:
    """Target, drafter, prompts and configuration files for so many GPUs, all in one folder."""
    train, texts = _write_target(kit, folder / "target", X8_SHAPE, X8_LAYERS)
    _write_prompts(folder / "prompts" / "x8.jsonl", (piece(texts, n) for n in range(512)))
    drafter = folder / "drafter"
    drafter.mkdir(exist_ok=True)
    train.write_config(
        str(drafter),
        X8_SHAPE,
        "LlamaForCausalLMEagle3",
        1,
        # the whole vocabulary: without weights there is no d2t that would map a smaller one
        draft_vocab_size=X8_SHAPE.vocab,
        eagle_config={
            "eagle_aux_hidden_state_layer_ids": list(X8_AUX),
            "use_aux_hidden_state": True,
        },
    )
    write_configs(folder, gpus)


def write_configs(folder: Path, gpus: int) -> None:
    """The host, the sweep, and in screening/ the same sweep with what its screen is to do."""
    name = f"h200-x{gpus}"
    shutil.rmtree(folder / "configs", ignore_errors=True)
    for room in ("hosts", "sweeps"):
        text = for_gpus((HERE / "configs" / room / "h200-x8.yaml").read_text(), gpus)
        place = folder / "configs" / room / f"{name}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    screening = folder / "screening" / f"{name}.yaml"
    screening.parent.mkdir(parents=True, exist_ok=True)
    screening.write_text(text + SCREEN)


SCREEN = "screen: {factor: nccl, keep: 3, starts: [default]}\n"
"""One start under the first level proves which all-reduce decode takes. The sweep itself has no
such key: then a screen drops nothing, and is held against the trials of all levels."""


def for_gpus(text: str, gpus: int) -> str:
    """A file for eight GPUs as one for fewer: names, parallelism and number of cards."""
    for eight, fewer in (
        ("h200-x8", f"h200-x{gpus}"),
        ("tp-size: 8", f"tp-size: {gpus}"),
        ("gpus: 8", f"gpus: {gpus}"),
        ("8x-h200", f"{gpus}x-h200"),
    ):
        text = text.replace(eight, fewer)
    return text


def piece(texts: list[str], number: int) -> str:
    """200 characters from anywhere in the sources: no two prompts begin alike, so none is cached."""
    draw = random.Random(number)
    text = draw.choice(texts)
    begin = draw.randrange(max(1, len(text) - 200))
    return text[begin : begin + 200]


def _write_target(kit: Path, target: Path, shape: argparse.Namespace, layers: int):
    """Config and tokenizer; returns the kit's module and the texts that the tokenizer saw."""
    sys.path.insert(0, str(kit))
    import train

    target.mkdir(parents=True, exist_ok=True)
    texts = train.read_sources(1_500_000)
    train.make_tokenizer(texts, shape.vocab, str(target), shape.max_len)
    train.write_config(str(target), shape, "LlamaForCausalLM", layers)
    print(f"{target}: config and tokenizer")
    return train, texts


def _write_prompts(path: Path, texts: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for number, text in enumerate(texts):
            row = {"id": f"source-{number:03d}", "kind": "code", "text": text}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "remove-hook":
        remove_hook(Path(sys.argv[2]))
    elif sys.argv[1] == "target":
        make_target(*map(Path, sys.argv[2:5]))
    elif sys.argv[1] == "x8":
        make_x8(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        convert_prompts(Path(sys.argv[2]), Path(sys.argv[3]))
