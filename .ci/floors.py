"""Print constraints for pip: what gputui depends on at its lowest versions, the tools as in constraints.txt."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lowest_versions(dependencies: list[str]) -> dict[str, str]:
    """The floor of each dependency, `name>=FLOOR` or `name>=FLOOR,<CEILING`, by name."""
    floors = {}
    for dependency in dependencies:
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)(,<[\d.]+)?", dependency)
        if found is None:
            raise SystemExit(f"pyproject.toml: {dependency!r} has no floor that can be installed")
        floors[found[1]] = found[2]
    return floors


def constraints() -> list[str]:
    floors = lowest_versions(
        tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    )
    tested = re.findall(r"^([\w-]+)(==.+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    return [
        *(f"{name}=={floor}" for name, floor in floors.items()),
        "numpy<2",  # pandas 2.0 was built for it
        *(name + version for name, version in tested if name not in {*floors, "numpy"}),
    ]


if __name__ == "__main__":
    print("\n".join(constraints()))
