// The journey of era_journey.py with either TypeScript SDK: `node era_client.mjs PLAN`.
//
// The mode is `sdk` for `@modelcontextprotocol/sdk`; `auto` and `legacy` are for `@modelcontextprotocol/client`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const plan = JSON.parse(readFileSync(process.argv[2]));
const require = createRequire(join(process.env.DYNAMIC_MCP_TEST_NODE_MODULES, "client.js"));
const isOlder = plan.mode === "sdk";
const { Client, ...rest } = require(isOlder ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
const { StdioClientTransport } = require(isOlder ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio");
const { StreamableHTTPClientTransport } = isOlder ? require("@modelcontextprotocol/sdk/client/streamableHttp.js") : rest;
const types = isOlder ? require("@modelcontextprotocol/sdk/types.js") : {};
const STEP_WITHIN_MS = 15000;
const me = plan.me;

class Queue {
  items = [];
  takers = [];
  put(item) {
    this.takers.length ? this.takers.shift()(item) : this.items.push(item);
  }
  get() {
    return this.items.length ? Promise.resolve(this.items.shift()) : new Promise((take) => this.takers.push(take));
  }
}

function connect() {
  const logged = new Queue();
  const updated = new Queue();
  const changed = new Queue();
  const client = new Client(
    { name: me, version: "1" },
    {
      capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} },
      ...(isOlder ? {} : { versionNegotiation: { mode: plan.mode } }),
    },
  );
  const handle = (method, schema, answer) => client.setRequestHandler(isOlder ? types[schema] : method, answer);
  const hear = (method, schema, take) => client.setNotificationHandler(isOlder ? types[schema] : method, take);
  handle("elicitation/create", "ElicitRequestSchema", () => ({ action: "accept", content: { answer: me, name: me } }));
  handle("sampling/createMessage", "CreateMessageRequestSchema", () => ({
    role: "assistant",
    model: "m",
    content: { type: "text", text: me },
  }));
  handle("roots/list", "ListRootsRequestSchema", () => ({ roots: [{ uri: "file:///home", name: me }] }));
  hear("notifications/message", "LoggingMessageNotificationSchema", ({ params }) => logged.put(params));
  hear("notifications/resources/updated", "ResourceUpdatedNotificationSchema", ({ params }) => updated.put(params.uri));
  hear("notifications/prompts/list_changed", "PromptListChangedNotificationSchema", () => changed.put("prompts"));
  return { client, logged, updated, changed, progress: new Queue() };
}

// This SDK forgets who hears progress with the answer, also of what came before it: so it is heard on its way in.
function hearProgress(transport, progress) {
  const take = transport.onmessage;
  transport.onmessage = (message, extra) => {
    if (message.method === "notifications/progress") progress.put(message.params.progress);
    take(message, extra);
  };
}

const transportTo = (target) =>
  typeof target === "string"
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: { ...process.env }, stderr: "ignore" });
const textOf = (result) => result.content[0].text;

