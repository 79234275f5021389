"""The story of Hudi's RFC for lock-free writers, with real data: the 336,776 flights out of New York in 2013.

story.py      the tasks, and why the claims hold
workers.py    the processes: ingest, encrypt, backfill, compact
journal.py    the batches of each process
check.py      the claims: against a dict, the raw file and another reader
run.py        the whole run, on a `place`, with pictures of its `lanes`
command.py    `crdt-mor demo`
"""
