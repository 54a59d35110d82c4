"""What a GPU machine without a network does, step after step; standard library alone.

    python3 benchmarks/gpu/driver.py begin PACK --until 840  the first call; others bring more
    python3 benchmarks/gpu/driver.py collect OUT             what there is so far, in small files

`begin` copies checkout and pack into the driver's folder, and starts the steps there in the
background, once; called again, it takes the files that a later pack brings, and sets another end.
Nothing is lost when a step fails or is late: the others go on, and `collect` has its log.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("TWF_DRIVER", "/tmp/twf-driver"))
TREE, PACK, OUT, SITE = HERE / "tree", HERE / "pack", HERE / "out", HERE / "site"
END = HERE / "end"  # the time at which all ends; a step that has begun keeps the one it began with
TRAVELS = (  # of the checkout
    *("src", "benchmarks", "tests", "workflow", "params.yaml", "pyproject.toml"),
    *("constraints.txt", "results/printed.csv", "results/evidence"),
)
TWF = ("python", "-m", "twf")
MPS = "nvidia-cuda-mps-control"
LARGEST = 15 * 2**20  # bytes of a file that `collect` writes
GRACE = 8.0  # seconds that a step has to end in, once told
MARGIN = 15.0  # seconds before the end in which no run is begun


def begin(pack: Path, until: float) -> None:
    """Take over what a pack brings; the first time, start the steps too."""
    for file in sorted(path for path in pack.rglob("*") if path.is_file()):
        target = PACK / file.relative_to(pack)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}")  # others look at it meanwhile
        shutil.copyfile(file, unfinished)
        unfinished.rename(target)
    END.write_text(str(time.time() + until), encoding="utf-8")
    if OUT.exists():
        return
    if not (PACK / "driver.json").exists():
        print("taken; the steps begin with the folder of the pack that has driver.json")
        return
    OUT.mkdir(parents=True)
    for source in filter(Path.exists, map(Path, TRAVELS)):
        (TREE / source).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, TREE / source)
    if wheels := sorted(map(str, PACK.glob("wheels/*.whl"))):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--no-compile", "--upgrade", "--target", SITE, *wheels], check=True)
    with (OUT / "driver.log").open("w", encoding="utf-8") as log:
        start([sys.executable, Path(__file__).resolve(), "steps"], log)


def settings() -> dict[str, Any]:
    """What there is to do."""
    values: dict[str, Any] = json.loads((PACK / "driver.json").read_text(encoding="utf-8"))
    return values


def start(words: list[Any], log: Any) -> subprocess.Popen[bytes]:
    """A process in `TREE`, with our packages before this machine's, and all that it starts."""
    ours = {
        "PYTHONPATH": os.pathsep.join(map(str, (SITE, TREE / "src", TREE))),
        "PYTHONUNBUFFERED": "1",
        "TWF_TRACKING": "off",
        "TWF_COMMIT": settings()["commit"],
        "TWF_GPU_SLOTS": "16",  # as many beside each other as there are workers
        "CUDA_MPS_PIPE_DIRECTORY": str(HERE / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(HERE / "mps-log"),
    }
    return subprocess.Popen(
        list(map(str, words)),
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # so that all it has started ends with it
        cwd=TREE,
        env=os.environ | ours,
    )


def say(text: str) -> None:
    print(f"{time.strftime('%X')}  {text}", flush=True)


def left() -> float:
    """Seconds to the end."""
    return float(END.read_text(encoding="utf-8")) - time.time()


def do(name: str, *words: str | Path, limit: float) -> bool:
    """Run a command, its output in NAME.log; whether it ended well within `limit` seconds."""
    limit = min(limit, left())
    if limit <= 0:
        say(f"{name}: no time left")
        return False
    began = time.time()
    # told first: a run saves its state
    ends = ["timeout", f"--kill-after={min(GRACE, limit / 2)}", str(max(limit - GRACE, limit / 2))]
    command = [sys.executable if word == "python" else word for word in words]
    with (OUT / f"{name}.log").open("w", encoding="utf-8") as log:
        status = start([*ends, *command], log).wait()
    result = {0: "ok", 124: "too late", 137: "too late"}.get(status, f"status {status}")
    say(f"{name}: {result} in {time.time() - began:.1f} s")
    return status == 0


def prepare() -> None:
    """The data, each set when its last piece has come."""
    for name in settings()["data"]:
        pieces: list[Path] = []
        while not pieces or len(pieces) < int(pieces[0].name.rpartition("-of-")[2]):
            if left() <= 0:
                return
            time.sleep(0.2)
            pieces = sorted(PACK.glob(f"pieces/{name}.npz.*"))
        arrays = HERE / f"{name}.npz"
        arrays.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
        bring = (word.format(name=name, arrays=arrays) for word in settings()["bring"])
        do(f"data-{name}", *TWF, "data", *bring, limit=120)


def measure(what: str) -> None:
    """What has the GPU alone, as steps; or has company, as tests."""
    for name, (limit, *words) in settings()[what].items():
        do(name, *words, limit=limit)


def train() -> None:
    """The source's network, and the runs, some beside each other, the first first."""
    way = ("--execution", settings()["execution"])
    do("pretrain", *TWF, "pretrain", settings()["source"], *way, limit=300)
    say(f"runs: {'with' if mps() else 'without'} MPS")
    for study in dict.fromkeys(name.partition("/")[0] for name in settings()["runs"]):
        do(f"plan-{study}", *TWF, "plan", study, "--write", limit=60)

    def work(name: str) -> None:
        if left() > MARGIN:
            run = ("run", f"plans/{name}.json", "--save-every", "100000")
            do(f"run-{name.rpartition('/')[2]}", *TWF, *run, *way, limit=left())

    with ThreadPoolExecutor(settings()["jobs"]) as workers:
        list(workers.map(work, settings()["runs"]))


def mps() -> bool:
    """Whether NVIDIA's server lets processes compute at the same time: started, and tried."""
    if shutil.which(MPS) is None:
        return False
    for name in ("mps", "mps-log"):
        (HERE / name).mkdir(exist_ok=True)
    tried = ("-c", "import torch; print(torch.ones(8, device='cuda').sum().item())")
    if do("mps", MPS, "-d", limit=20) and do("mps-tried", "python", *tried, limit=40):
        return True
    end_mps()
    return False


def end_mps() -> None:
    """End the server, if it was started; without its folder, processes do not look for it."""
    if (HERE / "mps").exists():
        folder = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(HERE / "mps")}
        subprocess.run([MPS], input=b"quit\n", env=folder, timeout=20)
        shutil.rmtree(HERE / "mps")


