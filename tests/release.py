"""A dry run of a release of HEAD: everything but the signature, the tag and the upload.

    python -m tests.release             # into build/release
    python -m tests.release FOLDER

A fresh clone of HEAD gets the tag, builds both packages, checks them, installs them elsewhere and uses them
(`tests.packages`). The folder then contains the files of a release: the packages, the bill of materials, the section
of the change log as `notes.md`, and the SHA-256 of each file. The tag exists in the clone alone. The last lines list
the open steps.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its output; end the program if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(cwd)}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def notes_of(changes: str, version: str) -> str:
    """Return the section of a version in the change log. Before the release it is the unreleased one."""
    sections = re.split(r"^## \[(.+?)\].*\n", changes, flags=re.MULTILINE)
    named = dict(zip(sections[1::2], map(str.strip, sections[2::2]), strict=True))
    notes = named.get(version) or named.get("Unreleased")
    if not notes:
        raise SystemExit(f"CHANGELOG.md has no section of the release: add one. version={version}")
    return notes


def open_steps(folder: Path, version: str, tags: list[str]) -> list[str]:
    """Return the steps of a release that only its author can do, and that are not done."""
    steps = []
    if f"## [{version}]" not in (folder / "CHANGELOG.md").read_text(encoding="utf-8"):
        steps.append(f"CHANGELOG.md: call the section [Unreleased] [{version}], with its date")
    if f"{version} is to be the first release" in (folder / "SECURITY.md").read_text(encoding="utf-8"):
        steps.append("SECURITY.md: name the supported versions and the signing key")
    if f"v{version}" not in tags:
        steps.append(f'sign the tag: git tag -s v{version} -m "crdt_mor {version}"')
    else:
        steps.append(f"the tag v{version} exists, and tags never move: raise the version in pyproject.toml")
    return steps


def sums(folder: Path) -> str:
    """Return the SHA-256 of each file of a folder, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main(target: Path) -> int:
    """Make a release of HEAD in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="crdt-mor-release-") as name:
        clone = Path(name) / "clone"
        call("git", "clone", "--quiet", ROOT, clone, cwd=ROOT)
        tags = call("git", "tag", cwd=ROOT).split()
        project = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        version = project["version"]
        steps = open_steps(clone, version, tags)
        who = ("-c", "user.name=dry run", "-c", "user.email=dry@run")
        call("git", *who, "tag", "--force", "-a", f"v{version}", "-m", f"crdt_mor {version}", cwd=clone)
        sys.stdout.write(f"cloned and tagged: {call('git', 'describe', '--exact-match', cwd=clone)}")
        (target / "notes.md").write_text(
            notes_of((clone / "CHANGELOG.md").read_text(encoding="utf-8"), version) + "\n", encoding="utf-8"
        )
        sys.stdout.write(call(sys.executable, "-m", "tests.packages", target, cwd=clone))
    (target / "SHA256SUMS").write_text(sums(target), encoding="utf-8")
    sys.stdout.write(f"in {target}:\n{sums(target)}open:\n" + "".join(f"- {step}\n" for step in steps))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "release"))
