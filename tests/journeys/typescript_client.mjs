// The journey of test_clients.py with the TypeScript SDK: prints the diary of it as JSON.
//
//     node typescript_client.mjs COMMAND [ARGUMENT]…
//     node typescript_client.mjs URL
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.DYNAMIC_MCP_TEST_NODE_MODULES, "client.js"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const TEXT_OF_B = "dynamic-mcp://b/full%3A%2F%2Ftext";
const [command, ...args] = process.argv.slice(2);
const me = process.env.DYNAMIC_MCP_TEST_PERSON ?? "";
const client = new Client(
  { name: "typescript", version: "1" },
  { capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} } },
);

// --- what servers ask and say ---------------------------------------------------------------------------

client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => ({
  action: "accept",
  content: { answer: `${me}for ${params.message.split(" ")[0]}` },
}));
client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => ({
  role: "assistant",
  model: "m",
  content: { type: "text", text: `${me}sampled for ${params.messages[0].content.text.split(" ")[0]}` },
}));
client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: [{ uri: "file:///home", name: "home" }] }));

const heard = (schema) => new Promise((resolve) => client.setNotificationHandler(schema, ({ params }) => resolve(params)));
const logged = heard(types.LoggingMessageNotificationSchema);
const updated = heard(types.ResourceUpdatedNotificationSchema);

// --- the journey ----------------------------------------------------------------------------------------

const call = (group, name, args = {}, options = {}) =>
  client.callTool({ name: "call_dynamic_tool", arguments: { group, name, args } }, undefined, options);
const asked = async (group, tool) => JSON.parse((await call(group, tool)).content[0].text).result;

// The proxy is started, or it is reached at its URL.
const transport = () => {
  if (!command.startsWith("http")) return new StdioClientTransport({ command, args, env: { ...process.env } });
  return command.endsWith("/sse")
    ? new SSEClientTransport(new URL(command))
    : new StreamableHTTPClientTransport(new URL(command));
};
const connection = transport();
await client.connect(connection);
const diary = { tools: (await client.listTools()).tools.map((tool) => tool.name) };

const shown = await client.callTool({ name: "get_dynamic_tools", arguments: { group: "a" } });
diary.shown = JSON.parse(shown.content[0].text).tools.map((tool) => tool.name).slice(0, 3);
const plain = await call("b", "plain");
diary.content = plain.content.map((block) => block.type);
diary.structured = plain.structuredContent;

// a call that waits, and reports progress before it may end
diary.progress = [];
let reported = () => {};
const onprogress = ({ progress }) => reported(diary.progress.push(progress));
const report = () => new Promise((resolve) => (reported = resolve));
let next = report();
const waiting = call("a", "wait", { key: "k" }, { onprogress });
await next;
next = report();
await call("a", "step", { key: "k", step: 2 });
await next;
await call("a", "release", { key: "k" });
await waiting;

const elicited = await Promise.all([asked("a", "elicit"), asked("b", "elicit")]);
diary.elicited = { a: elicited[0].content.answer, b: elicited[1].content.answer };
diary.sampled = (await asked("b", "sample")).content.text;
diary.roots = (await asked("a", "roots")).roots[0].uri;
await client.setLoggingLevel("debug");
await call("a", "log", { level: "error", logger: "http" });
diary.logged = [(await logged).logger, (await logged).level];

const uris = (await client.listResources()).resources.map((resource) => resource.uri);
diary.resources = uris.filter((uri) => ["full://text", TEXT_OF_B].includes(uri));
diary.read = [];
for (const uri of ["full://text", TEXT_OF_B, "full://blob"]) {
  const [found] = (await client.readResource({ uri })).contents;
  diary.read.push(found.text ?? found.blob);
}
diary.templates = (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate).slice(0, 2);
await client.subscribeResource({ uri: TEXT_OF_B });
await call("b", "update", { uri: "full://text" });
diary.updated = (await updated).uri;
await client.unsubscribeResource({ uri: TEXT_OF_B });

const names = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
diary.prompts = names.filter((name) => name.endsWith("greet"));
const prompt = await client.getPrompt({ name: "a__greet", arguments: { city: "Köln" } });
diary.prompt = prompt.messages.map((message) => message.content.type);
const completed = await client.complete({
  ref: { type: "ref/prompt", name: "b__greet" },
  argument: { name: "city", value: "K" },
});
diary.completed = completed.completion.values;

await connection.terminateSession?.();
await client.close();
console.log(JSON.stringify(diary));
