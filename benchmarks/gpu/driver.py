"""What a GPU machine without a network does, step after step; standard library alone.

    python3 benchmarks/gpu/driver.py begin PACK --until 840  the first call; others bring more
    python3 benchmarks/gpu/driver.py queue STUDY/RUN ...     in place of the runs that still wait
    python3 benchmarks/gpu/driver.py collect OUT             what there is so far, in small files

`begin` copies checkout and pack into the driver's folder, and starts the steps there in the
background, once; called again, it takes the files that a later pack brings. Nothing is lost when a
step fails or is late: the others go on, and `collect` has its log.

Two lanes run beside each other: one has the GPU for itself while it measures, the other prepares.
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
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("TWF_DRIVER", "/tmp/twf-driver"))
TREE, PACK, OUT, SITE = HERE / "tree", HERE / "pack", HERE / "out", HERE / "site"
QUEUE = HERE / "queue"  # the runs that wait: STUDY/RUN, one in each line
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
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.partial")
            shutil.copyfile(file, partial)
            partial.rename(target)
    if (OUT / "driver.log").exists():
        return
    if not (PACK / SETTINGS).exists():
        print(f"taken; the steps begin with the folder of the pack that has {SETTINGS}")
        return
    OUT.mkdir(parents=True, exist_ok=True)
    for source in filter(Path.exists, map(Path, TRAVELS)):
        target = TREE / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    shutil.copyfile(PACK / "commit.json", TREE / "commit.json")
    wheels = sorted(map(str, PACK.glob("wheels/*.whl")))
    if wheels:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--no-compile", "--upgrade", "--target", SITE, *wheels], check=True)
    published = PACK / "published.tar.gz"
    if published.exists():
        with tarfile.open(published) as packed:
            packed.extractall(HERE / "published", filter="data")
    queue(*settings()["runs"])
    log = (OUT / "driver.log").open("w", encoding="utf-8")
    subprocess.Popen(
        [sys.executable, Path(__file__).resolve(), "steps", "--until", str(until)],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=TREE,
        env=environment(),
    )


def settings() -> dict[str, Any]:
    """What there is to do: the pack's `SETTINGS`."""
    found: dict[str, Any] = json.loads((PACK / SETTINGS).read_text(encoding="utf-8"))
    return found


def environment() -> dict[str, str]:
    """Our packages before this machine's; no tracking; slots for all runs at once."""
    paths = [SITE, TREE / "src", TREE]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONUNBUFFERED": "1",
        "TWF_TRACKING": "off",
        "TWF_GPU_SLOTS": "16",  # as many beside each other as the lanes have
        "CUDA_MPS_PIPE_DIRECTORY": str(HERE / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(HERE / "mps-log"),
    }


