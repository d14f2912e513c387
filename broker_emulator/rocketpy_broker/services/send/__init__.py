"""From a block that arrives to its acknowledgement."""
