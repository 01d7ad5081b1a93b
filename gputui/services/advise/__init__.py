"""From measured rows to decisions: what a job takes and costs on each machine (`rent`), whether buying
pays (`buy`), and whether a training (`memory_fit`) or inference (`inference_fit`) fits into memory, and on
which GPUs (`gpu_choice`). In: sides of a comparison, prices, a job, a model. Out: offers and picks."""
