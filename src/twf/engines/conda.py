"""The environment that Snakemake makes for its jobs: `--software-deployment-method conda`."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from twf.files import atomic, sha256

COPY = Path(".snakemake/environment.yml")


def environment_file(project: Path) -> Path:
    """Write `environment.yml` as Snakemake needs it; where that is.

    Snakemake copies the file to where it keeps environments, and conda reads it there: the paths in
    it are absolute here. And Snakemake makes an environment anew where its file has changed: it has
    digests of the files that decide what is installed.
    """
    wanted = yaml.safe_load((project / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (part["pip"] for part in wanted["dependencies"] if isinstance(part, dict))
    for number, line in enumerate(pip):
        option, path = line.split()
        pip[number] = f"{option} {shlex.quote(str(project))}/{path}"
    digests = [f"# {n}: {sha256(project / n)}\n" for n in ("pyproject.toml", "constraints.txt")]
    with atomic(COPY) as partial:
        text = "".join(digests) + yaml.safe_dump(wanted, sort_keys=False, width=float("inf"))
        partial.write_text(text, encoding="utf-8")
    return COPY.absolute()
