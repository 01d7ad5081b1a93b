"""Detection of platforms, from file trees and environments like theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.machine.layers import find_layers, instance_type, region, signals, storage_warning
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Layer

DMI = "/sys/class/dmi/id"
EC2 = {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "p5.48xlarge\n"}
STUDIO = {"/opt/ml/metadata/resource-metadata.json": '{"ResourceName": "x"}'}
WSL2 = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
DOCKER = {"/.dockerenv": ""}
HARDWARE = {"ACCELERATOR": "t4-medium", "CPU_CORES": "8", "MEMORY": "30Gi"}
OVERLAY = "1 0 0:1 / / rw - overlay overlay rw\n"


def make(root: Path, files: dict[str, str], *directories: str, **environ: str) -> Tree:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for path in directories:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return Tree(root, environ)


def names(tree: Tree) -> dict[str, str]:
    return {layer.layer: layer.name for layer in find_layers(tree)}


def test_the_signs_for_a_layer_are_named(tmp_path: Path) -> None:
    tree = make(tmp_path, {}, RUNPOD_POD_ID="abc", RUNPOD_DC_ID="EU-RO-1")
    layers = find_layers(tree)
    assert layers[0].signals == ("RUNPOD_POD_ID", "RUNPOD_DC_ID")
    assert region(tree, layers) == "EU-RO-1"


def test_what_was_rented_is_told_by_the_firmware_unless_a_platform_is_above_it(tmp_path: Path) -> None:
    metal = make(tmp_path / "metal", {**EC2, f"{DMI}/product_name": "g4dn.metal\n"})
    assert instance_type(metal, find_layers(metal)) == "g4dn.metal"
    rented = make(tmp_path / "modal", EC2, MODAL_TASK_ID="ta-1", MODAL_REGION="us-east-1")
    assert isinstance(instance_type(rented, find_layers(rented)), Missing)
    assert region(rented, find_layers(rented)) == "us-east-1"
    job = make(tmp_path / "job", STUDIO, SM_CURRENT_INSTANCE_TYPE="ml.p4d.24xlarge", AWS_REGION="eu-west-1")
    assert instance_type(job, find_layers(job)) == "ml.p4d.24xlarge"
    assert region(job, find_layers(job)) == "eu-west-1"
    for number, scheduled in enumerate(({"SKYPILOT_TASK_ID": "1"}, {"SLURM_JOB_ID": "7"})):
        below = make(tmp_path / str(number), EC2, **scheduled)
        assert instance_type(below, find_layers(below)) == "p5.48xlarge"
    hugging_face = make(tmp_path / "hf", {}, JOB_ID="1", **HARDWARE)
    assert instance_type(hugging_face, find_layers(hugging_face)) == "t4-medium"


def test_a_value_of_odd_form_is_not_taken_over(tmp_path: Path) -> None:
    tree = make(tmp_path, {}, RUNPOD_POD_ID="a", RUNPOD_DC_ID="/home/someone\x1b[2J")
    assert isinstance(region(tree, find_layers(tree)), Missing)


@pytest.mark.parametrize(
    "environ",
    [
        {"RUNPOD_API_KEY": "x"},
        {"KAGGLE_API_V1_TOKEN": "x", "MODAL_IDENTITY_TOKEN": "x", "CONTAINER_API_KEY": "x"},
        {"KAGGLE_DATA_PROXY_TOKEN": "x", "KAGGLE_USER_SECRETS_TOKEN": "x"},
        {"JOB_ID": "7"},
        {"ACCELERATOR": "t4", "CPU_CORES": "4", "MEMORY": "15Gi"},
        {"DATABRICKS_TOKEN": "t"},
        {"LIGHTNING_API_KEY": "k"},
        {"AZUREML_RUN_TOKEN": "t"},
        {"CI_JOB_TOKEN": "t", "GITHUB_CODESPACE_TOKEN": "t"},
        {"CODESPACES": "", "SM_MODEL_DIR": "m"},
        {"RUNPOD_GPU_COUNT": "1"},
    ],
)
def test_a_laptop_with_credentials_or_single_variables_is_no_platform(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert names(make(tmp_path, {f"{DMI}/sys_vendor": "LENOVO\n"}, **environ)) == {"os": "bare-metal"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({f"{DMI}/product_name": "Google Compute Engine"}, {"vm": "gcp"}),
        ({f"{DMI}/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, {"vm": "azure"}),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation"}, {"vm": "virtual-machine"}),
        ({f"{DMI}/sys_vendor": "QEMU"}, {"vm": "virtual-machine"}),
        ({f"{DMI}/sys_vendor": "DigitalOcean"}, {"vm": "digitalocean"}),
        ({f"{DMI}/product_name": "OpenStack Nova", f"{DMI}/sys_vendor": "QEMU"}, {"vm": "openstack"}),
        ({f"{DMI}/bios_version": "4.11.amazon", "/sys/hypervisor/uuid": "ec2e1916"}, {"vm": "aws"}),
        ({"/proc/self/mountinfo": "9 1 0:9 / /lambda/nfs/data rw - nfs4 x rw\n"}, {"vm": "lambda"}),
        ({"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor lm\n"}, {"vm": "virtual-machine"}),
        ({**EC2, f"{DMI}/product_name": "g4dn.metal\n"}, {"vm": "aws", "os": "bare-metal"}),
        ({f"{DMI}/sys_vendor": "Supermicro"}, {"os": "bare-metal"}),
        ({}, {}),  # gVisor hides the firmware
        (WSL2, {"os": "wsl2"}),
        (WSL2 | DOCKER, {"container": "docker", "os": "wsl2"}),
        ({"/run/.containerenv": ""}, {"container": "podman"}),
        ({"/run/systemd/container": "lxc"}, {"container": "container"}),
        ({"/etc/hosts": "# Kubernetes-managed hosts file.\n"}, {}),
        (
            DOCKER | {"/etc/environment": 'VAST_CONTAINERLABEL="C.1234"\n'},
            {"platform": "vast", "container": "docker"},
        ),
        (
            {"/proc/1/environ": "PATH=/bin\0VAST_CONTAINERLABEL=C.1\0HOME=/root\0"},
            {"platform": "vast"},
        ),
    ],
)
def test_firmware_kernels_containers_and_the_first_process_tell_where_this_is(
    tmp_path: Path, files: dict[str, str], expected: dict[str, str]
) -> None:
    assert names(make(tmp_path, files)) == expected


def test_every_sign_has_a_form_that_is_understood() -> None:
    assert {signal.strength for signal in signals()} == {"certain", "strong", "hint"}
    assert {signal.layer for signal in signals()} == {"platform", "scheduler", "container", "vm", "os"}
    assert not [s for s in signals() if s.secret and s.strength == "certain"]
    assert not [s for s in signals() if s.secret and s.test != "exists"]


RECORDED: tuple[tuple[dict[str, str], tuple[str, ...], dict[str, str], dict[str, str]], ...] = (
    (STUDIO | EC2, (), {}, {"platform": "sagemaker", "vm": "aws"}),
    (
        DOCKER,
        ("/opt/ml/input/config",),
        {"SM_MODEL_DIR": "/opt/ml/model", "SM_CURRENT_INSTANCE_TYPE": "ml.p4d.24xlarge"},
        {"platform": "sagemaker", "container": "docker"},
    ),
    (
        DOCKER,
        (),
        {"AZUREML_RUN_ID": "x", "AZUREML_ARM_WORKSPACE_NAME": "w", "AZUREML_RUN_TOKEN": "t"},
        {"platform": "azureml", "container": "docker"},
    ),
    ({}, ("/mnt/batch/tasks/shared/LS_root/mounts/clusters",), {}, {"platform": "azureml"}),
    ({}, ("/databricks/spark",), {"DATABRICKS_RUNTIME_VERSION": "17.3"}, {"platform": "databricks"}),
    (
        {},
        ("/teamspace/studios/this_studio",),
        {"LIGHTNING_CLOUD_PROJECT_ID": "01"},
        {"platform": "lightning"},
    ),
    (
        DOCKER,
        ("/workspaces",),
        {"CODESPACES": "true", "CODESPACE_NAME": "n", "GITHUB_TOKEN": "t"},
        {"platform": "codespaces", "container": "docker"},
    ),
    (
        {f"{DMI}/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
        (),
        {"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "1", "RUNNER_OS": "Linux"},
        {"scheduler": "github-actions", "vm": "azure"},
    ),
    (
        {"/etc/hosts": "# Kubernetes-managed hosts file.\n"},
        (),
        {"CI": "true", "GITLAB_CI": "true", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"scheduler": "gitlab-ci"},
    ),
    (
        DOCKER,
        (),
        {"DSTACK_RUN_NAME": "r", "DSTACK_GPUS_NUM": "1", "RUNPOD_POD_ID": "p"},
        {"platform": "runpod", "scheduler": "dstack", "container": "docker"},
    ),
    (
        DOCKER,
        ("/kaggle/working", "/kaggle/input", "/content"),
        {"COLAB_GPU": "1", "COLAB_RELEASE_TAG": "r", "KAGGLE_KERNEL_RUN_TYPE": "Interactive"},
        {"platform": "kaggle", "container": "docker"},
    ),
    (
        DOCKER,
        ("/content",),
        {"COLAB_GPU": "", "COLAB_RELEASE_TAG": "r"},
        {"platform": "colab", "container": "docker"},
    ),
    (
        DOCKER,
        (),
        {"RUNPOD_POD_ID": "abc", "RUNPOD_DC_ID": "EU-RO-1"},
        {"platform": "runpod", "container": "docker"},
    ),
    ({}, (), {"RUNPOD_DC_ID": "EU-RO-1", "RUNPOD_GPU_COUNT": "1"}, {"platform": "runpod"}),
    (EC2, (), {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "a"}, {"scheduler": "slurm", "vm": "aws"}),
    (EC2, (), {"MODAL_TASK_ID": "t", "MODAL_REGION": "us-east-1"}, {"platform": "modal", "vm": "aws"}),
    ({}, (), {"JOB_ID": "1", **HARDWARE}, {"platform": "hf-jobs"}),
    ({}, (), {"JOB_ID": "1", "SPACE_ID": "a/b", **HARDWARE}, {"platform": "hf-spaces"}),
    ({}, (), {"SINGULARITY_CONTAINER": "/home/someone/a.sif"}, {"container": "apptainer"}),
    (
        {"/etc/hosts": "# Kubernetes-managed hosts file.\n"},
        (),
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"scheduler": "kubernetes"},
    ),
    (
        EC2,
        (),
        {"SKYPILOT_TASK_ID": "sky-1", "SKYPILOT_NODE_RANK": "0"},
        {"scheduler": "skypilot", "vm": "aws"},
    ),
)


@pytest.mark.parametrize(("files", "directories", "environ", "expected"), RECORDED)
def test_platforms_are_recognised_by_their_recorded_variables_and_files(
    tmp_path: Path,
    files: dict[str, str],
    directories: tuple[str, ...],
    environ: dict[str, str],
    expected: dict[str, str],
) -> None:
    assert names(make(tmp_path, files, *directories, **environ)) == expected


DISK = "1 0 8:1 / / rw - ext4 d rw\n"
WITH_VOLUME = DISK + "2 1 8:2 / /volume rw - ext4 v rw\n"
WITH_WORKSPACE = OVERLAY + "2 1 8:1 / /workspace rw - xfs d rw\n"


@pytest.mark.parametrize(
    ("mounts", "name", "path", "advice"),
    [
        (WITH_VOLUME, "sagemaker", "/root/r.db", "/opt/ml/checkpoints"),
        (WITH_VOLUME, "sagemaker", "/opt/ml/checkpoints/r.db", ""),
        (WITH_VOLUME, "sagemaker", "/home/ec2-user/SageMaker/r.db", ""),
        (WITH_VOLUME, "azureml", "/tmp/r.db", "outputs/results.db"),
        (WITH_VOLUME, "azureml", "/home/azureuser/cloudfiles/code/r.db", ""),
        (WITH_VOLUME, "azureml", "outputs/r.db", ""),
        (WITH_VOLUME, "databricks", "/root/r.db", "/Volumes"),
        (WITH_VOLUME, "databricks", "/Volumes/main/default/v/r.db", ""),
        (WITH_VOLUME, "lightning", "/tmp/r.db", "/teamspace/studios/this_studio"),
        (WITH_VOLUME, "lightning", "/teamspace/studios/this_studio/r.db", ""),
        (WITH_VOLUME, "codespaces", "/home/vscode/r.db", "/workspaces"),
        (WITH_VOLUME, "codespaces", "/workspaces/repo/r.db", ""),
        (WITH_VOLUME, "github-actions", "/home/runner/r.db", "upload-artifact"),
        (WITH_VOLUME, "gitlab-ci", "/builds/a/b/r.db", "artifact"),
        (WITH_VOLUME, "dstack", "/root/r.db", "volumes"),
        (WITH_VOLUME, "dstack", "/volume/r.db", ""),
        (WITH_VOLUME, "skypilot", "/home/ubuntu/r.db", "sky down"),
        (WITH_VOLUME, "kubernetes", "/root/r.db", "kubectl cp"),
        (WITH_VOLUME, "kubernetes", "/volume/r.db", ""),
        (WITH_VOLUME, "slurm", "/home/ann/r.db", ""),
        ("2 1 0:2 / /tmp rw - tmpfs tmpfs rw\n", "", "/tmp/r.db", "--db"),
        (OVERLAY, "colab", "/content/r.db", "/content/drive/MyDrive"),
        (OVERLAY, "colab", "/content/drive/MyDrive/r.db", ""),
        (OVERLAY, "kaggle", "/root/r.db", "/kaggle/working"),
        (OVERLAY, "kaggle", "/kaggle/working/r.db", ""),
        (WITH_WORKSPACE, "runpod", "/root/r.db", "/workspace"),
        (WITH_WORKSPACE, "runpod", "/workspace/r.db", ""),
        (OVERLAY, "vast", "/root/r.db", "scp"),
        (OVERLAY, "modal", "/root/r.db", "scp"),
        (OVERLAY, "", "/root/r.db", ""),
        (DISK, "", "/home/someone/r.db", ""),
        ("", "", "/home/someone/r.db", ""),
    ],
)
def test_a_result_that_dies_with_the_box_is_warned_of_with_what_lasts_there(
    tmp_path: Path, mounts: str, name: str, path: str, advice: str
) -> None:
    make(tmp_path, {"/proc/self/mountinfo": mounts})
    schedulers = ("github-actions", "gitlab-ci", "dstack", "skypilot", "kubernetes", "slurm")
    layers = (Layer("scheduler" if name in schedulers else "platform", name, ()),) if name else ()
    warning = storage_warning(Path(path), layers, root=tmp_path, environ={"HOME": "/home/azureuser"})
    assert bool(warning) is bool(advice)
    assert advice in warning
    assert "someone" not in warning
