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


def test_kaggle_built_from_the_colab_image_is_kaggle(tmp_path: Path) -> None:
    tree = make(
        tmp_path,
        {"/.dockerenv": ""},
        "/kaggle/working",
        "/kaggle/input",
        "/content",
        COLAB_GPU="1",
        COLAB_RELEASE_TAG="release",
        KAGGLE_KERNEL_RUN_TYPE="Interactive",
        KAGGLE_USER_SECRETS_TOKEN="secret",
    )
    assert names(tree) == {"platform": "kaggle", "container": "docker"}


def test_colab_is_colab(tmp_path: Path) -> None:
    tree = make(tmp_path, {"/.dockerenv": ""}, "/content", COLAB_GPU="", COLAB_RELEASE_TAG="release")
    assert names(tree)["platform"] == "colab"


def test_a_runpod_pod_with_dockerenv_is_runpod_in_docker(tmp_path: Path) -> None:
    tree = make(tmp_path, {"/.dockerenv": ""}, RUNPOD_POD_ID="abc", RUNPOD_DC_ID="EU-RO-1")
    layers = find_layers(tree)
    assert names(tree) == {"platform": "runpod", "container": "docker"}
    assert layers[0].signals == ("RUNPOD_POD_ID", "RUNPOD_DC_ID")
    assert region(tree, layers) == "EU-RO-1"


def test_two_strong_signs_stand_for_a_certain_one(tmp_path: Path) -> None:
    tree = make(tmp_path, {}, RUNPOD_DC_ID="EU-RO-1", RUNPOD_GPU_COUNT="1")
    assert names(tree) == {"platform": "runpod"}
    assert names(make(tmp_path, {}, RUNPOD_GPU_COUNT="1")) == {}


def test_a_vast_ssh_shell_is_known_by_the_written_environment(tmp_path: Path) -> None:
    tree = make(tmp_path, {"/.dockerenv": "", "/etc/environment": 'VAST_CONTAINERLABEL="C.1234"\n'})
    assert names(tree) == {"platform": "vast", "container": "docker"}


def test_a_shell_without_its_containers_environment_is_known_by_the_first_process(tmp_path: Path) -> None:
    tree = make(tmp_path, {"/proc/1/environ": "PATH=/bin\0VAST_CONTAINERLABEL=C.1\0HOME=/root\0"})
    assert names(tree)["platform"] == "vast"


@pytest.mark.parametrize(
    "environ",
    [
        {"RUNPOD_API_KEY": "x"},
        {"KAGGLE_API_V1_TOKEN": "x", "MODAL_IDENTITY_TOKEN": "x", "CONTAINER_API_KEY": "x"},
        {"KAGGLE_DATA_PROXY_TOKEN": "x", "KAGGLE_USER_SECRETS_TOKEN": "x"},
        {"JOB_ID": "7"},
        {"ACCELERATOR": "t4", "CPU_CORES": "4", "MEMORY": "15Gi"},
    ],
)
def test_a_laptop_with_credentials_or_common_names_is_no_platform(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert names(make(tmp_path, {f"{DMI}/sys_vendor": "LENOVO\n"}, **environ)) == {"os": "bare-metal"}


def test_slurm_on_ec2_is_a_scheduler_over_a_virtual_machine(tmp_path: Path) -> None:
    tree = make(tmp_path, EC2, SLURM_JOB_ID="7", SLURM_JOB_USER="someone")
    assert names(tree) == {"scheduler": "slurm", "vm": "aws"}
    assert instance_type(tree, find_layers(tree)) == "p5.48xlarge"


def test_an_ec2_metal_instance_is_bare_metal_at_aws(tmp_path: Path) -> None:
    tree = make(tmp_path, {**EC2, f"{DMI}/product_name": "g4dn.metal\n"})
    assert names(tree) == {"vm": "aws", "os": "bare-metal"}
    assert instance_type(tree, find_layers(tree)) == "g4dn.metal"


def test_a_platforms_underlying_host_is_not_what_was_rented(tmp_path: Path) -> None:
    tree = make(tmp_path, EC2, MODAL_TASK_ID="ta-1", MODAL_REGION="us-east-1")
    layers = find_layers(tree)
    assert names(tree) == {"platform": "modal", "vm": "aws"}
    assert isinstance(instance_type(tree, layers), Missing)
    assert region(tree, layers) == "us-east-1"


def test_a_value_of_odd_form_is_not_taken_over(tmp_path: Path) -> None:
    tree = make(tmp_path, {}, RUNPOD_POD_ID="a", RUNPOD_DC_ID="/home/someone\x1b[2J")
    assert isinstance(region(tree, find_layers(tree)), Missing)


def test_wsl2_is_known_and_its_docker_containers_too(tmp_path: Path) -> None:
    release = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
    assert names(make(tmp_path, release)) == {"os": "wsl2"}
    assert names(make(tmp_path, {"/.dockerenv": ""})) == {"container": "docker", "os": "wsl2"}


def test_hugging_face_spaces_and_jobs_are_distinguished(tmp_path: Path) -> None:
    hardware = {"ACCELERATOR": "t4-medium", "CPU_CORES": "8", "MEMORY": "30Gi"}
    job = make(tmp_path, {}, JOB_ID="1", **hardware)
    assert names(job) == {"platform": "hf-jobs"}
    assert instance_type(job, find_layers(job)) == "t4-medium"
    assert names(make(tmp_path, {}, JOB_ID="1", SPACE_ID="a/b", **hardware)) == {"platform": "hf-spaces"}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({f"{DMI}/product_name": "Google Compute Engine"}, "gcp"),
        ({f"{DMI}/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation"}, "virtual-machine"),
        ({f"{DMI}/sys_vendor": "QEMU"}, "virtual-machine"),
        ({f"{DMI}/sys_vendor": "DigitalOcean"}, "digitalocean"),
        ({f"{DMI}/product_name": "OpenStack Nova", f"{DMI}/sys_vendor": "QEMU"}, "openstack"),
        ({f"{DMI}/bios_version": "4.11.amazon", "/sys/hypervisor/uuid": "ec2e1916"}, "aws"),
        ({"/proc/self/mountinfo": "9 1 0:9 / /lambda/nfs/data rw - nfs4 x rw\n"}, "lambda"),
        ({"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor lm\n"}, "virtual-machine"),
    ],
)
def test_clouds_are_known_by_their_firmware(tmp_path: Path, files: dict[str, str], name: str) -> None:
    assert names(make(tmp_path, files)) == {"vm": name}


