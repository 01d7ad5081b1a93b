"""From measured rows to decisions: what a job takes and costs on each machine (`rent`), whether buying
pays (`buy`), and whether a training fits into memory (`memory_fit`). In: sides of a comparison, prices, a
job. Out: offers and picks."""
