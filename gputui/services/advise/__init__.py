"""From measured rows to decisions: what a job takes and costs on each box (`rent`), whether buying pays
(`buy`), and whether a training (`memory_fit`) or inference (`inference_fit`) fits into the memory of which
GPU (`gpu_choice`). In: sides of a comparison, prices, a job, a model. Out: offers and picks.
"""
