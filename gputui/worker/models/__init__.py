"""In-tree models with random weights. Imported only when a workload is built: torch is needed here."""
