"""The scripted model as a model of the OpenAI Agents SDK. Put your own provider in its place."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

from agents import Model, ModelProvider, ModelResponse, Tool, TResponseInputItem
from agents.items import TResponseStreamEvent
from scripted import Answer, Run, Write, decide
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders


class ScriptedModel(Model):
    """Answers with one tool call at a time."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: Any,
        tools: list[Tool],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else cast(list[dict[str, Any]], input)
        asked = next(str(item["content"]) for item in items if item.get("role") == "user")
        outputs = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
        step = decide(asked, outputs)
        by_activity = any(tool.name == "sandbox_bash" for tool in tools)
        call_id = f"call_{len(outputs)}"
        match step:
            case Answer():
                return ResponseBuilders.output_message(step.text)
            case Run():
                name, arguments = "sandbox_bash" if by_activity else "bash", {"command": step.command}
            case Write():
                file = {"path": step.path, "text": step.text}
                name = "sandbox_write" if by_activity else "write_file"
                arguments = {"file_json": json.dumps(file)} if by_activity else file
        return ResponseBuilders.tool_call(json.dumps(arguments), name, call_id=call_id, item_id=call_id)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("the example does not stream")


class ScriptedProvider(ModelProvider):
    """Knows one model."""

    def get_model(self, model_name: str | None) -> Model:
        return ScriptedModel()


def openai_plugin() -> OpenAIAgentsPlugin:
    """Temporal's plugin for the SDK. List it before EmberpoolPlugin."""
    params = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30))
    return OpenAIAgentsPlugin(model_params=params, model_provider=ScriptedProvider())
