"""The integrations that the package ships, with the real packages and no model."""

import asyncio
import json

from check import Differs, has, main, operation, same

from podflare import Sandbox

GROUP = "Integrations"


@operation(GROUP, "OpenAI Agents: podflare_code_interpreter()")
def openai_agents():
    from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from podflare.integrations.openai_agents import podflare_code_interpreter

    set_tracing_disabled(True)

    class Scripted(Model):
        """Calls the tool twice and answers with what came back."""

        def __init__(self):
            self.seen = []

        async def get_response(self, *args, **kwargs):
            items = kwargs.get("input", args[1] if len(args) > 1 else [])
            tools = kwargs.get("tools", args[3] if len(args) > 3 else [])
            self.tools = [t.name for t in tools]
            self.seen = [i["output"] for i in items if isinstance(i, dict) and i.get("type") == "function_call_output"]
            steps = [{"code": "x = 111 * 111"}, {"code": "print(x)"}, {"code": "echo $0; exit 3", "language": "bash"}]
            if len(self.seen) < len(steps):
                n = len(self.seen)
                output = [ResponseFunctionToolCall(call_id=f"call_{n}", name="run_code", arguments=json.dumps(steps[n]), type="function_call")]
            else:
                text = ResponseOutputText(text="done", annotations=[], type="output_text")
                output = [ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    tool, model = podflare_code_interpreter(), Scripted()
    agent = Agent(name="assistant", instructions="Use the run_code tool.", tools=[tool], model=model)
    result = asyncio.run(Runner.run(agent, "what is 111 * 111?"))
    tool.close_podflare_sandbox()
    same((result.final_output, model.tools), ("done", ["run_code"]))
    has(model.seen[1], "12321")
    has(model.seen[2], "'exit_code': 3")


@operation(GROUP, "Anthropic: handle_code_execution_tool_use()")
def anthropic():
    from anthropic.types import Message, ToolResultBlockParam
    from pydantic import TypeAdapter

    from podflare.integrations.anthropic import handle_code_execution_tool_use

    def turn(id, code):
        return Message.model_validate({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "none", "stop_reason": "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [{"type": "text", "text": "let me see"}, {"type": "tool_use", "id": id, "name": "code_execution", "input": {"code": code}}],
        })

    with Sandbox() as s:
        results = []
        for i, code in enumerate(["y = 5", "print(y ** 2)", "1/0"]):
            message = turn(f"toolu_{i}", code)
            results += [handle_code_execution_tool_use(b, s) for b in message.content if b.type == "tool_use" and b.name == "code_execution"]
        for r in results:
            TypeAdapter(ToolResultBlockParam).validate_python(r)
        same([(r["tool_use_id"], r["is_error"]) for r in results], [("toolu_0", False), ("toolu_1", False), ("toolu_2", True)])
        same(results[1]["content"], [{"type": "text", "text": "stdout:\n25\nstderr:\n\nexit_code: 0"}])
        has(results[2]["content"][0]["text"], "ZeroDivisionError")
        plain = {"type": "tool_use", "id": "toolu_9", "name": "code_execution", "input": {"code": "print(y)"}}
        has(handle_code_execution_tool_use(plain, s)["content"][0]["text"], "stdout:\n5\n")


@operation(GROUP, "LangChain: PodflareTool()")
def langchain():
    from langchain_core.messages import ToolMessage

    from podflare.langchain import PodflareTool

    tool = PodflareTool()
    same(set(tool.args), {"code", "language"})
    same(tool.invoke({"code": "z = 6"}), "stdout:\n\nstderr:\n\nexit_code: 0")
    same(tool.invoke({"code": "print(z * 7)"}), "stdout:\n42\nstderr:\n\nexit_code: 0")
    message = tool.invoke({"type": "tool_call", "id": "call_1", "name": "run_code", "args": {"code": "echo hi", "language": "bash"}})
    same((type(message), message.tool_call_id, message.content), (ToolMessage, "call_1", "stdout:\nhi\nstderr:\n\nexit_code: 0"))
    same(asyncio.run(tool.ainvoke({"code": "print(z)"})), "stdout:\n6\nstderr:\n\nexit_code: 0")
    tool.close()
    fresh = PodflareTool(persistent_sandbox=False)
    fresh.invoke({"code": "z = 6"})
    has(fresh.invoke({"code": "print(z)"}), "NameError")


@operation(GROUP, "Gemini: podflare_function_declaration(), run_function_call()")
def gemini():
    from google.genai import types

    from podflare.gemini import podflare_function_declaration, run_function_call

    tool = types.Tool(function_declarations=[podflare_function_declaration()])
    same(tool.function_declarations[0].name, "run_code")
    with Sandbox() as s:
        call = types.FunctionCall(name="run_code", args={"code": "print(2 ** 10)"})
        response = run_function_call(call, s)
        same(response, {"stdout": "1024", "stderr": "", "exit_code": 0})
        part = types.Part.from_function_response(name=call.name, response=response)
        same(part.function_response.response["stdout"], "1024")
        same(run_function_call({"name": "run_code", "args": {"code": "exit 2", "language": "bash"}}, s)["exit_code"], 2)
        has(run_function_call({"name": "other", "args": {}}, s)["error"], "unexpected function name")


main()
