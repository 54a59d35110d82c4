"""What a GPU machine without a network does, step after step; standard library alone.

    python3 benchmarks/gpu/driver.py begin PACK --until 840  the first call; others bring more
    python3 benchmarks/gpu/driver.py queue STUDY/RUN ...     in place of the runs that still wait
    python3 benchmarks/gpu/driver.py collect OUT             what there is so far, in small files

`begin` copies checkout and pack into the driver's folder, and starts the steps there in the
background, once; called again, it takes the files that a later pack brings. Nothing is lost when a
step fails or is late: the others go on, and `collect` has its log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("TWF_DRIVER", "/tmp/twf-driver"))
TREE, PACK, OUT, SITE = HERE / "tree", HERE / "pack", HERE / "out", HERE / "site"
QUEUE = HERE / "queue"  # the runs that wait: STUDY/RUN, one in each line
END = HERE / "end"  # the time at which all ends; a step that has begun keeps the one it began with
SETTINGS = "driver.json"  # of the pack
TRAVELS = (  # of the checkout
    *("src", "benchmarks", "tests", "workflow", "params.yaml", "pyproject.toml"),
    *("constraints.txt", "results/printed.csv", "results/evidence"),
)
LARGEST = 15 * 2**20  # bytes of a file that `collect` writes
GRACE = 8.0  # seconds that a step has to end in, once told
MARGIN = 15.0  # seconds before the end in which no run is begun


def begin(pack: Path, until: float) -> None:
    """Take over what a pack brings; the first time, start the steps too."""
    for file in sorted(path for path in pack.rglob("*") if path.is_file()):
        target = PACK / file.relative_to(pack)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, file.read_bytes())
    if OUT.exists():
        return
    if not (PACK / SETTINGS).exists():
        print(f"taken; the steps begin with the folder of the pack that has {SETTINGS}")
        return
    OUT.mkdir(parents=True)
    for source in filter(Path.exists, map(Path, TRAVELS)):
        target = TREE / source
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    if wheels := sorted(map(str, PACK.glob("wheels/*.whl"))):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--no-compile", "--upgrade", "--target", SITE, *wheels], check=True)
    if (PACK / "published.tar.gz").exists():
        with tarfile.open(PACK / "published.tar.gz") as packed:
            packed.extractall(HERE / "published", filter="data")
    queue(settings()["runs"])
    END.write_text(str(time.time() + until), encoding="utf-8")
    log = (OUT / "driver.log").open("w", encoding="utf-8")
    words = [sys.executable, Path(__file__).resolve(), "steps"]
    start(words, log)


def settings() -> dict[str, Any]:
    """What there is to do: the pack's `SETTINGS`."""
    values: dict[str, Any] = json.loads((PACK / SETTINGS).read_text(encoding="utf-8"))
    return values


def replace(file: Path, content: bytes) -> None:
    """Write a file that others may look at meanwhile."""
    unfinished = file.with_name(f".{file.name}.partial")
    unfinished.write_bytes(content)
    unfinished.rename(file)


def start(words: list[Any], log: Any) -> subprocess.Popen[bytes]:
    """A process in `TREE`, with our packages before this machine's, and all that it starts."""
    paths = [SITE, TREE / "src", TREE]
    ours = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
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


def wait_for(ready: Callable[[], bool]) -> bool:
    """Whether it becomes so before the end."""
    while not ready() and left() > 0:
        time.sleep(0.2)
    return ready()


def do(name: str, *words: str | Path, limit: float) -> bool:
    """Run a command, its output in NAME.log; whether it ended well within `limit` seconds."""
    limit = min(limit, left())
    if limit <= 0:
        say(f"{name}: no time left")
        return False
    began = time.time()
    with (OUT / f"{name}.log").open("w", encoding="utf-8") as log:
        process = start(list(words), log)
        try:
            status: int | str = process.wait(max(limit - GRACE, limit / 2))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # a run saves its state
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(GRACE, limit / 2))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status = "too late"
    say(f"{name}: {status or 'ok'} in {time.time() - began:.1f} s")
    return status == 0


def python(name: str, *words: str | Path, limit: float) -> bool:
    return do(name, sys.executable, *words, limit=limit)


def twf(name: str, *words: str | Path, limit: float) -> bool:
    return python(name, "-m", "twf", *words, limit=limit)


def complete(name: str) -> bool:
    """Whether all pieces of a data set have come."""
    pieces = list(PACK.glob(f"shards/{name}.zip.*"))
    return bool(pieces) and len(pieces) == int(pieces[0].name.rpartition("-of-")[2])


