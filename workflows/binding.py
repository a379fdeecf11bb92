"""Binding a sandbox at job start, from the workflow's side: one activity, whatever is bound."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from emberpool.activities import names
from emberpool.activities.models import CallOutput
from emberpool.activities.prepare_models import PrepareInput
from emberpool.pool.model.binding import Binding
from emberpool.pool.model.rollout import TextFile

if TYPE_CHECKING:
    from emberpool.workflows.sandbox import Sandbox

PREPARE = timedelta(minutes=20)
"""Longest preparation: packages are resolved and fetched by the first job that asks for them."""


async def prepare(
    sandbox: "Sandbox",
    binding: Binding,
    *,
    env: Mapping[str, str],
    files: Sequence[TextFile],
) -> None:
    """Bind code, dependencies and secrets, then environment and files.

    Raises:
        InvalidInput: something of it can never be had: a requirement that cannot be resolved, a bundle whose content is
            another, a secret that the worker does not have. The field is named.
    """
    await sandbox.invoke(
        names.PREPARE_JOB,
        lambda ref: PrepareInput(
            ref=ref,
            env=dict(env),
            files=tuple(files),
            bundle=binding.bundle,
            requirements=binding.requirements,
            secrets=binding.secrets,
        ),
        CallOutput,
        summary=_told(binding, len(files)),
        queue=sandbox.task_queue,  # it may take minutes, for which short work must not wait
        config={"start_to_close_timeout": PREPARE},
    )


async def bind_entered(sandbox: "Sandbox", binding: Binding) -> None:
    """Bind as a sandbox is entered; if that fails it is left, since its block never begins."""
    try:
        if not binding.empty:
            await sandbox.bind(binding=binding)
    except BaseException:
        await sandbox.close()
        raise


def bound_summary(paths: Sequence[str], variables: int) -> str:
    """What a bind brings, for people: the first files by name."""
    told = [path[:40] for path in paths[:3]]
    told += [f"{len(paths) - 3} more files"] if len(paths) > 3 else []
    told += [f"{variables} variable{'s' if variables > 1 else ''}"] if variables else []
    return f"bind: {', '.join(told) or 'nothing'}"


def _told(binding: Binding, files: int) -> str:
    """What is bound, for people; no value of a secret is known here."""
    told = [f"bundle {binding.bundle.sha256[:12]}"] if binding.bundle else []
    told += ["dependencies"] if binding.requirements.strip() else []
    told += [f"secrets {', '.join(binding.secrets)}"[:80]] if binding.secrets else []
    told += [f"{files} file{'s' if files > 1 else ''}"] if files else []
    return f"prepare: {', '.join(told)}"
