"""From measured rows to decisions: what a job takes and costs on each machine (`rent`), whether buying
pays (`buy`); and which GPUs hold a model, how fast, at what price (`memory_fit`, `gpu_choice`). In: sides of
a comparison, prices, a job, a model. Out: offers and picks."""
