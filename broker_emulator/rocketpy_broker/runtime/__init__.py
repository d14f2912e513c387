"""Clocks, the scheduler, tasks and other foundations of the broker."""
