"""docs/format.md names all that we put on storage: every key, field, folder and property, and the versions."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.format import properties
from crdt_mor.format.base_file import LATEST_REQUESTED, ORDER
from crdt_mor.laws.merging import HIDDEN
from crdt_mor.log.intents import BeginIntent, CompleteIntent, Intent, encode_intent
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.posts import GROUP_BYTES_MAX, POSTS_MAX, Post, encode_post
from crdt_mor.log.segments import FILE_IDS_MAX, SCHEMA_MAX, TOKENS_MAX
from crdt_mor.log.tail import KEPT_VERSIONS
from crdt_mor.model.alteration import Alteration
from crdt_mor.model.authors import INFO_BYTES_MAX, Author
from crdt_mor.model.config_merge import MERGE_STRATEGY_ID
from crdt_mor.model.config_properties import ENGINE_VERSION
from crdt_mor.model.declared import KEYS_MAX, NAMES_MAX, Declared, declared_of
from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms
from crdt_mor.model.merge_spec import ColumnMerge, PayloadRef
from crdt_mor.model.migration import Moving, Origin, Step
from crdt_mor.model.names import COMMIT_INFO_KEY, OWN_KEY, WRITE_TOKEN, bucket_file_id, replacing_file_id
from crdt_mor.model.overwrite import Overwrite, Scope
from crdt_mor.model.posts import WINDOW, Member, PostName
from crdt_mor.model.restore import Restore
from crdt_mor.model.rules import Rule
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT, FORMATS_READ, encode_file_ids, encode_schema, encode_segment
from crdt_mor.model.timeline_parts import (
    EVERYTHING_KEPT,
    Archive,
    Completion,
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)
from crdt_mor.model.tokens import Tokens, encode_tokens, stored_tokens
from crdt_mor.planners import compaction
from crdt_mor.planners.clean import CleanPlan
from crdt_mor.planners.erasure import Erasure
from crdt_mor.planners.restore import DroppedCommit, RestorePlan
from crdt_mor.planners.way import POST_BYTES_MAX

REPO = Path(__file__).parents[1]
PAGE = (REPO / "docs" / "format.md").read_text()

T = EPOCH
FILE = DataFile("day=mon/x", 1, 1, 0)
WHO = Author("application", "host", 1, (("message", "text"),))
DECLARED = declared_of(["day=mon"], ["price"], existing=True, record_keys=["x"])
COMMIT = Completion(T, T, 1, "nonce", "deltacommit", "UPSERT", (FILE,), (("day=mon", "x"),), False, "driver", WHO, T)
VALUE = Timeline(
    1, "nonce", T, "[]",
    pending=(Pending(T, "nonce", 1, 5, "driver", 2, WHO, DECLARED),),
    plans=(OpenPlan(T, "nonce", 1, "path", "clean"),),
    rolled_back=(RolledBack(T, "nonce", 1),),
    completions=(COMMIT,),
    segments=(Segment("name", 0, T, T, 1, None, 2),),
    tokens=Tokens((Token("application", 1, T, T, 1),)),
    properties=(("name", "value"),),
    retention=Retention(T, T, ((("day=mon", "x"), T),), T, 1),
    archive=Archive(T, T, 1, 1, 1, ("file",)),
    tokens_since=from_ms(1),
    overwrites=(Overwrite(T, Scope(("day=mon",))),),
    savepoints=(Savepoint("name", T, T, T, 1, "nonce", "comment", WHO),),
    restores=(Restore(T, from_ms(2), 1, "nonce", "path", T, 1, T, 1),),
    tokens_noted=from_ms(1),
    moving=Moving("uri", "id", T, T),
    origin=Origin("id", "uri", Step(T, T, 1, 2), T, True),
    posts=((1, ("name", "void")),),
    rules=(Rule("check", "name", "n > 0", ("n",), "nonce", False),),
    handed_over=from_ms(1),
    file_ids=FileIds((("day=mon", replacing_file_id(0, T)),)),
    alterations=(Alteration(T, (("stored", "shown"),), (("a", "b"),), ("c",), (("d", "text"),)),),
)  # fmt: skip
"""With everything in it."""


def section(title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def sentences(title: str) -> str:
    """The text of a section without its line breaks."""
    return " ".join(section(title).split())


def named(text: str) -> list[str]:
    """What stands in the first column of the tables in a text, in code style."""
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def encoded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VALUE.encode())
    return found


def test_every_key_of_a_version_is_named_in_its_order() -> None:
    assert named(section("A version of the timeline")) == [*encoded(), "schema_object"]


@pytest.mark.parametrize("key", [key for key, found in encoded().items() if isinstance(found, list) and key != "added"])
def test_every_field_of_what_a_version_lists_is_named(key: str) -> None:
    rows = re.findall(r"^\| (\d+) \|", section(f"`{key}`"), re.MULTILINE)
    (element,) = encoded()[key]
    assert rows == [str(number) for number in range(1, len(element) + 1)]


def test_files_and_segments_are_as_the_page_says() -> None:
    assert "`[path, bytes, rows, delete records]`" in section("`completions`")
    assert encoded()["completions"][0][6] == [["day=mon/x", 1, 1, 0]]
    assert list(json.loads(encode_segment([COMMIT]))) == ["format", "completions"]
    assert '`{"format": …, "completions": [...]}`' in section("A segment")


def test_many_file_ids_are_as_the_page_says() -> None:
    page = section("Many file ids")
    assert f"more than {FILE_IDS_MAX} ids" in sentences("Many file ids")
    assert json.loads(encode_file_ids(VALUE.file_ids))["file_ids"] == encoded()["file_ids"]
    assert list(json.loads(encode_file_ids(VALUE.file_ids))) == ["format", "file_ids"]
    assert '`{"format": …, "file_ids": {…}}`' in page
    stored = replace(VALUE, file_ids=replace(VALUE.file_ids, stored="name"))
    assert json.loads(stored.encode())["file_ids"] == "name"


def test_a_schema_of_many_columns_is_as_the_page_says() -> None:
    page = section("A schema of many columns")
    assert f"more than {SCHEMA_MAX:,} characters" in sentences("A schema of many columns")
    assert json.loads(encode_schema(VALUE.schema)) == {"format": FORMAT, "schema": VALUE.schema}
    assert '`{"format": …, "schema": "…"}`' in page
    stored = json.loads(replace(VALUE, schema_object="name").encode())
    assert (stored["schema"], stored["schema_object"]) == ("", "name")


def test_tokens_of_many_applications_are_as_the_page_says() -> None:
    assert f"more than {TOKENS_MAX} tokens" in sentences("Tokens of many applications")
    assert f"keeps {TOKENS_MAX // 2}" in sentences("Tokens of many applications")
    older = stored_tokens("<name>", VALUE.tokens)
    assert json.loads(encode_tokens(older)) == {"format": FORMAT, "tokens": encoded()["tokens"]}
    assert '`{"format": …, "tokens": [...]}`' in section("Tokens of many applications")
    stored = json.loads(replace(VALUE, tokens=Tokens((), older)).encode())["tokens"]
    assert stored == {"recent": [], "object": "<name>"}
    assert '`{"recent": [...], "object": "<name>"}`' in sentences("`tokens`")


def test_the_token_of_a_commit_is_as_the_page_says() -> None:
    (told,) = json.loads(encode_segment([replace(COMMIT, token=("application", 1))]))["completions"]
    assert told[-1] == {"token": ["application", 1]}
    assert "`token`: `[application, number]`" in section("`completions`")


def test_posts_and_the_members_of_a_commit_are_as_the_page_says() -> None:
    page = section("Posts of whole writes")
    told_of_posts = sentences("Posts of whole writes")
    post = Post(PostName(1, "name"), WHO, ("application", 4), "UPSERT", False, 2, 0, b"rows")
    line, _, content = encode_post(post, "id").partition(b"\n")
    (shown,) = (json.loads(line) for line in page.splitlines() if line.startswith('{"format"'))
    head = json.loads(line)
    assert list(shown) == list(head)
    assert [type(part) for part in shown.values()] == [type(part) for part in head.values()]
    keys = [key for row in re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)]
    assert keys == list(head)
    assert content == b"rows"
    assert f"the versions v + 1 to v + {WINDOW}" in told_of_posts
    assert f"at most {POST_BYTES_MAX >> 10} KiB" in told_of_posts
    assert f"at most {POSTS_MAX} posts, of {GROUP_BYTES_MAX >> 20} MiB" in told_of_posts
    assert encoded()["posts"] == [[1, "name void"]]
    of_two = replace(COMMIT, members=(post.member, Member(WHO, 0, 3)))
    (told,) = json.loads(encode_segment([of_two]))["completions"]
    who = ["application", "host", 1, {"message": "text"}]
    members = [[0, 2, 0, [1, "name"], ["application", 4]], [0, 0, 3, None]]
    assert told[-1] == {"members": [[who], members]}
    assert "`members` is `[authors, members]`" in sentences("`completions`")


def test_what_history_is_kept_is_as_the_page_says() -> None:
    assert named(section("`retention`")) == list(encoded()["retention"])
    assert "`[partition path, file id, since]`" in section("`retention`")
    assert encoded()["retention"]["groups"] == [["day=mon", "x", T]]


def test_what_is_archived_is_as_the_page_says() -> None:
    assert named(section("`archive`")) == list(encoded()["archive"])


def test_what_is_known_of_a_migration_is_as_the_page_says() -> None:
    assert named(section("`moving`")) == list(encoded()["moving"])
    assert named(section("`origin`")) == list(encoded()["origin"])
    assert encoded()["origin"]["step"] == [T, T, 1, 2]
    assert "`[since, until, first, count]`" in section("`origin`")


def test_authors_and_the_key_of_what_users_say_are_as_the_page_says() -> None:
    assert [found[4] for found in encoded()["pending"]] == [found[9] for found in encoded()["completions"]]
    assert encoded()["pending"][0][4] == ["application", "host", 1, {"message": "text"}]
    assert "`[application, host, pid, info]`" in sentences("`pending`")
    assert f"`{COMMIT_INFO_KEY}`" in section("What Hudi is told")
    assert f"{INFO_BYTES_MAX:,} bytes" in sentences("`pending`")


def test_what_a_write_declares_is_as_the_page_says() -> None:
    page, (told,) = section("`pending`"), encoded()["pending"]
    assert told[7] == {"partitions": ["day=mon"], "columns": ["price"], "existing": True, "keys": ["2d711642b726"]}
    assert re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE) == list(told[7])
    assert f"at most {NAMES_MAX} partitions, {NAMES_MAX} columns and {KEYS_MAX} keys" in sentences("`pending`")
    begin = json.loads(encode_intent(BeginIntent("nonce", 5, WHO, Declared(("day=mon",))), "id"))["begin"]
    assert begin[2:] == [{"partitions": ["day=mon"]}]
    assert len(json.loads(encode_intent(BeginIntent("nonce", 5, WHO), "id"))["begin"]) == 2


def test_plans_and_properties_are_as_the_page_says(fast_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("a note", pa.string())])
    table = mor.Table.create(
        fast_path / "table", schema, key="id", buckets=1, cluster_by=["id", "day"], cluster_order="z-order",
        compression="lz4", rules=mor.Rules(not_null="day"),
    )  # fmt: skip
    table.upsert(pa.table({"id": [1], "day": ["mon"], "a note": ["x"]}))
    assert table.maintenance.plans.schedule() is not None
    (path,) = (fast_path / "table" / ".hoodie" / ".crdt_mor" / "plans").iterdir()
    plan = json.loads(path.read_bytes())
    assert named(section("A compaction's plan")) == list(plan)
    assert [len(group) for group in plan["groups"]] == [4]
    assert (plan["order"], plan["compression"]) == ("z-order(id,day)", "lz4")
    assert f"`{ORDER}`: `linear(country,day)`" in sentences("Base files")
    found = properties.decode((fast_path / "table" / PROPERTIES).read_bytes(), PROPERTIES)
    ours = {key for key in found if key.startswith("crdt_mor.")}
    assert ours == set(re.findall(r"`(crdt_mor\.[a-z_.]+)`", section("hoodie.properties")))


def test_the_plan_of_a_clean_is_as_the_page_says() -> None:
    plan = json.loads(CleanPlan(EPOCH, EVERYTHING_KEPT, (DataFile("day=mon/a_0-0-0_1.parquet", 1, 2, 3),)).encode())
    assert named(section("A clean's plan")) == list(plan)
    assert plan["files"] == {"day=mon": [["a_0-0-0_1.parquet", 1, 2, 3]]}


def test_the_plan_of_a_restore_is_as_the_page_says() -> None:
    dropped = DroppedCommit(T, T, "deltacommit", ("day=mon/a_0-0-0_1.parquet",))
    plan = json.loads(RestorePlan(T, T, T, (dropped,)).encode())
    assert named(section("A restore's plan")) == list(plan)
    assert "`[requested, completed, action, [data files]]`" in section("A restore's plan")
    assert plan["dropped"] == [[T, T, "deltacommit", ["day=mon/a_0-0-0_1.parquet"]]]


def test_erasures_are_as_the_page_says() -> None:
    erasure = json.loads(Erasure(T, (("day=mon", "x"),), "id").encode())
    assert named(section("An erasure")) == list(erasure)
    assert erasure["groups"] == [["day=mon", "x"]]
    assert "`[partition path, file id]`" in section("An erasure")


def test_events_that_are_posted_are_as_the_page_says() -> None:
    page = section("Events of others")
    shown = [json.loads(line) for line in page.splitlines() if line.startswith('{"format"')]
    posted: list[Intent] = [
        BeginIntent("nonce", 5, WHO),
        CompleteIntent("nonce", T, "", "UPSERT", (FILE,), ("application", 4)),
    ]
    for example, intent in zip(shown, posted, strict=True):
        written = json.loads(encode_intent(intent, "id"))
        assert list(example) == list(written)
        (body,) = set(written) - {"format", "table_id", "nonce"}
        assert [type(part) for part in example[body]] == [type(part) for part in written[body]]
        assert re.search(f"`{body}` (has )?the ", sentences("Events of others"))


def test_every_key_of_a_payload_in_the_properties_is_named() -> None:
    member = ColumnMerge(("views",), PayloadRef("counter/1", '{"a": 1}', "0" * 16, "acme:Counter")).to_json()
    assert set(member) <= set(named(section("hoodie.properties")))


def test_every_object_of_a_table_with_everything_in_it_is_of_a_kind_that_is_named() -> None:
    paths = [path for path in named(section("Folders")) if path.startswith(".hoodie/")]
    patterns = [re.sub(r"<[^>]+>", "[^/]+", path.replace(".", r"\.")) for path in paths]
    patterns = [pattern + ("[^/]+" if pattern.endswith("/") else "") + r"\Z" for pattern in patterns]
    newest = max((REPO / "tests" / "tables").glob("release-*.tar.xz"))
    with tarfile.open(newest) as packed:
        objects = [name.partition("/")[2] for name in packed.getnames()]
    objects = [name for name in objects if name.startswith(".hoodie/")]
    assert not [name for name in objects if not any(re.match(pattern, name) for pattern in patterns)]
    met = [path for path, pattern in zip(paths, patterns, strict=True) if any(re.match(pattern, o) for o in objects)]
    seldom = (
        r"/\.temp/|/loads/|/readers/|/verified/|/resolved/|/copied/|/posts/(turn|.*json)|/failed-"
        r"|\.(stable|backup)$"
    )
    passing = [path for path in paths if re.search(seldom, path)]
    assert [path for path in paths if path not in met] == passing


def test_the_page_has_the_numbers_and_names_of_the_code() -> None:
    versions = re.findall(r"^\| .*? \| (\d+) \| ([\d, ]+) \|", PAGE.partition("## Times")[0], re.MULTILINE)
    assert [now for now, _ in versions] == [ENGINE_VERSION, str(FORMAT), str(compaction.FORMAT)]
    assert [read for _, read in versions[1:]] == [
        ", ".join(map(str, f)) for f in (FORMATS_READ, compaction.FORMATS_READ)
    ]
    assert f"the newest {KEPT_VERSIONS} stay" in PAGE
    names = (MERGE_STRATEGY_ID, LATEST_REQUESTED, EPOCH, WRITE_TOKEN, f"`{OWN_KEY}`", f"`{HIDDEN}<")
    assert not [name for name in names if name not in PAGE]
    assert bucket_file_id(0).removeprefix("00000000") in PAGE
    assert replacing_file_id(0, InstantTime("20261126123456789")).removeprefix("00000000") in PAGE
