"""`python -m benchmarks.gpu.pack`: what a GPU machine without a network lacks, in one folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import command
from twf import files
from twf.checkout import commit
from twf.data import formats
from twf.errors import UserError
from twf.study import reading

HERE = Path(__file__).parent
PACK = Path("gpu-pack")  # ignored by git
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (28, 27, 17)] + ["manylinux2014_x86_64"]


def main(
    data: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE.npz: a data set of params.yaml, as for `twf data import`."),
    ] = None,
    settings: Annotated[Path, typer.Option(help="What there is to do.")] = HERE / "driver.json",
    mib: Annotated[float, typer.Option(help="The most that a piece of a file may have.")] = 50.0,
    python: Annotated[str, typer.Option(help="The GPU machine's; none packs no wheels.")] = "3.12",
) -> None:
    """Pack wheels, data and the commit's name into gpu-pack/, and print the commands to call there.

    The checkout travels too, with gpu-pack/ in it. Its files and the data need not come at once:
    each call of `driver.py begin` takes what there is.
    """
    made_of = commit()
    if made_of is None or made_of.endswith("+"):
        raise UserError("commit first: records name the commit that made them")
    if PACK.exists():
        shutil.rmtree(PACK)
    base = PACK / "base"
    base.mkdir(parents=True)
    values = json.loads(settings.read_text(encoding="utf-8")) | {"commit": made_of}
    (base / "driver.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
    if python != "none":
        wheels(base / "wheels", python)
    params = reading.load(files.PARAMS)
    made = [base]
    for entry in data or []:
        name, _, file = entry.partition("=")
        if name not in params.datasets or not file:
            raise UserError(f"--data {entry}: write NAME=FILE.npz, NAME of params.yaml's datasets")
        formats.read_npz(Path(file), params.datasets[name].classes)  # here a mistake costs nothing
        content, most = Path(file).read_bytes(), int(mib * 2**20)
        starts = range(0, len(content), most)
        for number, start in enumerate(starts, start=1):
            made.append(PACK / f"{name}-{number:03d}")
            (made[-1] / "pieces").mkdir(parents=True)
            piece = made[-1] / f"pieces/{name}.npz.{number:03d}-of-{len(starts)}"
            piece.write_bytes(content[start : start + most])
    driver = "python3 benchmarks/gpu/driver.py"
    for folder in made:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        print(f"{folder} ({size:.1f} MiB): {driver} begin {folder}")
    print(f"now and then: {driver} collect OUT; at the end: {driver} collect OUT --weights")


def wheels(folder: Path, python: str) -> None:
    """Download the wheels that `wheels.txt` names, in the versions of constraints.txt."""
    words = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--requirement", str(HERE / "wheels.txt"), "--constraint", "constraints.txt"]
    words += ["--dest", str(folder), "--python-version", python, "--implementation", "cp"]
    words += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([sys.executable, "-m", *words], check=True)


if __name__ == "__main__":
    command(main)
