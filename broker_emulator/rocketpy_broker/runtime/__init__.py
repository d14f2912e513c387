"""Clocks, the scheduler, tasks and other foundations; no service and no file of a store."""
