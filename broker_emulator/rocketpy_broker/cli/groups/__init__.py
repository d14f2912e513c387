"""Commands for consumer groups, their clients, lag and dead letters."""
