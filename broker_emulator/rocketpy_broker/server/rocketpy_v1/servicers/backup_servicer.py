"""The servicer of backups, a part of rocketpy.v1.Admin."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import Decoded, decoder
from rocketpy_broker.services.admin.backup_service import BackupService, BackupStart
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.config import StoreConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2

Response = admin_pb2.BackupStoreResponse


class BackupServicer:
    """The method for copies of the store."""

    def __init__(self, backups: BackupService, config: StoreConfig) -> None:
        self._backups = backups
        self._config = config

    async def backup(
        self, request: Decoded, context: status.Context
    ) -> AsyncGenerator[Response, None]:
        """Yields the pieces of a copy, in responses of about 1 MiB."""
        if isinstance(request, BrokerError):
            yield Response(status=status.failure(request))
            return
        scheduler.connection.set(context.peer())
        try:
            async with aclosing(self._backups.run()) as steps:
                async for step in steps:
                    if isinstance(step, BackupStart):
                        yield self._start(step)
                    else:
                        yield Response(status=status.success(), pieces=map(_message, step))
            yield Response(status=status.success(), is_complete=True)
        except BrokerError as error:
            yield Response(status=status.failure(error))

    def _start(self, start: BackupStart) -> Response:
        return Response(
            status=status.success(),
            is_start=True,
            total_bytes=start.total_bytes,
            log_end=start.log_end,
            commit_log_segment_bytes=self._config.commit_log_segment_bytes,
            consume_queue_file_bytes=self._config.consume_queue_file_bytes,
        )

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handler by method name."""
        decode = decoder(admin_pb2.BackupStoreRequest, bytes_max)
        return {
            "BackupStore": grpc.unary_stream_rpc_method_handler(
                self.backup,
                request_deserializer=decode,
                response_serializer=Response.SerializeToString,
            )
        }


def _message(piece: Piece) -> admin_pb2.BackupPiece:
    return admin_pb2.BackupPiece(
        path=os.fsencode(piece.path),
        offset=piece.offset,
        data=piece.data,
        file_bytes=piece.file_bytes,
        modified_ns=piece.modified_ns,
    )
