"""Sink: from rows to blocks of records and a committed batch."""
