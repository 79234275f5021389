"""Payloads as this process knows them: which there are, what each means, and the laws that each is held to.

A table names its payloads by text alone, so that every process finds the same ones. To make a table is thus to find the
payload, to hold it to its laws, and to keep a fingerprint of what it means; to open one is to find it again and to
compare the fingerprint.

    resolve.py       from a payload's name to the payload, and back           fingerprint.py   what a payload means
    allowed.py       which classes a table may name                           claims.py        the laws, by name
    merging.py       from a table's settings to the rule and the columns that the merge works with

    check.py         `check_laws`: a payload's examples, and other values of their types
    examine.py       each law, tried on histories      edges.py        nulls inside of values, and the ends of a type
    histories.py     what several commits may have written, and which of them overlap
    trial.py         what a payload makes of written values
    examples.py      a payload's own examples          values.py       other values of a type, the same every time
    search.py        the deep check: long histories    strategies.py   drawn values (both need hypothesis)
    describe.py      values and errors in messages
"""