class Driver:
    """The steps, their clock, and what they found."""

    def __init__(self, until: float) -> None:
        self.settings = settings()
        self.start = time.time()
        (HERE / "end").write_text(str(self.start + until), encoding="utf-8")
        self.lock, self.planning = threading.Lock(), threading.Lock()

    @property
    def left(self) -> float:
        """Seconds to the end, which `queue` may move; a step that has begun keeps its own."""
        return float((HERE / "end").read_text(encoding="utf-8")) - time.time()

    def say(self, text: str) -> None:
        with self.lock:
            print(f"{time.time() - self.start:6.1f} s  {text}", flush=True)

    def do(self, name: str, *words: str | Path, limit: float) -> bool:
        """Run a command, its output in NAME.log; whether it ended well within `limit` seconds."""
        limit = min(limit, self.left)
        if limit <= 0:
            self.say(f"{name}: no time left")
            return False
        began = time.time()
        with (OUT / f"{name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                list(map(str, words)),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=TREE,
                env=environment(),
                start_new_session=True,  # so that all it has started ends with it
            )
            try:
                status: int | str = process.wait(max(limit - GRACE, limit / 2))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)  # a run saves its state
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(GRACE, limit / 2))
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                status = "too late"
        self.say(f"{name}: {status or 'ok'} in {time.time() - began:.1f} s")
        return status == 0

    def python(self, name: str, *words: str | Path, limit: float) -> bool:
        return self.do(name, sys.executable, *words, limit=limit)

    def twf(self, name: str, *words: str | Path, limit: float) -> bool:
        return self.python(name, "-m", "twf", *words, limit=limit)

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Whether it became so in time."""
        deadline = time.time() + min(seconds, self.left)
        while not ready() and time.time() < deadline:
            time.sleep(0.2)
        return ready()

    # The lane that prepares

    def prepare(self) -> None:
        """Data as they come, and the tests that need a GPU."""
        each = [threading.Thread(target=self.data, args=(name,)) for name in self.settings["data"]]
        for thread in each:
            thread.start()
        self.wait_for((OUT / "measured").exists, self.left)
        if words := self.settings["tests"]:
            self.python("tests", "-m", "pytest", *words, limit=240)
        for thread in each:
            thread.join()

    def data(self, name: str) -> None:
        """A data set, when its last file has come."""
        shards = PACK / "shards"

        def complete() -> bool:
            there = sorted(path.name for path in shards.glob(f"{name}.*.zip"))
            return bool(there) and len(there) == int(there[0].split("-of-")[1].split(".")[0])

        if self.wait_for(complete, self.left):
            arrays = HERE / f"{name}.npz"
            join = ("-m", "benchmarks.gpu.shards", "join", shards, name, arrays)
            self.python(f"join-{name}", *join, limit=120)
            words = (word.format(name=name, arrays=arrays) for word in self.settings["bring"])
            self.twf(f"data-{name}", "data", *words, limit=120)

    # The lane that has the GPU

    def measure(self) -> None:
        """Facts, and steps beside the published code's; then what only waits for data, and runs."""
        with contextlib.suppress(FileNotFoundError):
            self.do("facts", *self.settings["facts"], limit=30)
        for number, words in enumerate(self.settings["measure"]):
            if (HERE / "published").exists() and "--execution" in words and number == 0:
                words = [*words, "--reference", str(HERE / "published")]
            name = f"steps-{number}"
            self.python(name, "-m", "benchmarks", *words, "--name", name, limit=150)
        (OUT / "measured").touch()
        self.pretrain()
        self.runs()

    def pretrain(self) -> None:
        """The source's network: from the weights that it names, or trained, and then from those.

        All runs, here and elsewhere, so start from the half precision in which weights are shared.
        """
        source, weights = self.settings["source"], OUT / f"{self.settings['source']}.safetensors"
        needed = TREE / f"data/{self.settings['data'][0]}.safetensors"
        if not self.wait_for(needed.exists, self.left):
            self.say(f"pretrain: no {needed.name}")
            return
        way = self.settings["pretraining"]
        self.twf("pretrain", "pretrain", "train", source, "--execution", way, limit=300)
        if not self.settings["given"]:
            self.twf("export", "pretrain", "export", source, weights, limit=60)
            self.twf("import", "pretrain", "import", source, weights, limit=60)

    def runs(self) -> None:
        """The runs of the queue, some beside each other, the first first."""
        needed = TREE / f"data/{self.settings['data'][-1]}.safetensors"
        self.wait_for(needed.exists, self.left)
        self.say(f"runs: {'with' if self.mps() else 'without'} MPS")
        going: set[str] = set()

        def work() -> None:
            while self.left > MARGIN:
                with self.lock:
                    name = pop()
                    going.update([name] if name else [])
                    over = not going
                if name:
                    self.run(*name.split("/"))
                    with self.lock:
                        going.discard(name)
                elif over:
                    return
                else:
                    time.sleep(0.5)  # more may be queued while another goes on

        workers = [threading.Thread(target=work) for _ in range(self.settings["jobs"])]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def run(self, study: str, run: str) -> None:
        """A run by its plan file; where it fails, once more in the plain way."""
        plan = f"plans/{study}/{run}.json"
        with self.planning:
            if not (TREE / plan).exists():
                self.twf(f"plan-{study}", "plan", study, "--write", limit=60)
        words = ("run", plan, "--save-every", "100000", "--execution")
        way = self.settings["execution"]
        if not self.twf(f"run-{run}", *words, way, limit=self.left):
            self.twf(f"run-{run}-again", *words, "plain", limit=self.left - MARGIN)

    def mps(self) -> bool:
        """Whether NVIDIA's server lets processes compute at the same time: started, and tried."""
        server = self.settings["mps"]
        if not server or shutil.which(server[0]) is None:
            return False
        for name in ("mps", "mps-log"):
            (HERE / name).mkdir(exist_ok=True)
        tried = ("-c", "import torch; print(torch.ones(8, device='cuda').sum().item())")
        if self.do("mps", *server, limit=20) and self.python("mps-tried", *tried, limit=40):
            return True
        self.end_mps()
        return False

    def end_mps(self) -> None:
        """End the server, if it was started; without its folder, processes do not look for it."""
        if (HERE / "mps").exists():
            words = self.settings["mps"][:1]
            subprocess.run(words, input=b"quit\n", env=environment(), timeout=20)
            shutil.rmtree(HERE / "mps")