def steps() -> None:
    """What prepares beside what measures; then the runs, and what may have company."""
    side = threading.Thread(target=prepare)
    side.start()
    try:
        measure("alone")
        side.join()
        beside = threading.Thread(target=measure, args=["beside"])
        beside.start()
        train()
        beside.join()
    finally:
        end_mps()
        say("end")


def collect(out: Path, with_weights: bool) -> None:
    """Copy logs, measurements and records as one archive into `out`; weights in pieces.

    What is there is shown: the driver's log, and the last line of each step that goes on.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out / "found.tar.gz", "w:gz") as file:
        for path in sorted(OUT.glob("*.log")):
            file.add(path, f"logs/{path.name}")
        for pattern in ("results/*/runs/*.parquet", "benchmarks/results/steps*.json"):
            for path in sorted(TREE.glob(pattern)):
                file.add(path, str(path.relative_to(TREE)))
    for path in TREE.glob("checkpoints/*.safetensors") if with_weights else ():
        content = path.read_bytes()
        for number, first in enumerate(range(0, len(content), LARGEST)):
            (out / f"{path.name}.{number}").write_bytes(content[first : first + LARGEST])
    print((OUT / "driver.log").read_text(encoding="utf-8"), end="")
    for log in sorted(OUT.glob("*.log"), key=lambda path: path.stat().st_mtime)[-10:]:
        text = log.read_text(errors="replace", encoding="utf-8").replace("\r", "\n").strip()
        print(f"-- {log.name}: {text.rpartition(chr(10))[2][-160:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    beginning, _, collecting = map(commands.add_parser, ("begin", "steps", "collect"))
    beginning.add_argument("pack", type=Path)
    beginning.add_argument("--until", type=float, default=840.0, help="seconds from now")
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--weights", action="store_true")
    words = parser.parse_args()
    if words.command == "begin":
        begin(words.pack.resolve(), words.until)
    elif words.command == "steps":
        steps()
    else:
        collect(words.out, words.weights)


if __name__ == "__main__":
    main()
