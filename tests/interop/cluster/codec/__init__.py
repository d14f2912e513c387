"""Tests of our remoting codec at RocketMQ's servers."""
