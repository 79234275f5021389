"""`crdt-mor verify` and `repair`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import failures, inputs, render
from crdt_mor.cli.options import A_PARTITION, Uri
from crdt_mor.cli.wording import in_options
from crdt_mor.model.policies import plural, words_of_bytes


def verify(
    uri: Uri,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="P", help=f"Check only this partition: {A_PARTITION}. May be repeated."),
    ] = None,
    deep: bool = False,
) -> None:
    """Check every file of a table and report damage, its effect and the repair.

    Exit code 3 means damage. A key in several partitions is counted, but is not damage. Only the number of findings is
    noted, for crdt-mor metrics.

    Example: crdt-mor verify events

    Args:
        deep: Also compare the rows with a plain fold of all commits, which is slow.
    """
    try:
        with _shown() as show:
            found = inputs.opened(uri).verify(partitions=partitions or None, deep=deep, on_progress=show)
    except (mor.errors.FormatError, mor.errors.TableReplacedError) as error:  # too damaged to open
        failures.report(error, "verify")
        raise typer.Exit(failures.BROKEN) from error
    if render.is_json():
        render.document({**asdict(found), "sound": found.is_sound})
    else:
        _say(found)
    if not found.is_sound:
        raise typer.Exit(failures.BROKEN)


def repair(uri: Uri, source: Annotated[str, typer.Option("--from", metavar="COPY")]) -> None:
    """Replace damaged and missing files of a table with files of a copy.

    Each file passes all checks of crdt-mor verify before it is put. Repair is safe beside writers and readers. Exit
    code 3 means remaining damage.

    Example: crdt-mor repair events --from backup/events

    Args:
        source: A copy that crdt-mor copy made of the table.
    """
    table = inputs.opened(uri, source)
    with _shown() as show:
        done = table.maintenance.repair(inputs.opened(source, uri), on_progress=show)
    if render.is_json():
        render.document({**asdict(done), "sound": done.is_sound})
    else:
        for path in done.files:
            render.note(f"put: {path}")
        _say(done.verification)
        render.note(str(done))
    if not done.is_sound:
        raise typer.Exit(failures.BROKEN)


def _say(found: mor.results.Verification) -> None:
    read = f"{found.files:,} data files, {words_of_bytes(found.bytes)}, and {found.objects:,} objects of .hoodie"
    facts = {"rows": found.rows, "file groups": found.file_groups, "version": found.version, "read": read}
    render.facts(facts)
    for finding in (*found.findings, *found.hints):
        many = "" if finding.rows is None else f", {plural(finding.rows, 'row', ',')}"
        render.note(f"{finding.check}: {finding.path}{many}: {finding.description}")
        render.note(f"    means: {finding.means}")
        render.note(f"    do:    {finding.advice}")
    if found.keys_in_several_partitions:
        some = ", ".join(map(repr, found.some_keys))
        render.note(
            f"keys in several partitions: {found.keys_in_several_partitions:,}, and readers show all their rows. Move "
            f"these rows to one partition with crdt-mor move, or delete the others. keys={some}"
        )
    for what in found.not_looked_at:
        render.note(f"not checked: {in_options(what, ['deep'])}")
    if found.is_sound:
        render.note("no damage was found")
    else:
        render.note(f"{plural(len(found.findings), 'finding')}: see {mor.errors.page('verifying')}")


@contextmanager
def _shown() -> Iterator[Callable[[mor.results.VerifyProgress], None]]:
    with render.bar("verifying", "MofNComplete") as move:

        def show(now: mor.results.VerifyProgress) -> None:
            move(total=now.of, completed=now.file_groups, said=f"file groups, {words_of_bytes(now.bytes)}")

        yield show
