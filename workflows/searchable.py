"""Search attributes: how a person finds a workflow by caller, profile, image, source and outcome.

Opt-in, since setting one that the namespace does not have would fail the workflow's task for ever. The worker that
answers a sandbox's call says whether they are registered; its answer is in the history, so a replay decides alike.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from emberpool.activities import names
from emberpool.workflows.sandbox import Sandbox

KEYWORD_LENGTH = 255
"""Longest keyword that every visibility store of Temporal takes."""


def make_searchable(sandbox: Sandbox, outcome: str = "") -> None:
    """Write what is known of this workflow's sandbox, and how it ended if it has; nothing where it is not wanted."""
    if not sandbox.searchable:
        return
    spec, lease = sandbox.ref.spec, sandbox.lease
    known = {
        names.SEARCH_CALLER: spec.caller,
        names.SEARCH_PROFILE: spec.profile,
        names.SEARCH_IMAGE: spec.image,
        names.SEARCH_SOURCE: lease.source.value if lease is not None else "",
        names.SEARCH_OUTCOME: outcome,
    }
    _upsert(known)


def make_batch_searchable(caller: str, profile: str) -> None:
    """Write whose batch this workflow is, once a worker has said that the namespace has the attributes."""
    _upsert({names.SEARCH_CALLER: caller, names.SEARCH_PROFILE: profile})


def _upsert(known: Mapping[str, str]) -> None:
    updates: list[SearchAttributeUpdate[Any]] = [_update(name, value) for name, value in known.items() if value]
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]


def _update(name: str, value: str) -> SearchAttributeUpdate[Any]:
    return SearchAttributeKey.for_keyword(name).value_set(value[:KEYWORD_LENGTH])
