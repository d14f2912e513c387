"""Tests of the replication of the log to slaves."""
