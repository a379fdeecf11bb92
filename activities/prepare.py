"""Binding at job start: code bundle, dependencies, secrets, environment and files, in one activity.

Whatever can be judged without a pod is judged before one is claimed.
"""

from contextlib import AsyncExitStack

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.calls import OpenCall, on_pod
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import CallOutput
from emberpool.activities.pools import Pools
from emberpool.activities.prepare_models import PrepareInput
from emberpool.pool.client.layers import place_layer, send_layer
from emberpool.pool.layers.python import PROBE, JobPython, read_probe
from emberpool.pool.layers.requirements import checked_requirements
from emberpool.pool.layers.source import LayerSource
from emberpool.pool.layers.store import Layer
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.secrets import SecretSource

PREPARE_S = 1200.0
"""What a preparation adds to its lease while it runs: packages are fetched, layers sent."""
PROBE_S = 30.0


class Preparing:
    """The activity `emberpool.prepare_job`. Every step of it may be repeated: layers are named by their content."""

    def __init__(self, pools: Pools, layers: LayerSource, secrets: SecretSource) -> None:
        self._pools, self._layers, self._secrets = pools, layers, secrets

    @activity.defn(name=names.PREPARE_JOB)
    async def prepare_job(self, call: PrepareInput) -> CallOutput:
        """Bind all of it for every later command of the sandbox.

        A requirement that cannot be resolved, a bundle that is another one, and a secret that is not there are
        InvalidInput, once.
        """
        with translated():
            async with heartbeating(self._pools.heartbeat_s, lambda: None), AsyncExitStack() as stack:
                pool = self._pools.get(call.ref.spec.profile)
                checked_requirements(call.requirements)
                self._secrets.values(call.secrets)  # looked up again when they are sent: held for no longer than that
                bundle = await stack.enter_async_context(self._layers.bundle(call.bundle)) if call.bundle else None

                async def prepare(open_call: OpenCall) -> None:
                    await self._prepare(open_call, call, bundle)

                answer = await on_pod(pool, call.ref, PREPARE_S, prepare)
            return CallOutput(
                step=answer.step,
                lease=answer.lease,
                first_scheduled=answer.first_scheduled,
                searchable=self._pools.searchable,
            )

    async def _prepare(self, to: OpenCall, call: PrepareInput, bundle: Layer | None) -> None:
        client, env = to.pool.client, dict(call.env)
        # Opens the pod, so that one that is gone is found before anything is fetched for it.
        await client.bind(to.pod, to.proof, {})
        if bundle is not None and call.bundle is not None:
            env["EMBERPOOL_BUNDLE"] = await send_layer(client, to.pod, to.proof, bundle, "bundle.url")
            if call.bundle.path:
                await place_layer(client, to.pod, to.proof, bundle, call.bundle.path)
        if call.requirements.strip():
            env |= await self._site(to, call)
        await client.bind(to.pod, to.proof, env | self._secrets.values(call.secrets), call.files)

    async def _site(self, to: OpenCall, call: PrepareInput) -> dict[str, str]:
        """The environment in which the packages can be imported, and their programs are found."""
        image = call.ref.spec.image or to.pool.profile.base_image
        python = await self._layers.python((to.pool.profile.name, image), lambda: self._probe(to))
        async with await self._layers.site(call.requirements, python) as layer:
            path = await send_layer(to.pool.client, to.pod, to.proof, layer, "requirements")
        search = [path, *([call.env["PYTHONPATH"]] if call.env.get("PYTHONPATH") else [])]
        programs = f"{path}/bin:{call.env.get('PATH') or python.path}"
        return {"EMBERPOOL_SITE": path, "PYTHONPATH": ":".join(search), "PATH": programs}

    async def _probe(self, to: OpenCall) -> JobPython:
        command = Command(argv=("python3", "-I", "-c", PROBE), time_limit_s=PROBE_S)
        # Not below the call's own id: who follows its command by that prefix must not find this one.
        probe = ExecutionId(f"python/{execution_id()}")
        return read_probe((await to.pool.client.run(to.pod, to.proof, probe, command)).stdout)
