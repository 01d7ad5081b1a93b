"""Print constraints for pip: each dependency at its lowest version, the tools as in constraints.txt."""

import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
lowest = {}
for dependency in project["dependencies"]:
    found = re.fullmatch(r"([\w-]+)>=([\d.]+)(,<[\d.]+)?", dependency)
    if found is None:
        raise SystemExit(f"pyproject.toml: {dependency!r} is not NAME>=LOWEST or NAME>=LOWEST,<ABOVE")
    lowest[found[1]] = f"=={found[2]}"
lowest["numpy"] = "<2"  # pandas 2.0 was built for it
tested = re.findall(r"^([\w-]+)(==.+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
for name, version in {**dict(tested), **lowest}.items():
    print(name + version)
