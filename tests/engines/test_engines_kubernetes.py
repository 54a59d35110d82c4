"""A miniature study on Kubernetes: what is submitted, and that it ends well with files in S3.

The executor, the storage and S3 are real; the cluster is `kubernetes_server`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import textwrap
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remote_servers
import yaml
from kubernetes_server import WORKDIR, Cluster, kubernetes_server, refusal
from miniature import ER, PROJECT, call, catchable, change_params, checkout, compare
from miniature import REPORT as TARGET
from processes import TIMEOUT, environment, until
from remote_servers import BUCKET, KEYS

from twf.files import checkpoint_file, data_file, log_file, state_file

PLUGIN = "snakemake-storage-plugin-s3"
PACKAGES = ("snakemake_executor_plugin_kubernetes", PLUGIN.replace("-", "_"), "kubernetes_validate")
MISSING = [name for name in PACKAGES if find_spec(name) is None]
MISSING += [name for name in ("weed", "pip") if not shutil.which(name, path=environment()["PATH"])]

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}"),
]

CLAIM = "twf-states"
PREFIX = f"s3://{BUCKET}/twf"
PROFILE = Path("workflow/profiles/kubernetes/config.yaml")
WORDS = ("snakemake", "--profile", str(PROFILE.parent), TARGET)
WORDS += ("--seconds-between-status-checks", "2")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout whose profile and environment are as docs/kubernetes.md says."""
    folder = tmp_path / "project"
    checkout(folder, catchable())
    profile = (folder / PROFILE).read_text().replace("s3://BUCKET/twf", PREFIX)
    profile = profile.replace("# kubernetes-persistent-volumes", "kubernetes-persistent-volumes")
    (folder / PROFILE).write_text(profile)
    for name, value in zip(("ACCESS", "SECRET"), KEYS[True], strict=True):
        monkeypatch.setenv(f"SNAKEMAKE_STORAGE_S3_{name}_KEY", value)
    (tmp_path / "s3").mkdir()
    with remote_servers.s3_server(tmp_path / "s3") as port:
        monkeypatch.setenv("SNAKEMAKE_STORAGE_S3_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        yield folder


def pack(name: str, folder: Path) -> None:
    """Put the wheel of an installed package into `folder`, as it lies in the image."""
    found = distribution(name)
    folder.mkdir()
    path = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in found.files or []:
            if file.suffix != ".pyc":
                wheel.write(str(file.locate()), str(file))


@pytest.fixture
def cluster(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose jobs know of the storage what they are told, and what the image sets."""
    pack(PLUGIN, tmp_path / "wheels")
    image = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_NO_DEPS": "1"}
    image |= {"TWF_TRACKING": "off", "TWF_SAVE_EVERY": "0", "PATH": environment()["PATH"]}
    ours = {name: os.environ[name] for name in os.environ if not name.startswith("SNAKEMAKE_")}
    with kubernetes_server(tmp_path / "cluster", ours | image) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "cluster/kubeconfig"))
        yield cluster


def jobs_of(cluster: Cluster, run: str) -> list[str]:
    """The names of the jobs that were submitted for a run, in their order."""
    return [name for name, job in cluster.jobs.items() if f"run={run}'" in json.dumps(job)]


def test_the_volume_in_the_documentation_is_a_valid_one() -> None:
    page = (PROJECT / "docs/kubernetes.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    volume = yaml.safe_load(textwrap.dedent(block))
    assert volume["metadata"]["name"] == CLAIM
    assert not refusal(volume, volume["kind"], volume["apiVersion"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"resources": {}}, ""),
        ({"resources": {"requests": {"nvidia.com/gpu": "1"}}}, "limit must be set"),
        ({"image": 1}, "not of type 'string'"),
        ({"unknown": 1}, "'unknown' was unexpected"),
    ],
)
def test_the_cluster_of_these_tests_refuses_what_kubernetes_does(
    change: dict[str, Any], problem: str
) -> None:
    pod = {"containers": [{"name": "snakemake"} | change], "restartPolicy": "Never"}
    said = refusal({"spec": {"template": {"spec": pod}}}, "Job", "batch/v1")
    assert problem in said and bool(said) == bool(problem), said


def test_a_dry_run_shows_the_jobs_with_their_resources(project: Path) -> None:
    said = call(project, *WORDS, "--dry-run")
    job = said.partition(f"output: {PREFIX}/{checkpoint_file('letters')}")[2].partition("\n\n")[0]
    (resources,) = [line for line in job.splitlines()[:12] if "resources:" in line]
    for part in ("gpu=1", "gpu_manufacturer=nvidia", "mem_mb=16000", "scale=0", "attempt=1"):
        assert f"{part}," in f"{resources},", resources


def check(job: dict[str, Any], memory: str) -> None:
    """Hold a run's job to what docs/kubernetes.md says of it."""
    assert job["spec"]["backoffLimit"] == 0  # Snakemake tries again, with more memory
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"][1:]]
    assert claims == [{"claimName": CLAIM}]
    (toleration,) = pod["tolerations"]
    assert (toleration["key"], toleration["effect"]) == ("nvidia.com/gpu", "NoSchedule")
    (container,) = pod["containers"]
    profile = yaml.safe_load((PROJECT / PROFILE).read_text())
    assert container["image"] == profile["container-image"]
    assert container["workingDir"] == WORKDIR
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        WORKDIR,
        f"{WORKDIR}/states",
    ]
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == container["resources"]["requests"]["nvidia.com/gpu"] == "1"
    assert limits["memory"] == container["resources"]["requests"]["memory"] == memory
    assert container["command"] == ["/bin/sh"]
    steps = container["args"][1].split(" && ")
    assert steps[0].startswith("pip install --target") and steps[0].endswith(f" {PLUGIN}")
    assert steps[1].startswith(f"python -m snakemake --deploy-sources {PREFIX}/")
    assert steps[2].startswith("python -m snakemake --snakefile 'Snakefile' --target-jobs 'run:")
    assert len(steps) == 3


@pytest.mark.slow
def test_a_file_of_the_users_own_is_read_where_snakemake_runs(
    project: Path, cluster: Cluster
) -> None:
    letters = catchable()["datasets"]["letters"]
    kept = {key: letters[key] for key in ("title", "classes", "size", "augmentation")}
    own = kept | {"reader": "archive", "file": "mine.npz"}
    change_params(project, lambda values: values["datasets"].update(letters=own))
    labels = np.tile(np.arange(letters["classes"]), 2)
    images = np.zeros((len(labels), letters["size"], letters["size"], 3), dtype=np.uint8)
    split = {"x_train": images, "x_test": images, "y_train": labels, "y_test": labels}
    np.savez(project / "mine.npz", **split)
    prepared = data_file("letters")
    call(project, *(str(prepared) if word == TARGET else word for word in WORDS))
    assert not cluster.jobs
    made = (project / prepared).read_bytes()
    (project / prepared).unlink()
    call(project, *WORDS, "--until", "pretrain")
    (name,) = cluster.jobs  # the pretraining, which got the data from the bucket
    assert (cluster.folder / name / prepared).read_bytes() == made


@pytest.mark.slow
def test_a_study_on_kubernetes_ends_in_the_records_of_a_local_one(
    project: Path, cluster: Cluster, local: Path
) -> None:
    with (project / "said.log").open("wb") as log:
        snakemake = subprocess.Popen(WORDS, cwd=project, stdout=log, stderr=log)
    try:
        state = cluster.folder / CLAIM / state_file("demo", ER).relative_to("states")
        until(state.exists, "a saved state")
        cluster.evict(*jobs_of(cluster, ER))
        assert snakemake.wait(3 * TIMEOUT) == 0, (project / "said.log").read_text()
    finally:
        snakemake.terminate()
        snakemake.wait(TIMEOUT)

    assert not cluster.refused
    assert not cluster.secrets  # they are gone with the workflow
    said = (project / "said.log").read_text()
    assert said.count("Trying to restart job") == 1
    first, second = jobs_of(cluster, ER)
    assert "resumed" in (cluster.folder / second / log_file("demo", ER)).read_text()
    check(cluster.jobs[first], memory="16000M")
    check(cluster.jobs[second], memory="32000M")
    assert len(cluster.jobs) == 2 + 1 + 3 + 1  # data, pretraining, runs, a second attempt
    keys = (*KEYS[True], os.environ["SNAKEMAKE_STORAGE_S3_ENDPOINT_URL"])
    assert not any(key in json.dumps(cluster.jobs) for key in keys)

    assert "Nothing to be done" in call(project, *WORDS, "--dry-run")
    compare(project, local)
