"""What this box is: processor, memory, GPUs, the layers around it, versions. No network, no root."""
