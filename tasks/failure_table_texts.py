"""Texts that mean the drafter or the target, as the traceback around them tells."""

from __future__ import annotations

NOT_THERE = (
    r"Repo id must be in the form .*?'(?P<path>/[^']*)'"
    r"|Can't load (?:the configuration|tokenizer|config) (?:of|for) '(?P<path_b>[^']+)'"
    r"|Incorrect path_or_model_id: '(?P<path_c>[^']+)'"
    r"|(?P<path_d>\S{1,300}) does not appear to have a file named config\.json"
    r"|(?P<path_e>\S{1,300}) is not a local folder and is not a valid model identifier"
    r"|Invalid repository ID or local directory specified: '(?P<path_f>[^']+)'"
    r"|No such file or directory: '(?P<path_g>/[^']{1,300})/(?:config|tokenizer|model)[\w.-]{0,80}\.(?:json|safetensors|model)'"
)
"""No model at a path, in the words of transformers and huggingface_hub."""

NO_CONFIG = (
    r"Unrecognized model in (?P<path>.+?)\. Should have a `model_type`"
    r"|It looks like the config file at '(?P<path_b>[^']+)' is not a valid JSON"
)
"""A config.json that is none."""

CONTEXT_TOO_LONG = (
    r"(?:User-specified context_length|User-specified max_model_len) \((?P<target_context>\d{1,15})\)"
    r" is greater than the derived (?:context_length|max_model_len) \((?:\w+=)?(?P<draft_context>\d{1,15})"
)
"""A longer context asked than the checkpoint was made for (sglang, vLLM)."""