function stepsOf({ client, logged, updated, changed, progress }, words) {
  const isModern = !isOlder && client.getProtocolEra() === "modern";
  const wantsLogs = isModern ? { _meta: { "io.modelcontextprotocol/logLevel": "debug" } } : {};
  const callTool = (params, options = {}) =>
    isOlder ? client.callTool(params, undefined, options) : client.callTool(params, options);
  const named = ([name, args]) =>
    words.group
      ? { name: "call_dynamic_tool", arguments: { group: words.group, name, args } }
      : { name, arguments: args };
  const call = (step, options, more = {}) => callTool({ ...named(words[step]), ...more }, options);
  const promptName = words.group ? `${words.group}__${words.prompt[0]}` : words.prompt[0];
  const asked = (step) => async () => textOf(await call(step)).includes(me);
  const listening = async (uri, then) => {
    let stop = async () => {};
    if (isModern) {
      const subscription = await client.listen(uri ? { resourceSubscriptions: [uri] } : { promptsListChanged: true });
      stop = () => subscription.close();
    } else if (uri) {
      await client.subscribeResource({ uri });
      stop = () => client.unsubscribeResource({ uri });
    }
    const found = await then();
    await stop();
    return found;
  };
  return {
    tools: async () => {
      const wanted = ["echo", "elicit", "progress"].map((step) => words[step][0]);
      const tools = words.group
        ? JSON.parse(textOf(await callTool({ name: "get_dynamic_tools", arguments: { group: words.group } }))).tools
        : (await client.listTools()).tools;
      return wanted.filter((name) => tools.some((tool) => tool.name === name));
    },
    echo: async () => textOf(await call("echo")),
    content: async () => (await call("content")).content.map((block) => block.type),
    failed: async () => (await call("fail")).isError,
    progress: async () => {
      progress.items.length = 0;
      await call("progress", { onprogress: () => {} });
      return [await progress.get(), await progress.get(), await progress.get()];
    },
    logged: async () => {
      logged.items.length = 0; // of earlier journeys
      if (!isModern) await client.setLoggingLevel("debug");
      await call("log", {}, wantsLogs);
      const { level, logger } = await logged.get();
      return [level, String(logger).split("/").at(-1)];
    },
    elicited: asked("elicit"),
    sampled: asked("sample"),
    roots: asked("roots"),
    resources: async () => {
      const [first] = (await client.readResource({ uri: words.resource })).contents;
      const hasTemplates = (await client.listResourceTemplates()).resourceTemplates.length > 0;
      const uris = (await client.listResources()).resources.map(({ uri }) => uri);
      return [uris.includes(words.resource), first.text, hasTemplates];
    },
    prompts: async () => {
      const got = await client.getPrompt({ name: promptName, arguments: words.prompt[1] });
      const names = (await client.listPrompts()).prompts.map(({ name }) => name);
      return [names.includes(promptName), got.messages[0].content.text];
    },
    completed: async () => {
      const [name, value] = words.complete;
      const ref = { type: "ref/prompt", name: promptName };
      return (await client.complete({ ref, argument: { name, value } })).completion.values;
    },
    updated: () =>
      listening(words.resource, async () => {
        await call("update");
        while ((await updated.get()) !== words.resource); // of an earlier journey, as others may update that too
        return true;
      }),
    changed: () =>
      listening("", async () => {
        await call("change");
        return await changed.get();
      }),
    cancelled: async () => {
      const stop = new AbortController();
      const waiting = call("wait", { onprogress: () => stop.abort("enough"), signal: stop.signal });
      await waiting.catch(() => {});
      while (!textOf(await call("cancelled")).includes(words.cancelled[2])) await pause(50);
      return true;
    },
  };
}

async function within(step) {
  const late = new AbortController();
  const alarm = pause(STEP_WITHIN_MS, undefined, { signal: late.signal }).then(() => {
    throw new Error("it took too long");
  });
  try {
    return await Promise.race([step(), alarm]);
  } catch (error) {
    return `${error.name}: ${error.message}`.slice(0, 300);
  } finally {
    alarm.catch(() => {});
    late.abort();
  }
}

async function travel({ target, walks }) {
  const peer = connect();
  const transport = transportTo(target);
  const diaries = {};
  try {
    await peer.client.connect(transport);
    hearProgress(transport, peer.progress);
  } catch (error) {
    for (const cell of Object.keys(walks)) diaries[cell] = { connected: `${error.name}: ${error.message}`.slice(0, 300) };
    return diaries;
  }
  const revision = isOlder ? "2025-11-25" : peer.client.getNegotiatedProtocolVersion();
  for (const [cell, words] of Object.entries(walks)) {
    diaries[cell] = { revision };
    for (const [name, step] of Object.entries(stepsOf(peer, words))) diaries[cell][name] = await within(step);
  }
  if (typeof target === "string") await transport.terminateSession?.().catch(() => {});
  await peer.client.close();
  return diaries;
}

const all = {};
for (const connection of plan.connections) Object.assign(all, await travel(connection));
console.log(JSON.stringify(all));
process.exit(0);
