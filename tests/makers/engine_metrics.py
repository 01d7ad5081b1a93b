"""What `/metrics` of several engines prints, with the names that they document."""

from __future__ import annotations

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 24.0
vllm:num_requests_running{engine="1",model_name="m"} 20.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 72.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 72.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.97
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.41
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 8.128902e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.789056823729462e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 81289.02
vllm:num_preemptions_total{engine="0",model_name="m"} 17.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:cache_config_info{block_size="16",note="a \\"quoted\\" value}"} 1.0
process_cpu_seconds_total 12.5
"""
VLLM_OLD = """\
vllm:num_requests_running{model_name="m"} 3.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.4217
vllm:num_preemptions_total{model_name="m"} 17.0
"""
SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 50000.0
sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 5000.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 400
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.007507552643049313
sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0
sglang:num_retracted_requests_total{model_name="m"} 3.0
"""
LLAMA = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 22
# HELP llamacpp:prompt_tokens_cached_total Number of prompt tokens reused from the cache
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 66
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode 1
"""
TGI = """\
tgi_batch_current_size 12
tgi_queue_size 3
"""
