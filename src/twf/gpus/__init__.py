"""The devices of this machine: which GPUs there are, slots on them, and the CPU."""
