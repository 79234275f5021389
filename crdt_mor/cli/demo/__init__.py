"""The story of Hudi's RFC for lock-free writers, on real data: the 336,776 flights out of New York in 2013.

story.py      what each process is to do, and why the claims at the end must hold
workers.py    the four processes: ingest, encrypt, backfill, compact
place.py      where the table is, and what is beside it
journal.py    what each of them says it wrote
check.py      the claims, one by one: against a dict, against the raw file, against another reader
picture.py    the overlapping transactions as SVG
lanes.py      the overlapping transactions as text, for a terminal
progress.py   what is seen while it runs
run.py        top to bottom
command.py    `crdt-mor demo`
"""
