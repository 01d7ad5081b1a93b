"""What steps are made of: `building` has random numbers, precisions, torch.compile and the loop of a training,
`serving` inference and latencies of requests, `flops` the formulas. In: a model and a request. Out: a `Step`.
"""
