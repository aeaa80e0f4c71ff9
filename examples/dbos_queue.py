"""Tickets on a DBOS queue, with limits for each customer.

DATABASE=postgresql://me@localhost/shop python examples/dbos_queue.py     # in each OS process that drives tickets
"""

import os
import sys
import threading

from dbos import DBOS, SetEnqueueOptions

from fsm_agent import Agent, CallSuspended

DATABASE = os.environ.get("DATABASE", "")
desk = Agent("openai:gpt-5-mini", system="You answer tickets.", name="desk", store=f"{DATABASE}?schema=desk")


@DBOS.workflow()
def handle(ticket: str, text: str) -> str:
    """Start the run of a ticket, or continue it from its journal."""
    try:
        return desk.call(text, run_id=ticket).output
    except CallSuspended:
        return ""  # it waits for a person; put it in again once it is answered


def put(ticket: str, text: str, customer: str, priority: int = 10) -> None:
    with SetEnqueueOptions(queue_partition_key=customer, priority=priority):
        DBOS.enqueue_workflow("tickets", handle, ticket, text)


def launch() -> None:
    DBOS(config={"name": "tickets", "system_database_url": DATABASE})
    DBOS.launch()
    DBOS.register_queue(
        "tickets",
        global_concurrency=20,  # runs at a time, in all processes
        worker_concurrency=8,  # in one process
        limiter={"limit": 600, "period": 60},  # begun in any 60 seconds
        partition_concurrency=2,  # runs of one customer at a time
        partition_limiter={"limit": 30, "period": 60},
    )


if __name__ == "__main__":
    if not DATABASE:
        sys.exit(f"expected the address of a database in DATABASE, got none; see the top of {sys.argv[0]}")
    launch()
    threading.Event().wait()
