"""The texts of the pretend site-packages: a small ``sglang`` whose Kimi class lacks the hooks.

Written for the rehearsal; only names and shapes that a patch goes by are as in 0.5.9: the
class, its methods, ``self.language_model`` in ``__init__``, the ``typing`` import, the order.
"""

from __future__ import annotations

from textwrap import dedent

KIMI_K25 = dedent(
    '''\
    import logging
    from typing import Iterable, List, Optional, Sequence, Tuple

    from sglang.srt import pretend_torch as torch
    from sglang.srt.models.deepseek_v2 import DeepseekV3ForCausalLM
    from sglang.srt.pretend_torch import nn

    logger = logging.getLogger(__name__)


    class KimiK25VisionTower(nn.Module):
        def __init__(self, config: dict) -> None:
            super().__init__()
            self.config = config

        def forward(self, pixel_values: torch.Tensor) -> Sequence[torch.Tensor]:
            return [pixel_values]


    class KimiK25ForConditionalGeneration(nn.Module):
        # Checkpoints name the layers of the language model without the inner "model".
        renamed_prefixes = {
            "language_model.layers.": "language_model.model.layers.",
        }

        def __init__(
            self,
            config: dict,
            quant_config: Optional[dict] = None,
            prefix: str = "",
            **kwargs,  # whatever the loader passes on
        ) -> None:
            super().__init__()
            self.config = config
            self.quant_config = quant_config
            self.vision_tower = KimiK25VisionTower(config.get("vision_config", {}))

            self.language_model = DeepseekV3ForCausalLM(
                config.get("text_config", config), quant_config
            )

        def get_image_feature(self, items: List[torch.Tensor]) -> torch.Tensor:
            return self.vision_tower.forward(items[0])[0]

        def pad_input_ids(self, input_ids: List[int], mm_inputs: Optional[dict]):
            return input_ids

        def forward(
            self,
            input_ids: torch.Tensor,
            positions: torch.Tensor,
            forward_batch: Optional[dict] = None,
            get_embedding: bool = False,
        ):
            return self.language_model.forward(input_ids, positions, forward_batch)

        def load_weights(self, weights: Iterable[Tuple[str, torch.Tensor]]):
            """Weights of the vision tower stay here, all others go to the language model."""
            language_weights = []
            for name, loaded_weight in weights:
                for old, new in self.renamed_prefixes.items():
                    if name.startswith(old):
                        name = new + name[len(old) :]
                if not name.startswith("vision_tower."):
                    name = name.replace("language_model.", "", 1)
                    language_weights.append((name, loaded_weight))
            if language_weights:
                self.language_model.load_weights(language_weights)


    EntryClass = [KimiK25ForConditionalGeneration]
    '''
)

DEEPSEEK_V2 = dedent(
    """\
    from typing import Iterable, List, Optional, Tuple

    from sglang.srt import pretend_torch as torch
    from sglang.srt.pretend_torch import nn


    class DeepseekV3ForCausalLM(nn.Module):
        def __init__(self, config: dict, quant_config: Optional[dict] = None) -> None:
            super().__init__()
            self.config = config
            self.quant_config = quant_config
            self.capture_aux_hidden_states = False
            self.layers_to_capture: List[int] = []
            self.embed, self.head = torch.Tensor(), torch.Tensor()

        def forward(self, input_ids, positions, forward_batch):
            return input_ids

        def load_weights(self, weights: Iterable[Tuple[str, torch.Tensor]]):
            list(weights)

        def set_eagle3_layers_to_capture(self, layer_ids: Optional[List[int]] = None):
            layers = self.config.get("num_hidden_layers", 61)
            self.capture_aux_hidden_states = True
            if layer_ids is None:
                self.layers_to_capture = [2, layers // 2, layers - 3]
            else:
                self.layers_to_capture = [layer + 1 for layer in layer_ids]

        def get_embed_and_head(self) -> Tuple[torch.Tensor, torch.Tensor]:
            return self.embed, self.head

        def set_embed_and_head(self, embed: torch.Tensor, head: torch.Tensor) -> None:
            self.embed, self.head = embed, head


    EntryClass = [DeepseekV3ForCausalLM]
    """
)

PRETEND_TORCH = dedent(
    '''\
    """As much of torch as the pretend models name: a tensor without numbers, and nn.Module."""


    class Tensor:
        pass


    class Module:
        def __init__(self) -> None:
            pass

        def __getattr__(self, name: str):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


    class nn:
        Module = Module
    '''
)

# The second line puts the repository on the path; {repository} and {folder} are filled in.
LAUNCH_SERVER = dedent(
    """\
    import sys

    if __name__ == "__main__":
        sys.path.append({repository!r})
        from infra.rehearsal.engine import run

        run({folder!r})
    """
)

BENCH_SERVING = dedent(
    """\
    import sys

    if __name__ == "__main__":
        sys.path.append({repository!r})
        from infra.rehearsal.sglang_client import run

        run()
    """
)

# "vllm bench serve" is another command of the program that also serves.
VLLM_MAIN = dedent(
    """\
    import sys

    if __name__ == "__main__":
        sys.path.append({repository!r})
        if sys.argv[1:2] == ["bench"]:
            from infra.rehearsal.vllm_client import run

            run()
        from infra.rehearsal.vllm_engine import run

        run({folder!r})
    """
)

_DIST_INFO = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

VERSIONS = {
    "sglang": "0.5.9",
    "vllm": "0.33.0",
    "torch": "2.9.1",
    "sgl-kernel": "0.3.21",
    "flashinfer-python": "0.6.3",
    "transformers": "4.57.1",
    "nvidia-nccl-cu12": "2.27.5",
    "triton": "3.5.1",
}


def files(repository: str, folder: str) -> dict[str, str]:
    """Every file of the pretend site-packages, by relative path."""
    made = {
        "sglang/__init__.py": '__version__ = "0.5.9"\n',
        "sglang/version.py": '__version__ = "0.5.9"\n',
        "sglang/launch_server.py": LAUNCH_SERVER.format(repository=repository, folder=folder),
        "sglang/bench_serving.py": BENCH_SERVING.format(repository=repository),
        "vllm/__init__.py": "",
        "vllm/engine/__init__.py": "",
        "vllm/engine/arg_utils.py": "",
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/cli/__init__.py": "",
        "vllm/entrypoints/cli/main.py": VLLM_MAIN.format(repository=repository, folder=folder),
        "sglang/srt/__init__.py": "",
        "sglang/srt/pretend_torch.py": PRETEND_TORCH,
        "sglang/srt/models/__init__.py": "",
        "sglang/srt/models/deepseek_v2.py": DEEPSEEK_V2,
        "sglang/srt/models/kimi_k25.py": KIMI_K25,
    }
    for name, version in VERSIONS.items():
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        made[f"{info}/METADATA"] = _DIST_INFO.format(name=name, version=version)
        made[f"{info}/INSTALLER"] = "pip\n"
    return made
