"""Fuzzing of every parser of foreign bytes: `python -m tests.fuzz PARSER --inputs 1000000`.

parsers     the table of them: what is called, on seeds from `corpus`, in a shape that `mutation` knows
watch       what every input is held to: errors of ours alone, bounded work and memory, nothing written, no code run
guided      millions of inputs, guided by coverage (atheris), in a process of their own
tests/security/test_fuzz.py     a few hundred inputs of the same parsers, the same ones each time
"""