def pop() -> str | None:
    """The first run that waits, STUDY/RUN, taken from the queue."""
    waiting = QUEUE.read_text(encoding="utf-8").split()
    queue(*waiting[1:])
    return waiting[0] if waiting else None


def queue(*names: str) -> None:
    """Replace the runs that wait."""
    partial = QUEUE.with_name(".queue.partial")
    partial.write_text("\n".join(names), encoding="utf-8")
    partial.rename(QUEUE)


def steps(until: float) -> None:
    """Both lanes, to their ends; what one raises is in the log, and the other goes on."""
    driver = Driver(until)
    side = threading.Thread(target=driver.prepare)
    side.start()
    try:
        driver.measure()
    finally:
        (OUT / "measured").touch()
        side.join()
        driver.end_mps()
        driver.say("end")


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
    for path in OUT.glob("*.safetensors") if with_weights else ():
        content = path.read_bytes()
        for number, start in enumerate(range(0, len(content), LARGEST)):
            (out / f"{path.name}.{number}").write_bytes(content[start : start + LARGEST])
    print((OUT / "driver.log").read_text(encoding="utf-8"), end="")
    for log in sorted(OUT.glob("*.log"), key=lambda path: path.stat().st_mtime)[-10:]:
        text = log.read_text(errors="replace", encoding="utf-8").replace("\r", "\n").strip()
        print(f"-- {log.name}: {text.rpartition(chr(10))[2][-160:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    beginning, going, queueing, collecting = map(
        commands.add_parser, ("begin", "steps", "queue", "collect")
    )
    beginning.add_argument("pack", type=Path)
    beginning.add_argument("--until", type=float, default=840.0, help="seconds from now")
    going.add_argument("--until", type=float)
    queueing.add_argument("runs", nargs="*", metavar="STUDY/RUN")
    queueing.add_argument("--until", type=float, help="seconds from now, in place of the first's")
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--weights", action="store_true")
    words = parser.parse_args()
    if words.command in ("queue", "collect") and not (OUT / "driver.log").exists():
        sys.exit(f"nothing has begun in {HERE}: `driver.py begin PACK` begins")
    match words.command:
        case "begin":
            begin(words.pack.resolve(), words.until)
        case "steps":
            steps(words.until)
        case "queue":
            if words.until is not None:
                (HERE / "end").write_text(str(time.time() + words.until), encoding="utf-8")
            queue(*words.runs)
        case "collect":
            collect(words.out, words.weights)


if __name__ == "__main__":
    main()
