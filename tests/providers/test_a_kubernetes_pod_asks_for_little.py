"""The manifest of a pod: what it asks for, what it may do, and what it is told."""

import json
from typing import Any

import pytest

from emberpool.pool.client.signing import pod_key
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.injection import HOME, OWN_PYTHON
from emberpool.pool.providers.kubernetes.pod_spec import CONFIG_NOTE, image_reference, manifest, requests

KEY = b"k" * 32
NAME = PodName("py-1")


def profile(**fields: object) -> Profile:
    """A profile with two images by name."""
    images = {"base": "ghcr.io/acme/py:1", "other": "ghcr.io/acme/py:2"}
    return Profile.model_validate({"name": "py", "provider": "kubernetes", "images": images} | fields)


def made(standby: bool = False, image: str = "", **fields: object) -> dict[str, Any]:
    """A pod's manifest."""
    return manifest(profile(**fields), "prod", NAME, image, KEY, standby)


def test_a_job_gets_no_account_and_no_host() -> None:
    """No token, no environment of services, a user namespace of its own, and the runtime's filter of system calls."""
    spec = made()["spec"]
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    assert spec["hostUsers"] is False and spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    security = spec["containers"][0]["securityContext"]
    assert "privileged" not in security and security["capabilities"] == {"add": ["SYS_ADMIN", "NET_ADMIN"]}
    shared = made(network="open")["spec"]["containers"][0]["securityContext"]
    assert shared["capabilities"] == {"add": ["SYS_ADMIN"]}


def test_the_key_is_the_pods_own_and_stands_in_one_place() -> None:
    """HMAC(pool key, pod name), in one annotation: neither in argv nor in the environment."""
    pod = made()
    config = json.loads(pod["metadata"]["annotations"].pop(CONFIG_NOTE))
    assert config["key"] == pod_key(KEY, NAME).hex()
    assert config["key"] not in json.dumps(pod) and KEY.hex() not in json.dumps(pod)
    assert [one["name"] for one in pod["spec"]["containers"][0]["env"]] == ["NVIDIA_VISIBLE_DEVICES"]


def test_emberd_comes_from_its_own_image_where_one_is_named() -> None:
    """Mounted read-only where images have it else, started by its own loader; nothing is said of it in the environment,
    which jobs would inherit. Without that field nothing changes."""
    about = made(kubernetes={"emberd_image": "ghcr.io/acme/emberd:3"})["spec"]
    (container,), plain = about["containers"], made()["spec"]
    assert about["volumes"][-1]["image"] == {"reference": "ghcr.io/acme/emberd:3", "pullPolicy": "IfNotPresent"}
    mount = {"name": about["volumes"][-1]["name"], "mountPath": HOME, "readOnly": True}
    assert mount in container["volumeMounts"] and container["env"] == plain["containers"][0]["env"]
    assert container["command"] == [*OWN_PYTHON, *plain["containers"][0]["command"][1:]]
    assert not any("image" in volume for volume in plain["volumes"])


def test_jobs_without_network_get_rooms_with_one_of_their_own() -> None:
    """A pod has a network whatever the profile says, since workers reach emberd by it: the room is what has none."""
    configs = [
        json.loads(made(network=network)["metadata"]["annotations"][CONFIG_NOTE]) for network in ("none", "open")
    ]
    assert [config["room"]["network"] for config in configs] == ["own", "pod"]


def test_a_pod_that_cannot_be_resized_stands_by_with_its_full_share() -> None:
    """Its emberd stands by all the same; one that can be resized asks for next to nothing."""
    amounts: dict[bool, dict[str, str]] = {}
    for resizable in (True, False):
        made = manifest(profile(), "prod", NAME, "", KEY, True, resizable)
        amounts[resizable] = made["spec"]["containers"][0]["resources"]["requests"]
        assert json.loads(made["metadata"]["annotations"][CONFIG_NOTE])["standby"]
    assert amounts[True]["cpu"] == "10m" and amounts[False] == requests(profile(), standby=False)


def test_a_pod_that_may_be_swept_can_do_without_capabilities() -> None:
    """Its emberd makes rooms where it can, and else runs jobs as a user of their own; by default it must have rooms."""
    manifest = made(network="open", least_tier="sweep", kubernetes={"ask_capabilities": False})
    room = json.loads(manifest["metadata"]["annotations"][CONFIG_NOTE])["room"]
    assert (room["mode"], room["job_uid"]) == ("auto", 60001)
    assert manifest["spec"]["containers"][0]["securityContext"]["capabilities"] == {"add": []}
    strict = json.loads(made()["metadata"]["annotations"][CONFIG_NOTE])["room"]
    assert (strict["mode"], strict["job_uid"]) == ("namespaces", None)


