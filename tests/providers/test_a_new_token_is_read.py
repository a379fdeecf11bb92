"""Tokens of service accounts are replaced while a worker runs: the API server takes only the one that is now in the
file."""

import json
from pathlib import Path

import pytest
from fixtures.faulty_api import faulty_api

from emberpool.pool.providers.kubernetes.access import Access, ApiRefused, KubernetesApi

PODS = "/api/v1/namespaces/default/pods"


def logged_in(folder: Path, address: str, token: str) -> KubernetesApi:
    """A client whose kubeconfig names a file with its token."""
    (folder / "token").write_text(token)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": address}}],
        "users": [{"name": "a", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path = folder / "with-token"
    path.write_text(json.dumps(config))
    return KubernetesApi(Access(namespace="default", kubeconfig=str(path)))


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    """aron-muon/KubeCodeRun#72: the file is replaced in the middle of a run; the first refusal costs one retry, unseen
    by the caller, and the next call none."""
    async with faulty_api(tmp_path) as (fake, _):
        api = logged_in(tmp_path, fake.address, "old")
        fake.token = "old"
        await api.call("GET", PODS)
        fake.token = "new"
        (tmp_path / "token").write_text("new")
        await api.call("GET", PODS)
        await api.call("GET", PODS)
        assert (fake.lists, fake.refused) == (3, 1)
        await api.aclose()


async def test_a_token_that_stays_refused_is_tried_twice(tmp_path: Path) -> None:
    """Then the refusal is the caller's to know: no storm against the API server."""
    async with faulty_api(tmp_path) as (fake, _):
        api = logged_in(tmp_path, fake.address, "old")
        fake.token = "new"
        with pytest.raises(ApiRefused, match="401 Unauthorized"):
            await api.call("GET", PODS)
        assert fake.refused == 2
        await api.aclose()
