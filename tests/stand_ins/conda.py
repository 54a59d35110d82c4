"""A stand-in for conda: what Snakemake asks of it, and what conda does with an environment's file.

conda makes an environment of its own packages, and has pip of the new environment install the
lines for pip, working in the folder of the environment's file. Here what they name must be there.
The environment that is made has a `twf` alone, which is this Python's and notes its calls.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml

ROOT = Path(*sys.argv[1:2])  # of a call: with bin/conda and bin/activate
TWF = """#!/bin/sh
echo "$@" >> {prefix}/called
exec {python} -m twf "$@"
"""


def install(root: Path) -> Path:
    """Make `root` a stand-in's installation; the folder for the PATH."""
    commands = root / "bin"
    commands.mkdir(parents=True)
    (commands / "conda").write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {root} "$@"\n')
    (commands / "conda").chmod(0o755)
    (commands / "activate").write_text('export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n')
    return commands


def create(file: Path, prefix: Path) -> None:
    """`conda env create --file FILE --prefix PREFIX`"""
    dependencies = yaml.safe_load(file.read_text())["dependencies"]
    (pip,) = (part["pip"] for part in dependencies if isinstance(part, dict))
    constraints, project = (
        file.resolve().parent / line.split()[1].partition("[")[0] for line in pip
    )
    if not constraints.is_file() or not (project / "pyproject.toml").is_file():
        sys.exit(f"{pip}: not found beside {file}\nCondaEnvException: Pip failed")
    twf = prefix / "bin/twf"
    twf.parent.mkdir(parents=True)
    twf.write_text(TWF.format(prefix=prefix, python=sys.executable))
    twf.chmod(0o755)


def main() -> None:
    words = sys.argv[2:]
    if words == ["--version"]:
        print("conda 26.7.2")
    elif words == ["info", "--json"]:
        print(json.dumps({"conda_prefix": str(ROOT), "platform": "linux-64"}))
    elif words == ["config", "--get", "channel_priority", "--json"]:
        print(json.dumps({"get": {"channel_priority": "strict"}}))
    elif words[:2] == ["env", "create"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--file", type=Path, required=True)
        parser.add_argument("--prefix", type=Path, required=True)
        for option in ("--quiet", "--no-default-packages"):
            parser.add_argument(option, action="store_true")
        asked = parser.parse_args(words[2:])
        create(asked.file, asked.prefix)
    elif words != ["clean", "-y", "--tarballs"]:
        sys.exit(f"the stand-in for conda knows nothing of {words}")


if __name__ == "__main__":
    main()
