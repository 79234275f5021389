"""`Table.verify` finds each kind of damage of the timeline, of plans, and of what Hudi is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crdt_mor import Table
from crdt_mor.format.archive import decode_instants, encode_instants
from crdt_mor.format.commit import decode_commit, encode_commit
from crdt_mor.log import publish
from crdt_mor.services import verify_hudi
from tests.table.damaged import at_work, edited, made, newest, only, opened, rows, verified

HUDI = Path(".hoodie/timeline")
OWN = Path(".hoodie/.crdt_mor")


@pytest.fixture(scope="module")
def sound(fast_module_path: Path) -> Path:
    return at_work(made(fast_module_path / "sound"))


@pytest.fixture
def folder(sound: Path, fast_path: Path) -> Path:
    """A copy of the sound table, to be damaged."""
    return Path(shutil.copytree(sound, fast_path / "t"))


# --- versions ---------------------------------------------------------------------------------------------------------


def test_the_sound_table_is_whole(sound: Path) -> None:
    found = verified(sound)
    assert found.findings == ()
    versions, told = list((sound / OWN / "timeline").iterdir()), list((sound / HUDI).glob("*_*.*commit"))
    plans = list((sound / HUDI).glob("*.compaction.requested"))
    assert found.objects == len(versions) + len(told) + len(plans)


def test_the_newest_version_cannot_be_read(folder: Path) -> None:
    table = opened(folder)
    newest(folder).write_bytes(b"{")
    found = table.verify()
    assert [(finding.check, finding.path) for finding in found.findings] == [
        ("version", str(newest(folder).relative_to(folder)))
    ]
    assert any("rows" in what for what in found.not_looked_at)


@pytest.mark.slow
def test_an_older_version_is_gone_or_damaged(folder: Path) -> None:
    older = sorted((folder / OWN / "timeline").iterdir())[3]
    data = older.read_bytes()
    older.unlink()
    assert (only(folder).check, only(folder).path) == ("old version", str(older.relative_to(folder)))
    older.write_bytes(data[:-5])
    assert (only(folder).check, only(folder).path) == ("old version", str(older.relative_to(folder)))


@pytest.mark.costly
@pytest.mark.parametrize(("back", "check"), [(0, "version"), (1, "old version")])
def test_the_columns_in_a_version_cannot_be_read(folder: Path, back: int, check: str) -> None:
    version = sorted((folder / OWN / "timeline").iterdir())[-1 - back]
    version.write_bytes(version.read_bytes().replace(b'"schema":"[[', b'"schema":"{['))
    assert (only(folder).check, only(folder).path) == (check, str(version.relative_to(folder)))


def test_two_versions_that_do_not_follow_one_another(folder: Path) -> None:
    """The newest one forgets a write that the one before has committed."""

    def change(document: dict[str, Any]) -> None:
        document["completions"].pop(0)

    found = [finding for finding in verified(edited(folder, change)).findings if finding.check == "invariant"]
    assert "invariant=completions_are_carried_or_sealed" in found[0].description
    assert "please report" in found[0].advice


def twice(document: dict[str, Any]) -> None:
    document["completions"].append(document["completions"][-1])


def after_the_clock(document: dict[str, Any]) -> None:
    document["completions"][-1][1] = "29991231235959998"


def before_its_request(document: dict[str, Any]) -> None:
    document["completions"][0][1] = document["completions"][0][0]


def of_another_instant(document: dict[str, Any]) -> None:
    file, requested = document["completions"][-1][6][0], document["completions"][-1][0]
    file[0] = file[0].replace(requested, document["completions"][0][0])


def later_than_now(document: dict[str, Any]) -> None:
    document["retention"] = {"since": "29991231235959998", "stable_since": "19700101000000000", "groups": []}


def begun_later(document: dict[str, Any]) -> None:
    document["pending"].append(["29991231235959996", "n", 1, None, None])


def out_of_order(document: dict[str, Any]) -> None:
    first, second = document["completions"][:2]
    first[2], second[2] = second[2] + 1, first[2]


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (twice, "an_instant_ends_once"),
        (after_the_clock, "a_commit_completes_after_its_request"),
        (before_its_request, "a_commit_completes_after_its_request"),
        (of_another_instant, "files_bear_the_instants_that_wrote_them"),
        (of_another_instant, "a_file_is_of_one_commit"),
        (later_than_now, "marks_are_not_after_the_clock"),
        (begun_later, "what_is_unfinished_began_before_the_clock"),
        (out_of_order, "commits_complete_in_the_order_of_their_versions"),
    ],
)
def test_a_value_that_breaks_an_invariant(folder: Path, change: Any, invariant: str) -> None:
    found = verified(edited(folder, change)).findings
    assert any(finding.check == "invariant" and f"invariant={invariant} " in finding.description for finding in found)


# --- segments ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sealed(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose commits are in segments."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    return at_work(made(fast_path / "sealed"))


def segments(folder: Path) -> list[Path]:
    return sorted((folder / OWN / "segments").iterdir())


@pytest.mark.slow
def test_a_segment_is_gone(sealed: Path) -> None:
    assert verified(sealed).is_sound
    gone = segments(sealed)[0]
    gone.unlink()
    found = verified(sealed)
    assert [(finding.check, finding.path) for finding in found.findings] == [("segment", str(gone.relative_to(sealed)))]
    assert any("rows" in what for what in found.not_looked_at)


def test_a_segment_has_other_bytes(sealed: Path) -> None:
    first, second = segments(sealed)[:2]
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert {finding.check for finding in verified(sealed).findings} == {"segment"}
    first.write_bytes(data[:-9])
    assert {finding.check for finding in verified(sealed).findings} == {"segment"}


def test_a_segment_is_said_to_be_needed_by_no_snapshot(sealed: Path) -> None:
    """Readers leave it out, so that rows are missing."""

    def change(document: dict[str, Any]) -> None:
        document["segments"][-1][5] = document["clock"]

    first, *_ = verified(edited(sealed, change)).findings
    assert (first.check, "readers skip this segment" in first.description) == ("segment", True)


# --- plans and hints --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_open_plan_is_gone(folder: Path) -> None:
    plan = opened(folder).maintenance.plans.schedule()
    assert plan is not None
    at_work(folder)
    assert verified(folder).is_sound
    (path,) = (folder / OWN / "plans").glob(f"{plan.barrier}-*.json")
    data = path.read_bytes()
    path.write_bytes(data[:-4])
    assert only(folder).check == "plan"
    path.unlink()
    finding = only(folder)
    assert (finding.check, finding.path) == ("plan", str(path.relative_to(folder)))
    assert "crdt-mor rollback" in finding.advice
    path.write_bytes(data)
    told = folder / HUDI / f"{plan.barrier}.compaction.requested"
    told.unlink()
    assert (only(folder).check, only(folder).path) == ("Hudi's timeline", str(told.relative_to(folder)))


def test_a_restore_has_lost_its_plan(folder: Path) -> None:
    table = opened(folder)
    table.maintenance.restore(table.version - 2)
    at_work(folder)
    assert verified(folder).is_sound
    for path in (folder / OWN / "plans").iterdir():
        path.unlink()
    assert only(folder).check == "restore plan"


def test_a_damaged_hint_costs_only_speed(folder: Path) -> None:
    (folder / OWN / "plans").mkdir(exist_ok=True)
    (folder / OWN / "plans/failed-0123").write_bytes(b"x")
    found = verified(folder)
    assert found.is_sound
    (hint,) = found.hints
    assert (hint.check, hint.means.partition(":")[0]) == ("hint", "only speed")


def test_the_settings_are_damaged_while_the_table_is_open(folder: Path) -> None:
    table = opened(folder)
    path = folder / ".hoodie/hoodie.properties"
    path.write_text(
        path.read_text().replace("hoodie.table.name=t", "hoodie.table.name=u").replace("name=sound", "name=u")
    )
    assert [finding.check for finding in table.verify().findings] == ["settings"]


def test_the_settings_are_changed_at_this_moment_or_a_process_died_changing_them(folder: Path) -> None:
    """A handover puts a backup and removes the file before it puts the new one; whatever opens the table takes it."""
    path = folder / ".hoodie/hoodie.properties"
    path.rename(path.with_suffix(".properties.backup"))
    assert verified(folder).findings == ()


# --- what Hudi is told ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hole_in_hudis_timeline(folder: Path) -> None:
    for told in sorted((folder / HUDI).glob("*_*.*commit")):
        data = told.read_bytes()
        told.unlink()
        finding = only(folder)
        assert (finding.check, finding.path) == ("Hudi's timeline", str(told.relative_to(folder)))
        told.write_bytes(data)


@pytest.mark.slow
def test_a_completed_instant_says_something_else(folder: Path) -> None:
    told = min((folder / HUDI).glob("*_*.deltacommit"))
    data = told.read_bytes()
    metadata = decode_commit(data, told.name)
    for other in (
        replace(metadata, operation="BULK_INSERT"),
        replace(metadata, stats={}),
        replace(metadata, extra={**metadata.extra, "crdt_mor": "77"}),
        replace(metadata, extra={**metadata.extra, "schema": metadata.extra["schema"].replace('"price"', '"cost"')}),
    ):
        told.write_bytes(encode_commit(other))
        finding = only(folder)
        assert (finding.check, finding.path) == ("Hudi's timeline", str(told.relative_to(folder)))
    told.write_bytes(data[:-3])
    assert only(folder).check == "Hudi's timeline"


def test_an_instant_that_nobody_has_committed(folder: Path) -> None:
    told = min((folder / HUDI).glob("*_*.deltacommit"))
    requested, completed = told.name.partition(".")[0].split("_")
    strange = told.with_name(f"{int(requested) + 1}_{int(completed) + 1}.deltacommit")
    shutil.copy(told, strange)
    finding = only(folder)
    assert (finding.check, finding.path) == ("unknown instant", str(strange.relative_to(folder)))


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a link that leads nowhere"])
def test_the_newest_version_is_lost_of_which_hudi_was_told(folder: Path, instead: str) -> None:
    """Readers find an older version then, and rows that nobody can tell from those of a sound table."""
    opened(folder).upsert(rows(0, 1))
    told = max((folder / HUDI).glob("*_*.deltacommit"))
    version = newest(folder)
    version.unlink()
    if instead == "a folder":
        version.mkdir()
    elif instead != "nothing":
        version.symlink_to("nowhere")
    finding = only(folder)
    assert (finding.check, finding.path) == ("lost version", str(told.relative_to(folder)))
    assert "from a backup" in finding.advice


@pytest.mark.parametrize("name", ["{}.bak", "{}~", "{}.tmp", "junk", ".DS_Store", "0.json", "zzz.json"])
def test_other_objects_beside_the_versions_are_passed_over(folder: Path, name: str) -> None:
    versions = folder / ".hoodie/.crdt_mor/timeline"
    count = opened(folder).scan().count()
    stray = versions / name.format(newest(folder).name)
    stray.write_bytes(b"not a version")
    assert opened(folder).verify().is_sound
    table = opened(folder)
    assert table.scan().count() == count
    table.upsert(rows(0, 1))
    table.maintenance.archive()
    assert opened(folder).scan().count() >= count
    assert stray.exists()


@pytest.mark.slow
def test_a_partition_has_lost_its_metadata_or_that_says_nothing(folder: Path) -> None:
    """A power cut may leave a file of Hudi's empty."""
    path = folder / ".hoodie_partition_metadata"
    data = path.read_bytes()
    for wrong in (b"", data.replace(b"Depth=0", b"Depth=1"), b"\xff" * 20):
        path.write_bytes(wrong)
        assert (only(folder).check, only(folder).path) == ("partition metadata", path.name)
    path.unlink()
    assert only(folder).check == "partition metadata"


