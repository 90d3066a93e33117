"""On the GPU machine: takes the EAGLE-3 hook out of SGLang's Llama, or turns the kit's prompts ours."""

import ast
import json
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


if __name__ == "__main__":
    if sys.argv[1] == "remove-hook":
        remove_hook(Path(sys.argv[2]))
    else:
        convert_prompts(Path(sys.argv[2]), Path(sys.argv[3]))
