"""`rocketpy transaction …`: sending of half messages, and end of transactions.

After a crash of a command the transaction stays open, and the broker checks it.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.errors import MessageIllegalError
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.messages.outgoing_message import OutgoingMessage
from rocketpy_broker.runtime.time_format import time_text

transaction_app = typer.Typer(
    help="Send messages in transactions, and end them.", no_args_is_help=True, rich_markup_mode=None
)
TRANSACTIONS = (
    Column("transactionId", "transaction", lambda each: each.transaction.transaction_id),
    Column("producerGroup", "group", lambda each: each.transaction.producer_group),
    Column("topic", "topic", "topic"),
    Column("queueId", "queue", "queue_id"),
    Column("bornTimestamp", "born", lambda each: time_text(each.born_timestamp)),
    Column("checkTimes", "checks", "check_times"),
)
Group = Annotated[str, typer.Option(help="The producer group.")]
TransactionId = Annotated[str, typer.Argument(help="The message's unique id.")]


@transaction_app.command("send")
def send(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    body: Annotated[str, typer.Option(help="Content of the message.")],
    group: Group,
    tag: Annotated[str | None, typer.Option(help="Tag of the message.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key; may be repeated.")] = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send a half message; consumers get it after its transaction is committed."""
    message = OutgoingMessage(os.fsencode(body), tag, tuple(key or ()))
    with asking(endpoint) as connection:
        try:
            sent = transactions.prepare(connection, topic, group, message)
        except MessageIllegalError as error:
            refuse(error.reason)
    if as_json:
        output.print_json({"topic": topic, "transactionId": sent.transaction_id})
        return
    typer.echo(f"prepared a message for {topic}: transaction {sent.transaction_id}")


@transaction_app.command("list")
def list_open(
    group: Annotated[str, typer.Option(help="Only this producer group.")] = "",
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show open transactions, the oldest first, 1,000 at most."""
    with asking(endpoint) as connection:
        found = transactions.list_open(connection, group)
    output.print_entries(TRANSACTIONS, found, as_json=as_json)
    if not found and not as_json:
        of_group = f" of producer group {group!r}" if group else ""
        typer.echo(f"rocketpy: no transaction{of_group} is open", err=True)


@transaction_app.command("commit")
def commit(
    transaction_id: TransactionId,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Commit a transaction: consumers get its message."""
    _end(transaction_id, endpoint, commit=True)
    _print_end(transaction_id, "committed", as_json=as_json)


@transaction_app.command("rollback")
def rollback(
    transaction_id: TransactionId,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Roll back a transaction: the broker drops its message."""
    _end(transaction_id, endpoint, commit=False)
    _print_end(transaction_id, "rolled back", as_json=as_json)


def _print_end(transaction_id: str, done: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"transactionId": transaction_id, "outcome": done})
        return
    typer.echo(output.printable(f"{done} transaction {transaction_id}"))


def _end(transaction_id: str, endpoint: str, *, commit: bool) -> None:
    with asking(endpoint) as connection:
        # The broker lists all open transactions for an empty id.
        found = transactions.list_open(connection, transaction_id=transaction_id)
        if not found or not transaction_id:
            refuse(f"no transaction {transaction_id!r} is open; see `rocketpy transaction list`")
        transactions.end(connection, found[0].transaction, commit=commit, from_check=True)
