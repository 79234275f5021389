"""Writes the bill of materials (SBOM) of a wheel: each package that it needs at run time, with version and licence.

    python -m tests.sbom                     # of the wheel that this tree gives, into build/
    python -m tests.sbom dist/crdt_mor-….whl

The wheel is installed with the versions of `requirements.lock` in an environment that has nothing else, not even pip.
cyclonedx-py, in an environment of its own, writes what it finds there in the form of CycloneDX. A package without a
licence, or with one that `ALLOWED` lacks, is an error, and so is one that is installed and not in the bill.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

TOOL = "cyclonedx-bom==7.5.0"

ALLOWED = (
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "PSF-2.0", "Zlib",
)  # fmt: skip
"""Licences, by their SPDX names, under which users of every kind may have what we need."""

LISTED = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"


def is_allowed(licence: str) -> bool:
    """Whether an SPDX expression can be fulfilled by what is allowed."""
    words = re.findall(r"[()]|[^\s()]+", licence)
    known = {"AND": "and", "OR": "or", "(": "(", ")": ")"}
    try:
        return bool(eval(" ".join(known.get(word, str(word in ALLOWED)) for word in words)))
    except SyntaxError:  # `WITH` an exception, or a name of its own in words
        return False


def licences(component: Mapping[str, Any]) -> list[str]:
    """All licences that a component names: an SPDX name, an expression, or words of its own."""
    given = component.get("licenses", [])
    return [one.get("expression") or one["license"].get("id") or one["license"].get("name") for one in given]


def plain(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wrong(bill: Mapping[str, Any], installed: Mapping[str, str]) -> list[str]:
    """What is wrong with a bill, beside what is installed."""
    components = [bill["metadata"]["component"], *bill["components"]]
    named = {plain(one["name"]): one["version"] for one in components}
    other = sorted(named.items() ^ {plain(name): version for name, version in installed.items()}.items())
    found = [f"the bill and what is installed differ in {name} {version}" for name, version in other]
    for one in components:
        if not licences(one):
            found.append(f"{one['name']} names no licence")
        found += [f"{one['name']} has the licence {text}" for text in licences(one) if not is_allowed(text)]
    return found


def call(*command: str | Path) -> str:
    """What a command printed; it ends the program where the command fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path, *packages: str | Path) -> Path:
    """The Python of a new environment that has these packages, what they need, and nothing else, not even pip."""
    venv.create(folder)
    python = folder / "bin" / "python"
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", *packages)
    return python


def with_package(folder: Path, package: Path) -> Path:
    """The Python of a new environment that has a package of ours, and what it needs in the versions of the lock."""
    locked = re.findall(r"^[a-z0-9].*", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    constraints = folder.with_suffix(".constraints")
    constraints.write_text("\n".join(locked) + "\n")
    return environment(folder, "--constraint", constraints, package)


def bill_of(python: Path, folder: Path) -> dict[str, Any]:
    """The bill of an environment; `folder` is where that of the tool is made."""
    tool = environment(folder / "tool", TOOL).with_name("cyclonedx-py")
    file = folder / "bill.json"
    asked = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", file)
    call(tool, "environment", python, *asked)
    bill: dict[str, Any] = json.loads(file.read_text())
    installed = dict(line.split() for line in call(python, "-I", "-c", LISTED).splitlines())
    if found := wrong(bill, installed):
        raise SystemExit("\n".join(found))
    return bill


def name_of_bill(wheel: Path) -> str:
    """The name of the bill of a wheel."""
    return f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"


def main(arguments: list[str]) -> int:
    """Write the bill of a wheel, and print it as a list."""
    with tempfile.TemporaryDirectory(prefix="crdt-mor-sbom-") as name:
        folder = Path(name)
        if arguments:
            wheel = Path(arguments[0]).resolve()
        else:
            call(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT)
            (wheel,) = folder.glob("*.whl")
        bill = bill_of(with_package(folder / "needed", wheel), folder)
    target = ROOT / "build" / name_of_bill(wheel)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(bill, indent=2) + "\n")
    for one in bill["components"]:
        sys.stdout.write(f"{one['name']} {one['version']}: {', '.join(licences(one))}\n")
    sys.stdout.write(f"written: {target.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