@pytest.mark.parametrize(
    ("files", "environ", "name"),
    [
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({}, {"SINGULARITY_CONTAINER": "/home/someone/a.sif"}, "apptainer"),
        ({"/run/systemd/container": "lxc"}, {}, "container"),
    ],
)
def test_containers_are_named_by_what_made_them(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], name: str
) -> None:
    assert names(make(tmp_path, files, **environ)) == {"container": name}


def test_a_kubernetes_pod_needs_two_signs(tmp_path: Path) -> None:
    hosts = {"/etc/hosts": "# Kubernetes-managed hosts file.\n"}
    assert names(make(tmp_path, hosts)) == {}
    assert names(make(tmp_path, hosts, KUBERNETES_SERVICE_HOST="10.0.0.1")) == {"scheduler": "kubernetes"}


def test_bare_metal_needs_firmware_that_names_no_hypervisor(tmp_path: Path) -> None:
    assert names(make(tmp_path, {})) == {}  # gVisor hides the firmware
    assert names(make(tmp_path, {f"{DMI}/sys_vendor": "Supermicro"})) == {"os": "bare-metal"}


def test_every_sign_has_a_form_that_is_understood() -> None:
    assert {signal.strength for signal in signals()} == {"certain", "strong", "hint"}
    assert {signal.layer for signal in signals()} == {"platform", "scheduler", "container", "vm", "os"}
    assert not [s for s in signals() if s.secret and s.strength == "certain"]
    assert not [s for s in signals() if s.secret and s.test != "exists"]


