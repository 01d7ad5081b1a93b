"""From measured rows to decisions: what a job takes and costs on each machine (`rent`), whether buying
pays (`buy`), and whether a training or an inference fits into memory (`memory_fit`), and on
which GPUs (`gpu_choice`). In: sides of a comparison, prices, a job, a model. Out: offers and picks."""
