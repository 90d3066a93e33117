"""Failures of what was asked: flags, paths, checkpoints."""

from __future__ import annotations

from tasks.failure_table_form import FailureClass, said, seen
from tasks.failure_table_texts import CONTEXT_TOO_LONG, NO_CONFIG, NOT_THERE

_TRUNCATED = r"SafetensorError|safetensors_rust|PytorchStreamReader failed|unexpected EOF, expected"

ARGUMENT_FAILURES = (
    FailureClass(
        name="missing_spec_params",
        cause="Only some of the three speculation numbers were given.",
        remedy="Give all three or none.",
        who="user",
        retry="after_change",
        citation="sglang#5673, gpustack#3392",
        signatures=tuple(
            seen(
                text,
                "give all of --speculative-num-steps, --speculative-eagle-topk,"
                " --speculative-num-draft-tokens, or none",
                frames=frame,
            )
            for text, frame in (
                (r"not supported between instances of '(?:NoneType|int)' and", r"server_args|spec"),
                (r"unsupported operand type\(s\) for [^:]+: '(?:NoneType|int)'", r"speculative"),
                (r"^AssertionError$", r"speculative_(?:decoding|hook)|auto_choose_speculative"),
            )
        ),
    ),
    FailureClass(
        name="remote_code_refused",
        cause="The checkpoint brings Python code of its own, which must be allowed.",
        remedy="Add --trust-remote-code if you trust the checkpoint.",
        who="user",
        retry="after_change",
        citation="guidellm#860, vllm recipes#116",
        signatures=(
            seen(r"contains custom code which must be executed", "add --trust-remote-code"),
            seen(r"set the option `trust_remote_code=True`", "add --trust-remote-code"),
        ),
    ),
    FailureClass(
        name="model_path_missing",
        cause="There is no model at the path that was given.",
        remedy="Put the model there, or correct the path.",
        who="user",
        retry="after_change",
        citation="sglang 0.5.12 log, absent model path",
        signatures=(seen(NOT_THERE, "put the model at {path} on the host"),),
    ),
    FailureClass(
        name="model_config_invalid",
        cause="The model's config.json is absent or is not a model's config.",
        remedy="Copy the model again with its config.json.",
        who="user",
        retry="after_change",
        citation="transformers configuration_auto.py",
        signatures=(seen(NO_CONFIG, "look at {path}/config.json"),),
    ),
    FailureClass(
        name="context_too_long",
        cause="A longer context was asked than the target was made for.",
        remedy="Lower the context length.",
        who="user",
        retry="after_change",
        citation="sglang model_config.py, vllm config",
        signatures=(
            seen(CONTEXT_TOO_LONG.replace("?P<draft_context>", "?:"), "lower --context-length"),
        ),
    ),
    FailureClass(
        name="weights_unreadable",
        cause="A weight file is cut off, or is no weight file at all (a Git LFS pointer, say).",
        remedy="Copy the checkpoint again and compare the sizes.",
        who="user",
        retry="after_change",
        citation="sglang 0.5.12 log, truncated safetensors",
        signatures=(
            seen(_TRUNCATED, "copy the drafter again", drafter=True),
            seen(_TRUNCATED, "copy the model again"),
            seen(r"Cannot find any model weights|No \S{0,40} ?weights? files? found"),
        ),
    ),
    FailureClass(
        name="permission_denied",
        cause="The engine may not read or write a file of the host.",
        remedy="Give its user the right, or take a path that it owns.",
        who="host",
        retry="after_change",
        signatures=(
            seen(r"^PermissionError: .{0,60}Permission denied(?:: '(?P<path>[^']{1,300})')?"),
        ),
    ),
    FailureClass(
        name="model_download_failed",
        cause="A model hub was asked and did not give the file.",
        remedy="Put the model on the host's disk, or give a token and a network.",
        who="host",
        retry="same_once",
        signatures=(
            seen(
                r"GatedRepoError|RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled"
            ),
            seen(
                r"couldn't connect to '?https://huggingface\.co|huggingface\.co.{0,200}Max retries"
            ),
        ),
    ),
    FailureClass(
        name="package_missing",
        cause="A package or build tool that the engine needs is not installed or not on PATH.",
        remedy="Install it into the engine's environment.",
        who="host",
        retry="after_change",
        signatures=(
            seen(r"^ModuleNotFoundError: No module named '(?P<field>[\w.]+)'"),
            said(r"\S{0,200}python[\w.]*: No module named '?(?P<field>[\w.]+)"),
            said(
                r"\S{1,80} line \d+: (?P<field>\S{1,200}): (?:No such file or directory|command not found)"
            ),
            seen(
                r"(?P<field>[\w.-]{1,80}) is installed .{0,80}less than the minimum required version"
            ),
            seen(r"CUDA_HOME environment variable is not set|Could not find (?P<field>nvcc)"),
            # Kernels are compiled at the first start (sglang tvm_ffi, flashinfer).
            seen(r"No such file or directory: '(?P<field>ninja|nvcc|g\+\+|gcc|cc|c\+\+)'"),
        ),
    ),
    FailureClass(
        name="bad_arguments",
        cause="The engine does not know an argument, or refuses its value.",
        remedy="Compare the command with the flags of this engine version.",
        who="user",
        retry="after_change",
        citation="vllm#20375, vllm#44566; sglang argparse 0.5.9 to 0.5.23",
        signatures=(
            said(r"[\w .-]{1,80}: error: (?:unrecognized|ambiguous)[\w ]*: (?P<field>--?[\w-]+)"),
            said(r"[\w .-]{1,80}: error: argument (?P<field>--?[\w-]+)"),
            said(r"[\w .-]{1,80}: error: the following arguments are required: (?P<field>[\w-]+)"),
            seen(
                r"validation errors? for \w+\n *Value error, (?:Expected )?'?(?P<field>[a-z]+_\w+)"
            ),
            seen(r"validation errors? for \w+\n *(?P<field>[\w.]+)\n"),
            seen(r"validation errors? for \w+"),
            seen(
                r"must be divisible by (?:the )?(?:tensor|attention|attn_)[\w ]{0,20}(?:parallel|tp|size)",
                "choose a --tp-size that divides the model's heads",
            ),
            seen(r"quantization method specified in .{0,80}does not match"),
            seen(
                r"^(?:Value|Type|Assertion|Key|NotImplemented)Error",
                frames=r"server_args\.py|arg_utils\.py",
            ),
        ),
    ),
)
