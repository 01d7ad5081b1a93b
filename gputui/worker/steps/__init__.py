"""What steps are made of: `building` has random numbers, precisions, torch.compile and the training loop,
`serving` inference and latencies of requests, `flops` the formulas. In: a model and a request. Out: a `Step`.
"""
