"""The one table of kernel names: what a GPU event is for, by its name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

Category = Literal[
    "all_reduce", "exchange", "attention", "gemm", "norm", "sampling", "memory", "other"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
TITLES: Final[dict[Category, str]] = {
    "all_reduce": "all-reduce",
    "exchange": "other exchange",
    "attention": "attention",
    "gemm": "MoE and GEMM",
    "norm": "norm, activation",
    "sampling": "sampling",
    "memory": "copies",
    "other": "other",
}
MEANINGS: Final[dict[Category, str]] = {
    "all_reduce": "sums over the ranks, whoever makes them: NCCL, custom, symmetric memory; with "
    "the norm that some of them take along",
    "exchange": "any other traffic between ranks: all-gather, reduce-scatter, all-to-all, send",
    "attention": "attention and linear attention, their KV cache, indices and metadata",
    "gemm": "matrix products, and all of a mixture of experts: routing, alignment, experts, sum",
    "norm": "normalisation, activation, rotary embedding, quantisation, other arithmetic on elements",
    "sampling": "choice of tokens, verification of drafts, and the bookkeeping of both",
    "memory": "copies, fills, gathers, embedding",
    "other": "what no line of the table knows",
}


class Kernel(NamedTuple):
    """A line of the table; the first one that fits decides."""

    pattern: str
    """Searched in the name, upper and lower case alike."""
    category: Category
    example: str
    """A real name, shortened, and where it comes from."""


# Order is meaning: a fused kernel is named after all that it does, CUTLASS and FlashInfer lend
# their names to everything. Names: SGLang 0.5.9 to 0.5.23 (its Triton and JIT sources, and kernel
# tables of serving runs on H100, H200, B200 that its developers published), NCCL 2.27, cuBLAS 12,
# PyTorch 2.9, FlashInfer 0.6.
KERNELS: Final[tuple[Kernel, ...]] = (
    Kernel(
        r"cross_device_reduce|(?<!sm)all_?reduce|quickreduce",
        "all_reduce",
        "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(...); "
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...); all_reduce_one_shot_push_kernel<...> "
        "(SGLang's JIT, v2); flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_"
        "oneshot_lamport<...>; multimem_all_reduce_kernel (torch symmetric memory)",
    ),
    Kernel(
        r"^nccl|nccl(dev)?kernel|all_?gather|reduce_?scatter|all_?to_?all|deep_?ep::|nvshmem|"
        r"send_?recv|sync_remote_blocks|multimem|blockwise_barrier",
        "exchange",
        "ncclDevKernel_AllGather_RING_LL(...); deep_ep::internode_ll::dispatch<...>",
    ),
    Kernel(
        r"re_?norm_?prob|renorm|top_?p_?sampling|sampling|verify_?tree|build_?tree|reconstruct_indices|"
        r"tree_speculative",
        "sampling",
        "flashinfer::sampling::TopPRenormProbKernel<...>; VerifyTreeGreedy<...>; "
        "build_tree_efficient (sgl-kernel, speculative)",
    ),
    Kernel(
        r"routing|router|top_?k_?gating|gating_?softmax|fused_gate|_gate_kernel|grouped_top_?k|moe_?top_?k|topk_?(softmax|sigmoid)|"
        r"fused_moe|moe|expert|finalizekernel|ep_(gather|scatter)|deepep_|"
        r"(pre|post)_reorder|src2dst|seg_indptr",
        "gemm",
        "fused_moe_kernel (Triton); topkGatingSoftmax<...>; moe_align_block_size_kernel<...>; "
        "moe::dev::finalize::finalizeKernel<...>; kimi_k2_moe_fused_gate_kernel<...>",
    ),
    Kernel(
        r"qk_?norm|norm_rope|rms_?norm|layer_?norm|l2norm|add_?norm|normkernel|_norm_|_rms_|norm\b|"
        r"rmsn|group_norm|hc_head",
        "norm",
        "flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(...); "
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnorm... (CuTe DSL)",
    ),
    Kernel(
        r"flash_?(fwd|attn|mla|::)|flash::|fmha|mha_|_mha|_mla|mla_|mqa|gqa_|attention|attn|"
        r"batch(decode|prefill|mla|paged)|single(decode|prefill)|merge_?state|variablelengthmerge|"
        r"^_fwd_(grouped_)?kernel|_fwd_kernel_stage|kv_?(indices|splits|buffer|cache|scale)|"
        r"store_kv|reshape_and_cache|page_table|paged|metadata|seqlens?_|varlen|"
        r"draft_extend_(query|output)|gated_delta|delta_rule|chunk_(scan|state|cumsum|local|scaled|"
        r"gla|kda|fwd|bwd)|state_passing|selective_scan|causal_conv1d|mamba|seg_la|kda_|gdn|"
        r"fused_recurrent|linear_attn|solve_tril|recompute_w_u|inverse_kernel|compress|k_and_s|qkvz|"
        r"fwd_(diag|kv|none)|(^|_)lse(_|$)|kv_read|block_table",
        "attention",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...>>>; "
        "fmhaSm100fKernel_Qkv...; flashinfer::BatchDecodeWithPagedKVCacheKernel<...>; "
        "_fwd_grouped_kernel_stage1 (Triton); create_flashinfer_kv_indices_triton",
    ),
    Kernel(
        r"nvjet|gemm|gemv|^bmm_|bmm_kernel|matmul|cublas|splitk|marlin|deep_gemm|xmma|cutlass_80|"
        r"cutlass3x|_mm_|scaled_mm|mmkernel|dense_?gemm|machete|awq_gemm|wgrad|dot_kernel|"
        r"lora_(shrink|expand|a|b)_kernel",
        "gemm",
        "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT (cuBLAS); cutlass::gemm::kernel::GemmUniversal<...>; "
        "bmm_E4m3_E4m3E4m3_Fp32_t128x8x256..._swiGlu_dynB_sm100f (TensorRT-LLM); "
        "void marlin::Marlin<...>; _w8a8_block_fp8_matmul (Triton)",
    ),
    Kernel(
        r"act_and_mul|silu|gelu|swiglu|activation|rotary|rope|quant|hadamard|softcap|_cast|downcast|"
        r"tanh|sigmoid|softplus|timestep|_scale|upscale|normalize",
        "norm",
        "flashinfer::activation::act_and_mul_kernel<...>; BatchQKApplyRotaryPosIds...Kernel<...>; "
        "_per_token_group_quant_8bit (Triton)",
    ),
    Kernel(
        r"top_?[kp]|soft_?max|arg_?(max|min)|sort|multinomial|logit|penalt|bitmask|vocab_mask|"
        r"token_filter|assign_|draft|specul|bonus|accept|evict_mask|req_to_token|future_token|"
        r"(compute|clamp)_position|extend_after_decode|last_loc|alloc_(decode|extend)|"
        r"rotate_input|target_cache_loc|cache_loc|exponential|philox|random|distribution|"
        r"murmur|hash|ngram|uniform|chain_tree|tree_mask|verify|translate_token|rejection",
        "sampling",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps"
        "<float>...>>; at::native::sbtopk::gatherTopK<...>; cunn_SoftMaxForward<...>; "
        "assign_draft_cache_locs (Triton, speculative)",
    ),
    Kernel(
        r"^memcpy|^memset|copy|catarray|index|gather|scatter|embedding|fill|arange|transpose|"
        r"permute|repeat|masked|write_|pack|where|flip|roll|tril|triu|nonzero|unique|zero",
        "memory",
        "Memcpy DtoD (Device -> Device); at::native::direct_copy_kernel_cuda(...); "
        "at::native::index_elementwise_kernel<...>; at::native::CatArrayBatchedCopy<...>",
    ),
    Kernel(
        r"cutlass|^sm(80|86|89|90|100|120)_|^ampere_|^hopper_|^blackwell_",
        "gemm",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_...>(...)",
    ),
    Kernel(
        r"elementwise|reduce|scan|cumsum|triton_(poi|red|per|tem|for)_|functor|clamp|lerp|pow|"
        r"compare|bitwise|_add_|_mul_",
        "norm",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<...>>; "
        "triton_poi_fused_add_0 (torch.compile)",
    ),
)
_COMPILED: Final = tuple((re.compile(k.pattern, re.IGNORECASE), k.category) for k in KERNELS)
_ARGUMENTS: Final = re.compile(r"(?<=>)\([^()]*\)(?: const)?$")


@lru_cache(maxsize=65_536)
def category_of(kind: str, name: str) -> Category:
    """What a GPU event is for.

    Args:
        kind: the trace's own category: kernel, gpu_memcpy or gpu_memset.
        name: the event's name.
    """
    if kind in {"gpu_memcpy", "gpu_memset"}:
        return "memory"
    words = _ARGUMENTS.sub("", name)
    for pattern, category in _COMPILED:
        if pattern.search(words):
            return category
    return "other"
