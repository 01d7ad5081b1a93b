"""From measured rows to decisions: what a job takes and costs on each machine (`rent`, `llm_serving`); and
which GPUs hold a model, how fast, at what price (`gpu_choice`). In: sides of a comparison, prices, a job, a
model. Out: offers and picks."""
