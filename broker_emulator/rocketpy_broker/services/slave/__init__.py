"""A slave: it copies the log and the tables of its master."""
