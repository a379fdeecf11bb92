"""The pages: settings, profiles, errors, metrics, schemas."""

import inspect

from emberpool.activities.measures import MEASURES
from emberpool.pool.model import errors, profile
from emberpool.pool.model.kubernetes import KubernetesPods
from emberpool.pool.model.profile import Limits, Profile
from emberpool.worker.schema import SCHEMAS, descriptions
from emberpool.worker.settings import Settings
from reference.markdown import HEAD, code, one_line, table
from reference.models import enumerations, fields, members, summary


def settings() -> str:
    """Each variable of a worker."""
    told = descriptions(Settings)
    rows = [
        (code(f"EMBERPOOL_{name.upper()}"), "" if field.default is None else code(str(field.default)), told[name])
        for name, field in Settings.model_fields.items()
    ]
    return (
        f"{HEAD}# Settings\n\nA worker reads these variables, or takes `Settings(...)` in code, fields in lower case "
        "without the prefix. Temporal's address, namespace, TLS and key come from Temporal's own variables "
        "(`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, ...) and its configuration file. A wrong value is told with the "
        f"variable's name, and nothing starts.\n\n{table(('variable', 'default', 'meaning'), rows)}"
    )


def profiles() -> str:
    """Fields of a profile."""
    parts = [
        f"{HEAD}# Profiles\n\n{summary(Profile)} Written as YAML, one profile or a list; "
        "`emberpool profile check FILE` names what is wrong.\n\n",
        fields(Profile),
        f"\n## limits\n\n{summary(Limits)}\n\n",
        fields(Limits, "limits."),
        f"\n## kubernetes\n\n{summary(KubernetesPods)}\n\n",
        fields(KubernetesPods, "kubernetes."),
    ]
    for kind in enumerations(Profile):
        told = descriptions(kind)
        parts.append(f"\n## {kind.__name__}\n\n{summary(kind)}\n\n{members(kind, dict(told))}")
    return "".join(parts) + f"\nA name matches `{profile.NAME.pattern}`.\n"


def typed_errors() -> list[type[errors.EmberpoolError]]:
    """Every error that emberpool raises at its callers, in the order of their module."""
    found = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.EmberpoolError)]
    return [one for one in found if one is not errors.EmberpoolError]


def error_reference() -> str:
    """Each typed error with fields and remedy."""
    parts = [
        f"{HEAD}# Errors\n\nThe name crosses Temporal as the `type` of an ApplicationError, the fields as its details. "
        "What to look at, error by error: [Troubleshoot](../how-to/troubleshoot.md).\n"
    ]
    for kind in typed_errors():
        own = list(inspect.signature(kind.__init__).parameters)[1:] if inspect.isfunction(kind.__init__) else []
        about = "\n\n".join(one_line(part) for part in (inspect.getdoc(kind) or "").split("\n\n"))
        parts.append(
            f"\n## {kind.__name__}\n\n{about}\n\n"
            f"- fields: {', '.join(code(name) for name in own) or 'none'}\n"
            f"- the same call may succeed later: {'yes' if kind.retryable else 'no'}\n"
            f"- remedy: {kind.remedy}\n"
        )
    return "".join(parts)


def metrics() -> str:
    """Each metric."""
    rows = [
        (
            code(one.name),
            one.kind.value,
            ", ".join(code(label) for label in one.labels),
            one.help + (" Counted by workflows, with the SDK's labels besides." if one.from_workflow else ""),
        )
        for one in MEASURES
    ]
    return (
        f"{HEAD}# Metrics\n\nServed at `/metrics` of `EMBERPOOL_METRICS_ADDRESS`, beside those of Temporal's SDK. "
        "How to use them: [Operate](../operating.md#measure).\n\n"
        f"{table(('metric', 'kind', 'labels', 'meaning'), rows)}"
    )


def schemas() -> str:
    """Each JSON schema, with the file."""
    rows = [(f"[{name}](../schema/{name}.json)", purpose) for name, (_, purpose) in SCHEMAS.items()]
    return (
        f"{HEAD}# JSON schemas\n\n`emberpool schema NAME` prints each of them; all are draft 2020-12.\n\n"
        f"{table(('schema', 'of'), rows)}"
    )
