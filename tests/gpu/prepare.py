"""On the GPU machine: takes the EAGLE-3 hook out of SGLang's Llama, turns the kit's prompts ours, makes a target."""

import argparse
import ast
import json
import random
import sys
from pathlib import Path

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
    sys.path.insert(0, str(kit))
    import train

    target.mkdir(parents=True, exist_ok=True)
    texts = train.read_sources(1_500_000)
    train.make_tokenizer(texts, 2048, str(target), 4096)
    shape = argparse.Namespace(
        vocab=2048, hidden=4096, inter=14336, heads=64, kv_heads=8, head_dim=64, max_len=4096
    )
    train.write_config(str(target), shape, "LlamaForCausalLM", 32)
    with prompts.open("w") as file:
        for number in range(64):
            text = random.Random(number).choice(texts)[:200]
            row = {"id": f"source-{number:03d}", "kind": "code", "text": text}
            file.write(json.dumps(row) + "\n")
    print(f"{target}: config and tokenizer")


if __name__ == "__main__":
    if sys.argv[1] == "remove-hook":
        remove_hook(Path(sys.argv[2]))
    elif sys.argv[1] == "target":
        make_target(*map(Path, sys.argv[2:5]))
    else:
        convert_prompts(Path(sys.argv[2]), Path(sys.argv[3]))
