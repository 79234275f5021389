"""Find payloads by name, check their laws, and fingerprint their meaning.

resolve.py       from a payload's name to the payload, and back           fingerprint.py   a payload's meaning
allowed.py       which classes a table may name                           claims.py        the laws, by name
merging.py       from a table's settings to the merge rule and its columns

check.py         `check_laws`: a payload's examples, and other values of their types
examine.py       each law, tried on histories      edges.py        nulls inside of values, and the ends of a type
histories.py     writes of several commits, and their overlaps
trial.py         the payload's results for written values
examples.py      a payload's own examples          values.py       other values of a type, always the same
search.py        the deep check: long histories    strategies.py   drawn values (both need hypothesis)
describe.py      values and errors in messages
"""
