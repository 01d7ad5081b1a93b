"""What papers, cards and logs of engines say of published models: their weights and their KV caches."""

from __future__ import annotations

KERAS = "keras-team/keras-hub, presets of the model: params"
GPT_OSS = "OpenAI 2025, arXiv 2508.10925, table 1"
DEEPSEEK_V2 = "deepseek-ai/DeepSeek-V2 README"
GLM = "huggingface/transformers docs, glm4_moe; GLM-4.7 has the shape of GLM-4.5"
STATED: tuple[tuple[str, float, float | None, str], ...] = (
    ("Llama 2 7B", 6.738, None, "arXiv 2307.09288"),
    ("Llama 2 13B", 13.016, None, "arXiv 2307.09288"),
    ("Llama 3.1 8B", 8.030, None, "arXiv 2407.21783"),
    ("Llama 3.1 70B", 70.554, None, "arXiv 2407.21783"),
    ("Llama 3.1 405B", 405.854, None, "arXiv 2407.21783"),
    ("Qwen2.5 0.5B", 0.494032768, None, KERAS),
    ("Qwen2.5 7B", 7.615616512, None, KERAS),
    ("Qwen2.5 32B", 32.763876352, None, KERAS),
    ("Qwen2.5 72B", 72.706203648, None, KERAS),
    ("Qwen3 8B", 8.190735360, None, KERAS),
    ("Qwen3 32B", 32.762123264, None, KERAS),
    ("Qwen3 30B-A3B", 30.532122624, None, KERAS),
    ("Qwen3 235B-A22B", 235.093634560, 22, KERAS),
    ("Qwen3 Coder 480B-A35B", 480, 35, "its name"),
    ("Qwen3 Next 80B-A3B", 80, None, "its name"),
    ("Qwen3.5 27B", 27, None, "its name"),
    ("Qwen3.5 122B-A10B", 122, None, "its name"),
    ("Qwen3.5 397B-A17B", 396.35, None, "llama.cpp, ggml-org/llama.cpp pull request 13194"),
    ("Gemma 2 9B", 9.241705984, None, KERAS),
    ("Gemma 2 27B", 27.227128320, None, KERAS),
    ("Gemma 3 4B", 3.880099328, None, KERAS),
    ("Gemma 3 12B", 11.765788416, None, KERAS),
    ("Gemma 3 27B", 27.009002240, None, KERAS),
    ("Mixtral 8x7B", 46.702792704, 12.9, f"{KERAS}; Jiang et al. 2024, arXiv 2401.04088"),
    ("gpt-oss-20b", 20.91, 3.61, GPT_OSS),
    ("gpt-oss-120b", 116.83, 5.13, GPT_OSS),
    ("DeepSeek-V2-Lite", 15.7, 2.4, DEEPSEEK_V2),
    ("DeepSeek-V2", 236, 21, DEEPSEEK_V2),
    ("DeepSeek-V3", 671, 36.6, "deepseek-ai/DeepSeek-V3 README_WEIGHTS: main model"),
    ("GLM-4.7", 355, 32, GLM),
    ("SmolLM2 135M", 0.135, None, "its name"),
    ("Qwen2.5 1.5B", 1.54, None, "Qwen2.5 model card"),
    ("Qwen2.5 3B", 3.09, None, "Qwen2.5 model card"),
    ("Qwen3 0.6B", 0.6, None, "Qwen3 model card"),
    ("Qwen3 1.7B", 1.7, None, "Qwen3 model card"),
    ("Qwen3 4B", 4.0, None, "Qwen3 model card"),
    ("Qwen3 14B", 14.8, None, "Qwen3 model card"),
    ("Qwen3.5 9B", 9, None, "its name"),
    ("Gemma 7B", 8.537680896, None, KERAS),
    ("Gemma 2 2B", 2.614341888, None, KERAS),
    ("Phi-4-mini", 3.8, None, "microsoft/Phi-4-mini-instruct model card"),
    ("Devstral 2 123B", 123, None, "its name"),
    ("Devstral Small 2 24B", 24, None, "its name"),
    ("GLM-4.5", 355, 32, GLM),
    ("GLM-4.5-Air", 106, None, GLM),
    ("Mixtral 8x22B", 141, 39, "ollama.com/library/mixtral"),
    ("Kimi-K2", 1000, 32, "vercel.com/ai-gateway/models/kimi-k2"),
    ("MiniMax-M2.5", 230, None, "SGLang docs, MiniMax-M2"),
)
"""Model, billions of weights, and of those that each token is multiplied with."""
LOADED = (
    ("Llama 3.1 8B", "bf16", 1, 14.9595, "vLLM"),
    ("Llama 3.1 8B", "int4", 1, 5.344, "vLLM, AWQ"),
    ("DeepSeek-V2-Lite", "bf16", 1, 29.3010, "vLLM, vllm-project/vllm pull request 4650"),
    ("DeepSeek-V2-Lite", "bf16", 4, 7.3858, "vLLM, vllm-project/vllm issue 15607"),
    ("DeepSeek-R1-Distill-Qwen-14B", "bf16", 2, 13.9476, "vLLM, vllm-project/vllm issue 13061"),
    ("DeepSeek-R1", "fp8", 8, 79.41, "vLLM, HabanaAI/vllm-fork issue 809"),
    ("gpt-oss-20b", "mxfp4", 1, 12.8, GPT_OSS),
    ("gpt-oss-120b", "mxfp4", 1, 60.8, GPT_OSS),
)
"""Model, format, GPUs, and GiB of weights on each."""
Q8_0 = 34 / 32
"""Bytes of a number in llama.cpp's format of this name: a 16-bit scale for 32."""
CACHED = (
    ("Llama 2 13B", 1, 2, 800 / 1024, "Kwon et al. 2023, arXiv 2309.06180, section 3, of OPT-13B"),
    ("Llama 3.1 8B", 131_072, 2, 16 * 1024, "Hugging Face, blog/llama31"),
    ("Llama 3.1 70B", 131_072, 2, 40 * 1024, "Hugging Face, blog/llama31"),
    ("Qwen3 30B-A3B", 122_420, 2, 11.2 * 1024, "SGLang, kvcache-ai/ktransformers issue 1971"),
    ("Qwen3 235B-A22B", 178_880, 2, 4 * 8.11 * 1024, "vLLM on 4 GPUs, vllm-project/vllm issue 21348"),
    ("Qwen3 235B-A22B", 367_404, 2, 4 * 16.46 * 1024, "SGLang on 4 GPUs, vllm-project/vllm issue 21348"),
    ("DeepSeek-R1", 32_768, Q8_0, 1166.62, "ik_llama.cpp, pull request 259"),
    (
        "gpt-oss-120b",
        131_072,
        2,
        4608 + 45 * 128 / 1280,
        "llama.cpp, ollama/ollama issue 16480, window of 1280",
    ),
)
"""Model, tokens, bytes of a number, and MiB of the KV cache."""
