"""emberd beside an image instead of in it: mounted read-only from an image of its own, with a Python of its own."""

from typing import Any

from emberpool.pool.model.profile import Profile

HOME = "/opt/emberpool"
EMBERD = f"{HOME}/emberd/main.py"
"""Where an image has emberd, beside any python3 from 3.8 on; and where it is mounted, if the image has none."""
OWN_PYTHON = (f"{HOME}/lib/ld.so", "--inhibit-cache", "--library-path", f"{HOME}/lib", f"{HOME}/bin/python3")
"""By its own loader with its own libraries: the image's C library may be another one, or none. See
deploy/images/portable_python.py. No variable of the environment says so, since jobs would inherit that."""


def python(profile: Profile) -> list[str]:
    """What starts emberd's Python in pods of this profile."""
    return [*OWN_PYTHON] if profile.kubernetes.emberd_image else ["python3"]


def inject(profile: Profile, spec: dict[str, Any]) -> None:
    """Mount emberd's image into the pod's one container, if the profile names such an image."""
    reference = profile.kubernetes.emberd_image
    if not reference:
        return
    source = {"reference": reference, "pullPolicy": "IfNotPresent"}
    spec["volumes"].append({"name": "emberd", "image": source})
    spec["containers"][0]["volumeMounts"].append({"name": "emberd", "mountPath": HOME, "readOnly": True})
