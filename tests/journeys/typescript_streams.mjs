// What only clients over HTTP meet, with the TypeScript SDK: one server alone, whose connections are cut meanwhile.
// Prints what was seen as JSON.
//
//     node typescript_streams.mjs URL
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";

const require = createRequire(join(process.env.DYNAMIC_MCP_TEST_NODE_MODULES, "client.js"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const url = new URL(process.argv[2]);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: {} });
const connection = new StreamableHTTPClientTransport(url);
const call = (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, options);
const seen = {};

let changed = () => {};
client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => changed());
await client.connect(connection);
await call("add", { list: "tools", entry: { name: "new", inputSchema: { type: "object" } } });
do {
  const change = new Promise((resolve) => (changed = resolve));
  seen.added = (await client.listTools()).tools.some((tool) => tool.name === "new");
  if (!seen.added) await change;
} while (!seen.added);

// a call that reports progress, and waits
const progress = [];
let reported = () => {};
const report = () => new Promise((resolve) => (reported = resolve));
const onprogress = (each) => reported(progress.push(each.progress));

// is given up
const abort = new AbortController();
let next = report();
const given_up = call("wait", { key: "c" }, { onprogress, signal: abort.signal }).catch(() => "cancelled");
await next;
abort.abort("enough");
seen.cancelled = await given_up;
// the request that cancels and the next one have connections of their own: neither waits for the other
while (!(await call("record")).content[0].text.includes("notifications/cancelled")) await setTimeout(10);
seen.released = (await call("release", { key: "c" })).content[0].text;

// goes on, though its connection does not
progress.length = 0;
next = report();
const waiting = call("wait", { key: "k" }, { onprogress });
await next;
await fetch(new URL("/cut", url));
await call("step", { key: "k", step: 2 });
await call("release", { key: "k" });
seen.resumed = (await waiting).content[0].text;
seen.progress = progress;

await connection.terminateSession();
await client.close();
seen.ended = await fetch(new URL("/ready", url)).then((ready) => ready.json()).then((ready) => ready.sessions);
console.log(JSON.stringify(seen));
