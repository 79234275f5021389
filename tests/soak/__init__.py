"""Everybody who works on a table, as processes of their own: `python -m tests.soak --minutes 30`

meaning.py     what each commit writes, and which rows so many commits of each mean
journal.py     what a process notes: what it tries, and what it was told, fsynced
actors.py      the processes: writers, updaters, a driver of distributed writes, services, readers, followers
crowd.py       starts, kills, stops and measures them
reckoning.py   holds the table against the journals in the end
figures.py     how much memory and how large a folder there was, and whether it grew
"""
