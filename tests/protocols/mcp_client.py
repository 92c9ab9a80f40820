"""Use a host as an assistant does: `mcp_client.py URL CAMPANILE VIEWER.json OPERATOR.json`."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

url, campanile, *files = sys.argv[1:]


def secret(file):
    with open(file, encoding="utf-8") as opened:
        return json.load(opened)["secret"]


viewer, operator = map(secret, files)


async def call(session, tool, **arguments):
    """Return whether the call failed, and its JSON."""
    result = await session.call_tool(tool, arguments)
    return result.is_error, json.loads(result.content[0].text)


async def names(session):
    return {tool.name for tool in (await session.list_tools()).tools}


async def over_http(token, use):
    headers = {"Authorization": f"Bearer {token}"}
    async with create_mcp_http_client(headers=headers) as client:
        async with streamable_http_client(url, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                begun = await session.initialize()
                assert begun.server_info.name == "campanile", begun
                return await use(session)


async def over_stdio(token, use):
    server = StdioServerParameters(
        command=campanile,
        args=["mcp", "--server", url.removesuffix("/mcp"), "--role", "operator"],
        env={**os.environ, "CAMPANILE_TOKEN": token},
    )
    async with stdio_client(server) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            return await use(session)


async def as_viewer(session):
    tools = await names(session)
    assert "why" in tools and "pause_schedule" not in tools, tools
    failed, schedules = await call(session, "list_schedules")
    assert not failed and [row["name"] for row in schedules] == ["fail_permanent", "ok"], schedules
    for tool, arguments in [
        ("why", {"schedule": "ok"}),
        ("show_schedule", {"schedule": "ok"}),
        ("list_launches", {"limit": 5}),
        ("plan", {}),
        ("list_events", {}),
        ("health", {}),
    ]:
        failed, answer = await call(session, tool, **arguments)
        assert not failed, (tool, answer)
    for tool in ["trigger_schedule", "pause_schedule", "resume_schedule"]:
        failed, error = await call(session, tool, schedule="ok")
        assert failed and error["code"] == "refused", (tool, error)
        assert "the token viewer has the role viewer" in error["error"], error


async def as_operator(session):
    tools = await names(session)
    assert {"why", "pause_schedule"} <= tools, tools
    failed, launched = await call(session, "trigger_schedule", schedule="ok")
    assert not failed and launched["decision"] == "launched", launched
    for _ in range(300):
        failed, launch = await call(session, "show_launch", id=launched["launch"])
        assert not failed, launch
        if launch["finished_at"]:
            break
        await asyncio.sleep(0.1)
    assert launch["status"] == "succeeded", launch
    for tool in ["show_run", "run_logs"]:
        failed, answer = await call(session, tool, id=launched["launch"])
        assert not failed, (tool, answer)
    failed, paused = await call(session, "pause_schedule", schedule="ok", note="a full disk")
    assert not failed and paused["done"] == "paused", paused
    failed, resumed = await call(session, "resume_schedule", schedule="ok")
    assert not failed and resumed["done"] == "resumed", resumed
    failed, error = await call(session, "cancel_launch", id=launched["launch"])
    assert failed and error["code"] == "conflict", error


async def main():
    await over_http(viewer, as_viewer)
    await over_http(operator, as_operator)
    await over_stdio(operator, as_operator)
    try:
        await over_http("cmp_" + "A" * 43, as_viewer)
    except BaseException as error:
        print(f"a wrong token: {type(error).__name__}")
    else:
        sys.exit("a wrong token was accepted")


asyncio.run(main())
print("the published client of the Model Context Protocol used the host over HTTP and over stdio")
