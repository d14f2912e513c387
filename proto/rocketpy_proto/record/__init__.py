"""Record codec: one byte layout for commit log, pulls and appends.

Pure functions over buffers, in two forms: one record at a time, and a whole block at once. Source:
docs/design/storage.md sections 2 to 5.
"""

from rocketpy_proto.model.column_types import COLUMN_TYPES, NULLABLE_COLUMNS
from rocketpy_proto.record.block.columns import (
    property_column,
    property_columns,
    to_record_batch,
    to_record_batches,
)
from rocketpy_proto.record.block.encode import (
    BlockColumns,
    CheckedBlock,
    EncodedBlock,
    encode_block,
)
from rocketpy_proto.record.block.ranges import fixed_width_strings, hex_digits
from rocketpy_proto.record.block.record_block import (
    QueueSpan,
    RecordBlock,
    decode_sizes,
    scan_sizes,
)
from rocketpy_proto.record.errors import (
    MalformedRecordError,
    RecordError,
    UnencodableRecordError,
    UnexpectedRecordsError,
)
from rocketpy_proto.record.hosts import (
    UNKNOWN_HOST,
    Host,
    decode_offset_message_id,
    encode_offset_message_id,
)
from rocketpy_proto.record.index_keys import (
    IndexKeys,
    TagsAndKeys,
    index_hash,
    index_keys,
    tags_codes_and_index_keys,
)
from rocketpy_proto.record.java_hash import java_hash, java_hashes
from rocketpy_proto.record.layout import BLANK_BYTES, END_OF_SEGMENT_MAGIC, RECORD_MAGICS
from rocketpy_proto.record.rewrite import (
    properties_strings,
    rewritten,
    with_property,
    without_properties,
)
from rocketpy_proto.record.single import (
    DecodedRecord,
    Record,
    decode_record,
    encode_blank,
    encode_record,
    encode_with_properties,
)
from rocketpy_proto.record.sys_flag import has_queue_offset

__all__ = [
    "BLANK_BYTES",
    "COLUMN_TYPES",
    "END_OF_SEGMENT_MAGIC",
    "NULLABLE_COLUMNS",
    "RECORD_MAGICS",
    "UNKNOWN_HOST",
    "BlockColumns",
    "CheckedBlock",
    "DecodedRecord",
    "EncodedBlock",
    "Host",
    "IndexKeys",
    "MalformedRecordError",
    "QueueSpan",
    "Record",
    "RecordBlock",
    "RecordError",
    "TagsAndKeys",
    "UnencodableRecordError",
    "UnexpectedRecordsError",
    "decode_offset_message_id",
    "decode_record",
    "decode_sizes",
    "encode_blank",
    "encode_block",
    "encode_offset_message_id",
    "encode_record",
    "encode_with_properties",
    "fixed_width_strings",
    "has_queue_offset",
    "hex_digits",
    "index_hash",
    "index_keys",
    "java_hash",
    "java_hashes",
    "properties_strings",
    "property_column",
    "property_columns",
    "rewritten",
    "scan_sizes",
    "tags_codes_and_index_keys",
    "to_record_batch",
    "to_record_batches",
    "with_property",
    "without_properties",
]
