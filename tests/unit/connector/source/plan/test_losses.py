"""Losses of a query as errors and log lines."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.source.plan import losses
from pyspark_rocketpy.source.plan.reconcile import Checkpoint, Reconciled, reconcile
from tests.support.queues import Q0, Q1, Q2


def reconciled(checkpoint: Checkpoint, bounds: Bounds) -> Reconciled:
    return reconcile(checkpoint, bounds, {"T"})


def test_s5_a_loss_is_an_error_or_a_warning_with_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [taken] = reconciled(
        Checkpoint({"T": {Q0: 15}}), {"T": {Q0: QueueBounds(2, 20, -1, cut_offset=5)}}
    ).lost
    told = (
        "offsets [5, 15) of queue 0 of topic 'T' were taken back: in a power cut the broker lost "
        "messages that the query had read; messages that are stored there now have not been "
        "read; "
    )
    with pytest.raises(DataLossError) as caught:
        losses.raise_or_log(
            [taken, replace(taken, queue=Q1), replace(taken, queue=Q2)], fail_on_data_loss=True
        )
    assert told.removesuffix("; ") + " (and of 2 more queues); " in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log([taken], fail_on_data_loss=False)
    assert told + "10 messages are gone, and the query continues at 5" in caplog.text
    losses.raise_or_log([], fail_on_data_loss=True)


def test_s5_losses_of_very_many_queues_are_some_lines_and_their_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin: Positions = {"T": {BrokerQueue("", number): 5 for number in range(10_000)}}
    bounds: Bounds = {"T": dict.fromkeys(begin["T"], QueueBounds(7, 9, -1))}
    planned = Checkpoint({"T": dict.fromkeys(begin["T"], 9)}, begin=begin)
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log(reconciled(planned, bounds).lost, fail_on_data_loss=False)
    lines = caplog.text.splitlines()
    assert len(lines) == losses.LINES_MAX + 1
    assert "2 messages are skipped" in lines[0]
    assert "9980 more queues have such losses, with 19960 known messages" in lines[-1]


def test_s5_hidden_messages_are_read_later_and_the_error_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bounds: Bounds = {"T": {Q0: QueueBounds(0, 3, -1), Q1: QueueBounds(0, 6, -1, is_hidden=True)}}
    away = reconciled(Checkpoint({"T": {Q0: 3, Q1: 2}}), bounds).hidden
    with pytest.raises(DataLossError, match=r"offsets \[2, 6\) of queue 1 .*readQueueNums"):
        losses.raise_or_log(away, fail_on_data_loss=True)
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log(away, fail_on_data_loss=False)
    assert "; 4 messages are read when the topic has its queues again" in caplog.text
