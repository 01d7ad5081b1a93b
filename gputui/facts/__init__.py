"""What is known of GPUs, prices and plausible results without measuring: tables with their sources."""
