"""Staged records of tasks, for batches not yet decided or stored."""