@pytest.mark.slow
def test_the_file_of_a_savepoint_is_gone_or_of_another(folder: Path) -> None:
    """Hudi's cleaner would remove what the savepoint keeps."""
    opened(folder).maintenance.savepoint("kept")
    assert verified(at_work(folder)).is_sound
    (told,) = (folder / HUDI).glob("*.savepoint")
    data = told.read_bytes()
    for wrong in (b"", data[:-9]):
        told.write_bytes(wrong)
        assert (only(folder).check, only(folder).path) == ("Hudi's timeline", str(told.relative_to(folder)))
    told.unlink()
    assert (only(folder).check, only(folder).path) == ("Hudi's timeline", str(told.relative_to(folder)))
    for inflight in (folder / HUDI).glob("*.savepoint.inflight"):
        inflight.unlink()  # so does Hudi's delete_savepoint
    assert verified(folder).is_sound


@pytest.fixture
def archived(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of which many instants have left Hudi's timeline for its history."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    table = Table.create(fast_path / "archived", {"id": pl.String}, key="id", buckets=1)
    for _ in range(4):
        table.upsert(pl.DataFrame({"id": ["a"]}))
        table.maintenance.compact()
    assert table.maintenance.archive(keep_commits=1).instants > 2
    table.set_properties({"note": "x"})
    assert table.verify().is_sound
    return fast_path / "archived"


def test_hudis_history_is_damaged(archived: Path) -> None:
    history = archived / HUDI / "history"
    manifest, file = max(history.glob("manifest_*")), max(history.glob("*.parquet"))
    for path in (manifest, file):
        data = path.read_bytes()
        path.write_bytes(data[:-9])
        assert only(archived).check == "Hudi's history"
        path.unlink()
        assert only(archived).check == "Hudi's history"
        path.write_bytes(data)


def test_hudis_history_lacks_an_instant(archived: Path) -> None:
    file = max((archived / HUDI / "history").glob("*.parquet"))
    instants = decode_instants(file.read_bytes(), file.name)
    file.write_bytes(encode_instants(instants[1:]))
    finding = only(archived)
    assert finding.check == "Hudi's history"
    assert instants[0].name.requested in finding.description


def test_verify_a_row_of_hudis_history_has_other_bytes_names_the_field(archived: Path) -> None:
    file = max((archived / HUDI / "history").glob("*.parquet"))
    first, *others = decode_instants(file.read_bytes(), file.name)
    commit = decode_commit(first.metadata, file.name)
    stats = {name: [replace(stat, prev_commit="x") for stat in some] for name, some in commit.stats.items()}
    file.write_bytes(encode_instants([replace(first, metadata=encode_commit(replace(commit, stats=stats))), *others]))
    finding = only(archived)
    assert (finding.check, "field=stats" in finding.description) == ("Hudi's history", True)


@pytest.mark.slow
def test_hudi_is_not_told_of_the_newest_version_yet(folder: Path) -> None:
    """Its publisher died before it did: the next one does it."""
    opened(folder).upsert(rows(0, 1))
    max((folder / HUDI).glob("*_*.deltacommit")).unlink()
    found = verified(folder)
    assert found.is_sound
    assert [hint.check for hint in found.hints if "newest version" in hint.description] == ["unprojected"]
    assert verified(at_work(folder)).is_sound
    assert not [hint for hint in verified(folder).hints if "newest version" in hint.description]


# --- beside others ----------------------------------------------------------------------------------------------------


def test_what_writers_have_archived_meanwhile_is_no_hole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files leave Hudi's timeline between the look at the value and that at the folder."""
    gone: list[Path] = []

    look_of = verify_hudi._Look.of

    def meanwhile(*of: Any) -> Any:
        if not gone:
            told = min((folder / HUDI).glob("*_*.deltacommit"))
            gone.append(told.rename(told.with_suffix(".away")))
        elif len(gone) == 1:
            gone.append(gone[0].rename(gone[0].with_suffix(".deltacommit")))
        return look_of(*of)

    monkeypatch.setattr("crdt_mor.services.verify_hudi._Look.of", meanwhile)
    assert verified(folder).is_sound
    assert len(gone) == 2