STUDIO = {"/opt/ml/metadata/resource-metadata.json": '{"ResourceName": "x"}'}
RECORDED: tuple[tuple[dict[str, str], tuple[str, ...], dict[str, str], dict[str, str]], ...] = (
    (STUDIO | EC2, (), {}, {"platform": "sagemaker", "vm": "aws"}),
    (
        {"/.dockerenv": ""},
        ("/opt/ml/input/config",),
        {"SM_MODEL_DIR": "/opt/ml/model", "SM_CURRENT_INSTANCE_TYPE": "ml.p4d.24xlarge"},
        {"platform": "sagemaker", "container": "docker"},
    ),
    (
        {"/.dockerenv": ""},
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
        {"/.dockerenv": ""},
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
        {"/.dockerenv": ""},
        (),
        {"DSTACK_RUN_NAME": "r", "DSTACK_GPUS_NUM": "1", "RUNPOD_POD_ID": "p"},
        {"platform": "runpod", "scheduler": "dstack", "container": "docker"},
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


@pytest.mark.parametrize(
    "environ",
    [
        {"DATABRICKS_TOKEN": "t"},
        {"LIGHTNING_API_KEY": "k"},
        {"AZUREML_RUN_TOKEN": "t"},
        {"CI_JOB_TOKEN": "t", "GITHUB_CODESPACE_TOKEN": "t"},
        {"CODESPACES": "", "SM_MODEL_DIR": "m"},
    ],
)
def test_credentials_and_single_variables_of_these_platforms_decide_nothing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert names(make(tmp_path, {}, **environ)) == {}


def test_what_was_rented_is_known_on_sagemaker_and_below_a_scheduler(tmp_path: Path) -> None:
    job = make(tmp_path, STUDIO, SM_CURRENT_INSTANCE_TYPE="ml.p4d.24xlarge", AWS_REGION="eu-west-1")
    assert instance_type(job, find_layers(job)) == "ml.p4d.24xlarge"
    assert region(job, find_layers(job)) == "eu-west-1"
    sky = make(tmp_path / "sky", EC2, SKYPILOT_TASK_ID="1")
    assert instance_type(sky, find_layers(sky)) == "p5.48xlarge"


def platform(name: str) -> tuple[Layer, ...]:
    return (Layer("platform", name, ()),)


DISK = "1 0 8:1 / / rw - ext4 d rw\n"


@pytest.mark.parametrize(
    ("layer", "name", "path", "advice"),
    [
        ("platform", "sagemaker", "/root/r.db", "/opt/ml/checkpoints"),
        ("platform", "sagemaker", "/opt/ml/checkpoints/r.db", ""),
        ("platform", "sagemaker", "/home/ec2-user/SageMaker/r.db", ""),
        ("platform", "azureml", "/tmp/r.db", "outputs/results.db"),
        ("platform", "azureml", "/home/azureuser/cloudfiles/code/r.db", ""),
        ("platform", "azureml", "outputs/r.db", ""),
        ("platform", "databricks", "/root/r.db", "/Volumes"),
        ("platform", "databricks", "/Volumes/main/default/v/r.db", ""),
        ("platform", "lightning", "/tmp/r.db", "/teamspace/studios/this_studio"),
        ("platform", "lightning", "/teamspace/studios/this_studio/r.db", ""),
        ("platform", "codespaces", "/home/vscode/r.db", "/workspaces"),
        ("platform", "codespaces", "/workspaces/repo/r.db", ""),
        ("scheduler", "github-actions", "/home/runner/r.db", "upload-artifact"),
        ("scheduler", "gitlab-ci", "/builds/a/b/r.db", "artifact"),
        ("scheduler", "dstack", "/root/r.db", "volumes"),
        ("scheduler", "dstack", "/volume/r.db", ""),
        ("scheduler", "skypilot", "/home/ubuntu/r.db", "sky down"),
        ("scheduler", "kubernetes", "/root/r.db", "kubectl cp"),
        ("scheduler", "kubernetes", "/volume/r.db", ""),
        ("scheduler", "slurm", "/home/ann/r.db", ""),
    ],
)
def test_what_lasts_on_a_platform_and_what_does_not(
    tmp_path: Path, layer: str, name: str, path: str, advice: str
) -> None:
    make(tmp_path, {"/proc/self/mountinfo": DISK + "2 1 8:2 / /volume rw - ext4 v rw\n"})
    warning = storage_warning(
        Path(path), (Layer(layer, name, ()),), root=tmp_path, environ={"HOME": "/home/azureuser"}
    )
    assert bool(warning) is bool(advice)
    assert advice in warning


@pytest.mark.parametrize(
    ("mounts", "name", "path", "advice"),
    [
        ("2 1 0:2 / /tmp rw - tmpfs tmpfs rw\n", "", "/tmp/r.db", "--db"),
        (OVERLAY, "colab", "/content/r.db", "/content/drive/MyDrive"),
        (OVERLAY, "colab", "/content/drive/MyDrive/r.db", ""),
        (OVERLAY, "kaggle", "/root/r.db", "/kaggle/working"),
        (OVERLAY, "kaggle", "/kaggle/working/r.db", ""),
        (OVERLAY + "2 1 8:1 / /workspace rw - xfs d rw\n", "runpod", "/root/r.db", "/workspace"),
        (OVERLAY + "2 1 8:1 / /workspace rw - xfs d rw\n", "runpod", "/workspace/r.db", ""),
        (OVERLAY, "vast", "/root/r.db", "scp"),
        (OVERLAY, "modal", "/root/r.db", "scp"),
        (OVERLAY, "", "/root/r.db", ""),
        ("1 0 8:1 / / rw - ext4 d rw\n", "", "/home/someone/r.db", ""),
        ("", "", "/home/someone/r.db", ""),
    ],
)
def test_a_result_that_dies_with_the_box_is_warned_of_once_it_is_known(
    tmp_path: Path, mounts: str, name: str, path: str, advice: str
) -> None:
    make(tmp_path, {"/proc/self/mountinfo": mounts})
    layers = platform(name) if name else ()
    warning = storage_warning(Path(path), layers, root=tmp_path, environ={})
    assert bool(warning) is bool(advice)
    assert advice in warning
    assert "someone" not in warning
