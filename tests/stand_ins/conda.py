"""A stand-in for conda: what Snakemake asks of it, and what conda does with an environment's file.

conda makes an environment of its own packages, writes the lines for pip to a file beside the
environment's, and has pip of the new environment install them, working in that folder. Here uv says
whether that would be possible, and whether this Python's environment has it all, in such versions.
The environment that is made has a `twf` alone, which is this Python's and notes its calls.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
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
    beside = file.resolve().parent
    with tempfile.NamedTemporaryFile("w", dir=beside, suffix=".requirements.txt") as lines:
        lines.write("\n".join(pip))
        lines.flush()
        words = [shutil.which("uv"), "pip", "install", "--dry-run", "--offline"]
        words += ["--python", sys.executable, "--requirement", lines.name]
        done = subprocess.run(words, cwd=beside, capture_output=True, text=True)
    if done.returncode != 0 or "Would make no changes" not in done.stderr:
        sys.exit(f"{done.stderr}\nCondaEnvException: Pip failed")
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
