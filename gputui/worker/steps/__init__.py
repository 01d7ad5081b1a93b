"""What steps are made of: precisions, training and inference loops, torch.compile, latencies of requests,
and the formulas of FLOPs and bytes. In: a model and a request. Out: a `Step`.
"""
