"""The send pipeline: from the arrival of a block to its acknowledgement."""
