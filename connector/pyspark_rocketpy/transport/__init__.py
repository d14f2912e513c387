"""The ways to a broker: an interface that source and sink use, and a folder for each protocol."""