def test_gvisor_without_capabilities_has_no_rooms() -> None:
    """Its emberd may mount nothing, so its scratch is the volume, and no memory is set aside for it."""
    about = {"boundary": "gvisor", "runtime_class": "gvisor", "ask_capabilities": False}
    pod = made(network="open", least_tier="sweep", limits={"memory_mb": 512}, kubernetes=about)
    config = json.loads(pod["metadata"]["annotations"][CONFIG_NOTE])
    assert "scratch_tmpfs_mb" not in config and config["room"]["mode"] == "auto"
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "576Mi"
    assert container["securityContext"]["capabilities"] == {"add": []} and "hostUsers" not in pod["spec"]


def test_a_certificate_is_mounted_and_told() -> None:
    """The Secret that the profile names: read by emberd alone, and the pod says that it is to be spoken to by TLS; one
    whose Secret is not there starts all the same, so that its emberd can say so."""
    pod = made(kubernetes={"tls_secret": "emberd-tls"})
    config = json.loads(pod["metadata"]["annotations"][CONFIG_NOTE])
    assert config["listen"] == "https://0.0.0.0:7070"
    assert config["tls"] == {"cert": "/run/emberd/tls/tls.crt", "key": "/run/emberd/tls/tls.key"}
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == "tls")
    assert volume["secret"] == {"secretName": "emberd-tls", "defaultMode": 0o400, "optional": True}
    mount = {"name": "tls", "mountPath": "/run/emberd/tls", "readOnly": True}
    assert mount in pod["spec"]["containers"][0]["volumeMounts"]
    assert pod["metadata"]["annotations"]["emberpool.dev/tls"] == "true"
    plain = made()
    assert "emberpool.dev/tls" not in plain["metadata"]["annotations"]
    assert json.loads(plain["metadata"]["annotations"][CONFIG_NOTE])["listen"] == "http://0.0.0.0:7070"


