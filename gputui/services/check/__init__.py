"""One word for this box: OK, SLOW, FAULT or CAN'T TELL. In: doctor's checks, and short runs on all GPUs at
once. Out: a word for each GPU with its reason, the next step, and a text for the provider."""
