"""What kind of work an operator does, by its name. Add a word where a name is classified as `other`."""

from __future__ import annotations

import functools
import re

_ANYWHERE: tuple[tuple[str, str], ...] = (
    (
        "communication",
        "c10d:: nccl gloo: record_param_comms all_reduce allreduce all_gather reduce_scatter All2All",
    ),
    ("communication", "symm_mem:: multimem mpi: ucc: ccl:"),
    ("fused", "CompiledFx CompiledFunction Torch-Compiled triton_ inductor:: cpp_fused"),
    ("cast_copy", "_foreach_copy"),
    ("optimizer", "_fused_adam _fused_sgd _fused_adagrad _foreach_ _amp_ Optimizer."),
    ("attention", "attention flash_attn _flash_ _efficient_"),
    ("rnn", "lstm gru rnn"),
    ("conv", "conv"),
    ("norm", "batch_norm layer_norm group_norm instance_norm rms_norm"),
    ("softmax_loss", "softmax cross_entropy nll_loss mse_loss l1_loss huber_loss binary_cross"),
)
"""Category, and words that may occur anywhere in a name; the first match decides."""
_AT_THE_HEAD: tuple[tuple[str, str], ...] = (
    ("gemm", "mm bmm addmm baddbmm addbmm matmul linear einsum dot vdot mv addmv tensordot inner"),
    ("embedding_index", "embedding index gather scatter take masked"),
    ("cast_copy", "to copy contiguous clone pin type cat stack pad constant roll flip repeat item local"),
    ("view_alloc", "view reshape transpose t permute expand slice select narrow split chunk unbind squeeze"),
    (
        "view_alloc",
        "unsqueeze as empty zeros ones fill zero full detach alias flatten unflatten arange resize",
    ),
    ("view_alloc", "set movedim resolve conj lift new scalar tril triu unsafe result is diagonal"),
    (
        "reduction",
        "sum mean max min argmax argmin norm linalg var std any all cumsum topk sort amax amin prod",
    ),
    ("reduction", "logsumexp avg adaptive"),
    ("elementwise", "add sub mul div neg exp log log1p sqrt rsqrt pow sin cos tanh sigmoid relu gelu silu"),
    ("elementwise", "leaky threshold clamp hardtanh where eq ne lt gt le ge abs round floor ceil reciprocal"),
    (
        "elementwise",
        "dropout lerp addcmul addcdiv bernoulli normal uniform rand randn random randint nan",
    ),
    (
        "elementwise",
        "bitwise logical isfinite isnan sign erf upsample interpolate pixel",
    ),
    ("elementwise", "glu square softplus elu rsub remainder reflection constant complex polar exponential"),
    ("elementwise", "multinomial"),
)
"""Category, and words that begin a name, followed by its end or an underscore."""
_OF_KERNELS: tuple[tuple[str, str], ...] = (
    (
        "communication",
        r"nccl|rccl|oneccl|msccl|userbuffers|multimem|all_?(reduce|gather|to_?all)|reduce_?scatter|all2all|cross_device|nvshmem|deep_?ep|(inter|intra)node(_ll)?::|pplx",
    ),
    ("fused", r"^triton_(poi|red|per)_"),
    (
        "embedding_index",
        r"split_embedding|embedding_codegen|moe[a-z_:]*(finalize|routing|permute|sort|align)|_matmul_scatter|routing_compute|bitmatrix|kv_indices|bounds_check",
    ),
    ("cast_copy", r"multi_tensor.*copy|_and_cache|store_kv"),
    (
        "attention",
        r"flash(?!infer)|fmha|attention|attn|_mha_|mha_fwd|mha_bwd|mla_|(prefill|decode)with(paged|ragged)",
    ),
    ("optimizer", r"multi_tensor|adam|sgd|lamb(?!da)|adagrad"),
    (
        "norm",
        r"(?<!re)norm(?!al|ops|zeroops|oneops|twoops)|(layer|batch|group|instance|rms)_?normal|bn_fw|bn_bw|welford",
    ),
    (
        "conv",
        r"conv(?!ert)|wgrad|dgrad|fprop|winograd|implicit_gemm|cudnn::cnn|cudnn::detail|scudnn|im2col|col2im|fft2d|cask_cudnn|cutlass_cudnn",
    ),
    ("rnn", r"lstm|gru_|rnn"),
    (
        "gemm",
        r"(?<!fb)gemm|gemv|cijk_|cutlass_|cutlass::kernel|cublas|nvjet|xmma|matmul|splitk|dot_kernel|(^|_)b?mm_|^triton_tem|wvspl|fused_moe",
    ),
    ("softmax_loss", r"softmax|nll_loss|cross_entropy|mse_loss"),
    ("elementwise", r"rotary|rope"),
    ("embedding_index", r"embedding|indexselect|index_|gather|scatter|lookup|masked|kv_indices|token_ids"),
    ("reduction", r"reduce(?!d_divisor|r::)|argmax|argmin|sort|scan|topk|top_k|cumsum|histogram|pool"),
    (
        "cast_copy",
        r"memcpy|memset|copy|catarray|fill|transpose|permute|quant|(?<!no)(?<!with)(?<!without)(?<!broad)cast|convert|nchwtonhwc|nhwctonchw|pad_",
    ),
    (
        "elementwise",
        r"elementwise|act_and_mul|silu|gelu|relu|swiglu|dropout|bernoulli|distribution|pointwise|sampl|clamp|tensor",
    ),
)
"""Category, and a pattern that may occur anywhere in a kernel's name, in lower case; the first match
decides."""
_MAKERS = ("native_", "thnn_", "cudnn_", "mkldnn_", "miopen_", "mps_")
_OUR_NAMESPACES = ("aten::", "prims::", "torchvision::", "quantized::")
_CASTS = frozenset(("aten::to", "aten::_to_copy"))