def test_what_jobs_write_is_limited() -> None:
    """Rooms write to a volume with a size; the container's memory is the jobs' and a little for emberd."""
    spec = made(limits={"memory_mb": 512}, kubernetes={"scratch_mb": 100, "extra_memory_mb": 40})["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["scratch"]["emptyDir"] == {"sizeLimit": "100Mi"}
    assert spec["containers"][0]["resources"]["limits"]["memory"] == "552Mi"


def test_what_swept_jobs_write_beside_their_volume_is_limited_by_the_node() -> None:
    """emberd counts in its own folders only; of the node's disk nothing is reserved for it."""
    for tier in ("sweep", "restart"):
        fields: dict[str, Any] = {"network": "open", "least_tier": tier, "limits": {"disk_mb": 300}}
        resources = made(**fields, kubernetes={"scratch_mb": 100})["spec"]["containers"][0]["resources"]
        assert resources["limits"]["ephemeral-storage"] == "400Mi"
        assert resources["requests"]["ephemeral-storage"] == "0"
    in_memory = {"scratch_mb": 100, "boundary": "gvisor"}
    resources = made(**fields, kubernetes=in_memory)["spec"]["containers"][0]["resources"]
    assert resources["limits"]["ephemeral-storage"] == "300Mi"
    assert "ephemeral-storage" not in made()["spec"]["containers"][0]["resources"]["limits"]


def test_only_pods_that_may_start_anew_are_started_by_the_kubelet() -> None:
    """Elsewhere a container that ended is the end of its pod."""
    policies = [made(network="open", least_tier=tier)["spec"]["restartPolicy"] for tier in ("room", "restart", "sweep")]
    assert policies == ["Never", "Always", "Never"]


def test_standby_asks_for_next_to_nothing() -> None:
    """Requests alone differ, so that a resize of them is all that a promotion needs."""
    full, tiny = (made(standby)["spec"]["containers"][0]["resources"] for standby in (False, True))
    assert tiny["requests"] == {"cpu": "10m", "memory": "64Mi"}
    assert full["requests"] == {"cpu": "1", "memory": "1024Mi"}
    assert tiny["limits"] == full["limits"] == {"memory": "1088Mi"}
    assert made(kubernetes={"cpu": 0.25, "cpu_limit": 2})["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2"


def test_only_standby_may_be_moved_by_the_autoscaler() -> None:
    """Which pod goes, and when, is the pool's to say; nothing is written to a pod as it is claimed."""
    note = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    assert [made(standby)["metadata"]["annotations"][note] for standby in (False, True)] == ["false", "true"]


def test_images_are_named_or_allowed() -> None:
    """A name of the profile's, or a whole reference with an allowed beginning; all else is the caller's mistake."""
    open_to = profile(kubernetes={"image_prefixes": ["ghcr.io/acme/"]})
    assert image_reference(open_to, "") == "ghcr.io/acme/py:1"
    assert image_reference(open_to, "other") == "ghcr.io/acme/py:2"
    assert image_reference(open_to, "ghcr.io/acme/swe/x@sha256:" + "0" * 64).startswith("ghcr.io/acme/swe/x@")
    for wrong in ("ghcr.io/evil/x:1", "ghcr.io/acme/no-tag", "nothing", "ghcr.io/acme/a b:1"):
        with pytest.raises(InvalidInput, match="has no image"):
            image_reference(open_to, wrong)
    with pytest.raises(InvalidInput, match="has no image"):
        image_reference(profile(), "ghcr.io/acme/py:3")
    by_reference = profile(base_image="ghcr.io/acme/other:7", images={})
    assert image_reference(by_reference, "") == "ghcr.io/acme/other:7"


def test_a_queue_of_the_clusters_can_admit_pods() -> None:
    """Labels, scheduler and priority of the profile; no label of the profile's can hide a pod from its pool."""
    about = {
        "labels": {"kueue.x-k8s.io/queue-name": "q", "emberpool.dev/profile": "another"},
        "scheduler_name": "kai-scheduler",
        "priority_class": "emberpool-sandbox",
    }
    pod = made(kubernetes=about)
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert pod["metadata"]["labels"]["emberpool.dev/profile"] == "py"
    assert pod["spec"]["schedulerName"] == "kai-scheduler" and pod["spec"]["priorityClassName"] == "emberpool-sandbox"
    assert not {"schedulerName", "priorityClassName"} & made()["spec"].keys()


def test_gvisor_gets_its_scratch_in_memory() -> None:
    """kubernetes-sigs/agent-sandbox#158: no user namespace, which gVisor refuses; rooms on a tmpfs that emberd mounts,
    whose size is part of the container's memory."""
    pod = made(
        limits={"memory_mb": 512}, kubernetes={"boundary": "gvisor", "runtime_class": "gvisor", "scratch_mb": 100}
    )
    config = json.loads(pod["metadata"]["annotations"][CONFIG_NOTE])
    assert "hostUsers" not in pod["spec"] and pod["spec"]["runtimeClassName"] == "gvisor"
    assert config["scratch_tmpfs_mb"] == 100
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "676Mi"
    assert "scratch_tmpfs_mb" not in json.loads(made()["metadata"]["annotations"][CONFIG_NOTE])


def test_a_pod_without_gpus_sees_none() -> None:
    """NVIDIA/k8s-device-plugin#87: a CUDA image asks for every device of its node, and would get them."""
    container = made()["spec"]["containers"][0]
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "gpus" not in json.loads(made()["metadata"]["annotations"][CONFIG_NOTE])


@pytest.mark.parametrize("standby", [False, True])
def test_a_share_of_a_gpu_is_held_for_life(standby: bool) -> None:
    """Requests and limits name it in equal amounts, as extended resources must be; a resize never touches it. What the
    device plugin says in the variable is left as it is, and emberd reads it."""
    pod = made(standby, kubernetes={"gpu": {"sharing": "time_slicing", "resource": "nvidia.com/gpu.shared"}})
    container = pod["spec"]["containers"][0]
    resources = container["resources"]
    assert resources["requests"]["nvidia.com/gpu.shared"] == resources["limits"]["nvidia.com/gpu.shared"] == "1"
    assert container["env"] == []
    config = json.loads(pod["metadata"]["annotations"][CONFIG_NOTE])
    assert config["gpus"] == {"variable": "NVIDIA_VISIBLE_DEVICES", "shared": True}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"standby": 1, "kubernetes": {"gpu": {}}}, "whole devices"),
        ({"kubernetes": {"gpu": {"count": 2, "sharing": "time_slicing"}}}, "take places from others"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(fields: dict[str, object], said: str) -> None:
    """Whole devices for pods that stand by, several slices of one device."""
    with pytest.raises(ValueError, match=said):
        profile(**fields)
