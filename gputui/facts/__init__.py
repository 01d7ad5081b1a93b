"""What is known without measuring about GPUs, prices and plausible results: tables with their sources."""