def prepare() -> None:
    """The data, each set when its last piece has come; then the tests that need a GPU."""
    for name in settings()["data"]:
        if wait_for(partial(complete, name)):
            arrays = HERE / f"{name}.npz"
            words = ("-m", "benchmarks.gpu.shards", PACK / "shards", name, arrays)
            python(f"join-{name}", *words, limit=120)
            bring = (word.format(name=name, arrays=arrays) for word in settings()["bring"])
            twf(f"data-{name}", "data", *bring, limit=120)
    if wait_for((OUT / "measured").exists) and settings()["tests"]:
        python("tests", "-m", "pytest", *settings()["tests"], limit=240)


def measure() -> None:
    """Facts, and steps beside the published code's, while nothing else has the GPU."""
    do("facts", *settings()["facts"], limit=30)
    for number, words in enumerate(settings()["measure"]):
        if (HERE / "published").exists() and number == 0:
            words = [*words, "--reference", str(HERE / "published")]
        name = f"steps-{number}"
        python(name, "-m", "benchmarks", *words, "--name", name, limit=150)


def train() -> None:
    """The source's network, and the runs of the queue, some beside each other, the first first."""
    prepared = [TREE / f"data/{name}.safetensors" for name in settings()["data"]]
    if not wait_for(lambda: all(map(Path.exists, prepared))):
        return
    words = ("pretrain", "train", settings()["source"], "--execution", settings()["pretraining"])
    twf("pretrain", *words, limit=300)
    say(f"runs: {'with' if mps() else 'without'} MPS")
    lock = threading.Lock()
    going: set[str] = set()

    def work() -> None:
        while left() > MARGIN:
            with lock:
                name, *others = QUEUE.read_text(encoding="utf-8").split() or [""]
                queue(others)
                going.update([name] if name else [])
                plan = Path(f"plans/{name}.json")
                if name and not (TREE / plan).exists():
                    study = plan.parent.name
                    twf(f"plan-{study}", "plan", study, "--write", limit=60)
                if not going:
                    return
            if not name:
                time.sleep(0.5)  # more may be queued while another goes on
                continue
            run = ("run", plan, "--save-every", "100000", "--execution")
            # where a run fails, once more in the plain way
            if not twf(f"run-{plan.stem}", *run, settings()["execution"], limit=left()):
                twf(f"run-{plan.stem}-again", *run, "plain", limit=left() - MARGIN)
            with lock:
                going.discard(name)

    workers = [threading.Thread(target=work) for _ in range(settings()["jobs"])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def mps() -> bool:
    """Whether NVIDIA's server lets processes compute at the same time: started, and tried."""
    server = settings()["mps"]
    if not server or shutil.which(server[0]) is None:
        return False
    for name in ("mps", "mps-log"):
        (HERE / name).mkdir(exist_ok=True)
    tried = ("-c", "import torch; print(torch.ones(8, device='cuda').sum().item())")
    if do("mps", *server, limit=20) and python("mps-tried", *tried, limit=40):
        return True
    end_mps()
    return False


def end_mps() -> None:
    """End the server, if it was started; without its folder, processes do not look for it."""
    if (HERE / "mps").exists():
        folder = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(HERE / "mps")}
        subprocess.run(settings()["mps"][:1], input=b"quit\n", env=folder, timeout=20)
        shutil.rmtree(HERE / "mps")


def queue(names: list[str]) -> None:
    """Replace the runs that wait."""
    replace(QUEUE, "\n".join(names).encode())


def steps() -> None:
    """What prepares and what measures, beside each other, whatever one of them raises."""
    side = threading.Thread(target=prepare)
    side.start()
    try:
        try:
            measure()
        finally:
            (OUT / "measured").touch()
        train()
    finally:
        side.join()
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
        for pattern in ("results/*/runs/*.parquet", "benchmarks/results/steps-*.json"):
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
    beginning, _, queueing, collecting = map(
        commands.add_parser, ("begin", "steps", "queue", "collect")
    )
    beginning.add_argument("pack", type=Path)
    beginning.add_argument("--until", type=float, default=840.0, help="seconds from now")
    queueing.add_argument("runs", nargs="*", metavar="STUDY/RUN")
    queueing.add_argument("--until", type=float, help="seconds from now, in place of the first's")
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--weights", action="store_true")
    words = parser.parse_args()
    if words.command != "begin" and not OUT.exists():
        sys.exit(f"nothing has begun in {HERE}: `driver.py begin PACK` begins")
    match words.command:
        case "begin":
            begin(words.pack.resolve(), words.until)
        case "steps":
            steps()
        case "queue":
            if words.until is not None:
                END.write_text(str(time.time() + words.until), encoding="utf-8")
            queue(words.runs)
        case "collect":
            collect(words.out, words.weights)


if __name__ == "__main__":
    main()
