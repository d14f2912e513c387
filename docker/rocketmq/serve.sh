#!/bin/bash
# Runs a program of RocketMQ as a container's first process, and hands SIGTERM on to its JVM:
#   serve.sh sh mqbroker -c /etc/rocketmq/broker.conf
# RocketMQ's scripts do not: the JVM is a shell's child, which a container's stop would kill after
# the grace period. With it a broker saves its tables and closes its files.

# The program gets a process group of its own, so that a signal reaches all of it.
set -m
"$@" &
group=$!
trap 'kill -TERM -- "-$group"' TERM INT

wait "$group"
status=$?
# Shells end at the signal. Their JVM takes longer, and ends as well once this process does.
while kill -0 -- "-$group" 2> /dev/null; do
	sleep 0.1
done
exit "$status"
