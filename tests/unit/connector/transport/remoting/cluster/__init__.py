"""Tests of a cluster's routes, queues and requests."""
