"""The Dockerfile, the compose files and `make docker`, without an engine."""
