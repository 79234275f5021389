"""Runs the fast tests elsewhere than in `.venv`: on the lowest versions that we promise, and on newer Pythons.

    python -m tests.environments lowest             # all of them on the versions in requirements-lowest.txt
    python -m tests.environments 3.12 3.13          # all of them, on these Pythons, where this machine has them
    python -m tests.environments --part 3.12 3.13   # a part of them, as CI does

Each environment is made by pip below `.venvs`, and made again where what it is made from has changed. Those of newer
Pythons have the versions of `requirements.lock`, but for what no fast test needs. What follows `--` goes to pytest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOWEST = ROOT / "requirements-lowest.txt"
LOCK = ROOT / "requirements.lock"
LEFT_OUT = ("pyspark", "py4j", "mypy", "ruff", "twine", "pytest-benchmark", "pytest-cov", "coverage")
"""What only slower tests, benches and lint need: Spark alone would double the time that an environment takes."""

PART = ("tests/cli", "tests/payloads", "tests/readers", "tests/security", "tests/store", "tests/table/test_write.py")
"""What meets an interpreter more than our own logic: processes, pickles, imports, files, threads, warnings."""


def interpreter(release: str) -> str | None:
    """A Python of this release, such as "3.13", on the path or among those that pyenv keeps; None: there is none."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{release}.*/bin/python")
    for candidate in (shutil.which(f"python{release}"), *map(str, kept)):
        if candidate is None:
            continue
        asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.stdout.strip() == release:
            return candidate
    return None


def locked() -> list[str]:
    """The versions of the lock, as lines for pip, without what is left out here."""
    lines = re.findall(r"^[a-z0-9].*", LOCK.read_text(), re.MULTILINE)
    return [line for line in lines if not line.startswith(LEFT_OUT)]


def environment(name: str, python: str, requirements: list[str]) -> Path:
    """The Python of an environment that has these requirements and this tree; it is made if it is not there."""
    folder = ROOT / ".venvs" / name
    made = folder / "bin" / "python"
    state = "\n".join([python, *requirements, (ROOT / "pyproject.toml").read_text()])
    want, ready = hashlib.sha256(state.encode()).hexdigest(), folder / ".ready"
    if not ready.exists() or ready.read_text() != want:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        listed = folder / "requirements.txt"
        listed.write_text("\n".join(requirements) + "\n")
        pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(listed)], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
        subprocess.run([str(made), "-m", "pip", "--disable-pip-version-check", "check"], check=True)
        ready.write_text(want)
    return made


def run(name: str, arguments: list[str]) -> bool:
    """Whether the fast tests pass in this environment; True, too, where this machine cannot say."""
    if name == "lowest":
        oldest = interpreter("3.11") or sys.executable
        python = environment(name, oldest, LOWEST.read_text().splitlines())
    else:
        found = interpreter(name)
        if found is None:
            sys.stderr.write(f"skipped: no python{name} on this machine\n")
            return True
        python = environment(f"python-{name}", found, locked())
    sys.stderr.write(f"-- {name}\n")
    sys.stderr.flush()
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def with_rest(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of a command, and what follows `--`, which goes to pytest."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def main(arguments: list[str]) -> int:
    """Test in the environments one after the other; 1 if one of them fails."""
    names, more = with_rest(arguments)
    part = "--part" in names
    names = [name for name in names if name != "--part"]
    unknown = [name for name in names if name != "lowest" and not re.fullmatch(r"3\.\d+", name)]
    if unknown or not names:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    failed = [name for name in names if not run(name, [*more, *(PART if part else ())])]
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
