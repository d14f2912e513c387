#!/bin/sh
# Generates the stubs from the files in proto/ with the protoc of tools/stubs.sh PYTHON.
# They are checked in, so neither users nor executors need a compiler. Their imports get a prefix: a
# top-level package `rocketpy` would be a fourth import package.
set -eu
cd "$(dirname "$0")/../proto"
venv=../.venv-proto
# The oldest protoc whose stubs are allowed by every protobuf runtime that we allow, 6.31 and on.
"$1" -m venv --clear $venv
$venv/bin/python -m pip install -q grpcio-tools==1.75.1
for package in rocketpy/v1 apache/rocketmq/v2; do
	$venv/bin/python -m grpc_tools.protoc -I . --python_out=rocketpy_proto \
		--pyi_out=rocketpy_proto --grpc_python_out=rocketpy_proto $package/*.proto
	module=$(echo $package | tr / .)
	sed -E -i "s/^from $module import/from rocketpy_proto.$module import/" \
		rocketpy_proto/$package/*_pb2*
done
# Of files without services: empty.
rm rocketpy_proto/rocketpy/v1/common_pb2_grpc.py
rm rocketpy_proto/apache/rocketmq/v2/definition_pb2_grpc.py
cd ..
for package in rocketpy/v1 apache/rocketmq/v2; do
	sha256sum proto/$package/*.proto proto/rocketpy_proto/$package/*_pb2*
done > proto/stubs.sha256
