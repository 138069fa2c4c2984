// The official TypeScript clients against a server: the SDK's own, and the requester of the tasks extension.
//
// node typescript_client.mjs URL
//
// Prints one JSON object: what each step of the story gave.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  taskViewFromExecutionEvent,
} from "@modelcontextprotocol/ext-tasks/client";

const REVISION = "2026-07-28";
const url = process.argv[2];
const clientInfo = { name: "typescript-interop", version: "1.0.0" };
const capabilities = { elicitation: {} };
const exchanges = [];
let lastId = 10_000;

// The SDK's codecs reject what the extension adds, so the extension asks its host for a way of its own to the server.
async function rawDispatch(request, options = {}) {
  const id = ++lastId;
  const params = request.params ?? {};
  const name = params.taskId ?? params.name;
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": REVISION,
      "Mcp-Method": request.method,
      ...(name === undefined ? {} : { "Mcp-Name": name }),
      ...options.context?.headers,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, ...request }),
    signal: options.signal,
  });
  const message = answerTo(id, response.headers.get("content-type") ?? "", await response.text());
  exchanges.push({ method: request.method, status: response.status });
  return message.error === undefined
    ? { kind: "result", result: message.result }
    : { kind: "error", error: message.error };
}

function answerTo(id, contentType, body) {
  const texts = contentType.startsWith("text/event-stream")
    ? body.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice("data:".length))
    : [body];
  const message = texts.map((text) => JSON.parse(text)).find((found) => found.id === id);
  if (message === undefined) throw new Error(`no answer to ${id} in ${contentType}: ${body}`);
  return message;
}

const asked = [];
const onInputRequest = createApplicationInputHandler({
  elicitation: (request, context) => {
    asked.push({ scope: context.scope, delivery: context.delivery, message: request.params.message });
    const answers = { name: "Ada", confirm: true };
    const wanted = Object.keys(request.params.requestedSchema.properties);
    return { action: "accept", content: Object.fromEntries(wanted.map((key) => [key, answers[key]])) };
  },
  sampling: () => { throw new Error("nobody may ask for sampling: it was not declared"); },
  roots: () => { throw new Error("nobody may ask for roots: they were not declared"); },
});

async function follow(execution) {
  const statuses = [];
  const { outcome, lastTask } = await execution.settle({
    onEvent: (event) => {
      const view = taskViewFromExecutionEvent(event);
      if (view !== undefined && view.status !== statuses.at(-1)) statuses.push(view.status);
    },
  });
  return { kind: execution.kind, statuses, outcome, last: lastTask?.status };
}

const text = (outcome) => resultFromTaskOutcome(outcome).content[0].text;

async function ordinary(client) {
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const image = await client.callTool({ name: "test_image_content" });
  const greeted = await client.callTool({ name: "test_input_required_result_elicitation" });
  const prompt = await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } });
  const read = await client.readResource({ uri: "test://template/123/data" });
  const progress = [];
  await client.callTool(
    { name: "test_tool_with_progress" },
    { onprogress: (report) => progress.push(report.progress) },
  );
  return {
    era: client.getProtocolEra(),
    first: tools[0],
    image: image.content[0].mimeType,
    greeted: greeted.content[0].text,
    prompt: prompt.messages[0].content.text,
    read: read.contents[0].text,
    progress,
  };
}

async function finished(session) {
  const { kind, statuses, outcome } = await follow(await session.callTool("slow_compute", { seconds: 0.5, label: "sum" }));
  return { kind, statuses, text: text(outcome) };
}

async function immediate(session) {
  const { kind, outcome } = await follow(await session.callTool("greet", { name: "Ada" }));
  return { kind, text: text(outcome) };
}

async function answered(session) {
  const before = asked.length;
  const { kind, statuses, outcome } = await follow(await session.callTool("confirm_delete", { filename: "a.txt" }));
  return { kind, statuses, text: text(outcome), asked: asked.slice(before) };
}

async function answeredTogether(session) {
  const before = asked.length;
  const { outcome } = await follow(await session.callTool("multi_input", {}));
  return { text: text(outcome), asked: asked.slice(before).map((each) => each.message).sort() };
}

async function answeredBefore(session) {
  const before = asked.length;
  const { kind, outcome } = await follow(await session.callTool("test_tool_with_task", {}));
  return { kind, text: text(outcome), asked: asked.slice(before) };
}

async function cancelled(session) {
  const execution = await session.callTool("slow_compute", { seconds: 60 });
  const { taskId } = execution.handle;
  await execution.cancel();
  const { outcome } = await follow(execution);
  let view = await session.task(taskId).snapshot();
  for (let polls = 0; view.status === "working" && polls < 100; polls += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    view = await session.task(taskId).snapshot();
  }
  return { outcome: outcome.status, status: view.status };
}

async function failed(session) {
  const asTool = await follow(await session.callTool("failing_job", {}));
  const asRequest = await follow(await session.callTool("protocol_error_job", {}));
  return {
    tool: { status: asTool.outcome.status, isError: asTool.outcome.result.isError },
    request: { status: asRequest.outcome.status, code: asRequest.outcome.error.code },
  };
}

// Handed over by one session, as to a file, and followed by another: a process that starts anew does the same.
async function resumed(session) {
  const execution = await session.callTool("slow_compute", { seconds: 0.5, label: "later" });
  let reference;
  await execution.handoff((given) => { reference = JSON.stringify(given); });
  const other = await connect();
  const { outcome } = await follow(await other.session.resumeTask(JSON.parse(reference)));
  await other.close();
  return { generation: JSON.parse(reference).generation, text: text(outcome) };
}

async function unknown(session) {
  try {
    await session.task("nobody's").snapshot();
  } catch (error) {
    return { code: error.code };
  }
  throw new Error("a task that never was has been found");
}

async function connect() {
  const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: REVISION } } });
  client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { name: "Ada" } }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const session = createTaskSessionFromClient(client, {
    endpointId: "conformance-fixture",
    onInputRequest,
    rawDispatch,
    v2RequestFraming: { protocolVersion: REVISION, clientInfo, clientCapabilities: capabilities },
  });
  const close = async () => { await session.close(); await client.close(); };
  return { client, session, close };
}

const { client, session, close } = await connect();
const story = { ordinary: await ordinary(client) };
for (const step of [
  finished, immediate, answered, answeredTogether, answeredBefore, cancelled, failed, resumed, unknown,
]) {
  story[step.name] = await step(session);
}
await close();
story.polls = exchanges.filter((exchange) => exchange.method === "tasks/get").length;
story.statuses = [...new Set(exchanges.map((exchange) => exchange.status))].sort();
console.log(JSON.stringify(story, null, 1));
