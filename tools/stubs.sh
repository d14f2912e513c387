#!/bin/sh
# Generates the stubs from proto/rocketpy/v1 with the protoc of tools/stubs.sh PYTHON.
set -eu
cd "$(dirname "$0")/../proto"
venv=../.venv-proto
# The oldest protoc whose stubs are allowed by every protobuf runtime that we allow, 6.31 and on.
"$1" -m venv --clear $venv
$venv/bin/python -m pip install -q grpcio-tools==1.75.1
$venv/bin/python -m grpc_tools.protoc -I . --python_out=rocketpy_proto \
	--pyi_out=rocketpy_proto --grpc_python_out=rocketpy_proto rocketpy/v1/*.proto
rm rocketpy_proto/rocketpy/v1/common_pb2_grpc.py # Of a file without services: empty.
sed -E -i 's/^from rocketpy\.v1 import/from rocketpy_proto.rocketpy.v1 import/' \
	rocketpy_proto/rocketpy/v1/*_pb2*
cd ..
sha256sum proto/rocketpy/v1/*.proto proto/rocketpy_proto/rocketpy/v1/*_pb2* > proto/stubs.sha256