@functools.cache
def category_of(name: str) -> str:
    """The category of an operator; `other` if no word matches."""
    for category, words in _ANYWHERE:
        if any(word in name for word in words.split()):
            return category
    if not name.startswith(_OUR_NAMESPACES) and "::" in name:
        return category_of_kernel(name)  # another library's: `permute` may move gigabytes there
    bare = name.rpartition("::")[2].lstrip("_")
    for maker in _MAKERS:  # `aten::_thnn_fused_x` is `fused_x`
        bare = bare.removeprefix(maker)
    head = bare.split("_")[0]
    return next((category for category, words in _AT_THE_HEAD if head in words.split()), "other")


_TYPES_OF_PRODUCTS = (
    ("bf16", r"bf16"),
    ("fp16", r"fp16|f16f16|h884|h1688|hgemm"),
    ("tf32", r"tf32|s1688"),
    ("fp32", r"sgemm|scudnn|simt_s|f32f32_f32f32"),
)
"""What a product's kernel computes in, and a pattern of its name; the first match decides."""


@functools.cache
def category_of_kernel(name: str, kind: str = "kernel") -> str:
    """The category of a kernel of the device, of a `copy` or of a `memset`; `other` if no pattern matches."""
    if kind != "kernel":
        return "cast_copy"
    lower = name.lower()
    return next((category for category, pattern in _OF_KERNELS if re.search(pattern, lower)), "other")


@functools.cache
def type_of_kernel(name: str) -> str:
    """What the kernel of a product computes in; empty if its name does not tell."""
    return next((mark for mark, word in _TYPES_OF_PRODUCTS if re.search(word, name)), "")


def is_of_backward(name: str) -> bool:
    """Whether a kernel's name says that it computes gradients."""
    return re.search(r"wgrad|dgrad|bn_bw|backward|_bwd", name.lower()) is not None


def is_cast(name: str) -> bool:
    """Whether a call inside another operator gets its own row: casts are what AMP adds."""
    return name in _CASTS
