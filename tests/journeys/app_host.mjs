// A host of MCP Apps, with the published packages in a browser: `node app_host.mjs PLAN` prints what it saw as JSON.
//
// The MCP client runs here, and the apps in frames of a page, as in a desktop program. `plan.mode` is the client's
// version negotiation, `plan.all` the command of a proxy of all groups, and `plan.one` of one group alone.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const plan = JSON.parse(readFileSync(process.argv[2]));
const modules = process.env.DYNAMIC_MCP_TEST_APPS;
const require = createRequire(join(modules, "host.js"));
const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
const { chromium } = require("playwright-core");
const { splitMCPAppTools } = await import(pathToFileURL(require.resolve("@ai-sdk/mcp")));
const esbuild = require("esbuild");
const STEP_WITHIN_MS = 30000;

// --- the page that shows apps ---------------------------------------------------------------------------

const PAGE = `
  import { AppBridge, PostMessageTransport, getToolUiResourceUri, isToolVisibilityAppOnly }
    from "@modelcontextprotocol/ext-apps/app-bridge";
  window.describe = (tools) => tools.map((tool) => ({
    name: tool.name, uri: getToolUiResourceUri(tool) ?? null, appOnly: isToolVisibilityAppOnly(tool),
  }));
  window.show = async (name, html, result) => {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.name = name;
    frame.setAttribute("sandbox", "allow-scripts");
    const bridge = new AppBridge(null, { name: "host", version: "1" }, { serverTools: {}, openLinks: {} });
    bridge.oncalltool = (params) => window.callTool(name, params);
    const isReady = new Promise((resolve) => { bridge.oninitialized = resolve; });
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.srcdoc = html;
    await isReady;
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(result);
  };
`;
const bundle = await esbuild.build({
  stdin: { contents: PAGE, resolveDir: modules, loader: "js" },
  bundle: true,
  format: "iife",
  write: false,
  logLevel: "error",
});

// --- the MCP client -------------------------------------------------------------------------------------

async function connect([command, ...args]) {
  const client = new Client(
    { name: "app-host", version: "1" },
    {
      capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } },
      versionNegotiation: { mode: plan.mode },
    },
  );
  await client.connect(new StdioClientTransport({ command, args, env: { ...process.env } }));
  return client;
}

const client = await connect(plan.all);

const browser = await chromium.launch({ executablePath: plan.browser, args: ["--no-sandbox"] });
const page = await browser.newPage();
const calls = []; // what each app called, and whether that worked
await page.exposeFunction("callTool", async (app, params) => {
  try {
    const result = await client.callTool(params);
    calls.push({ app, name: params.name, isError: result.isError ?? false });
    return result;
  } catch (error) {
    calls.push({ app, name: params.name, isError: true });
    throw error;
  }
});
await page.setContent("<body></body>");
await page.addScriptTag({ content: bundle.outputFiles[0].text });

// --- the journey ----------------------------------------------------------------------------------------

// Servers that are starting tell their tools later.
async function listAll() {
  const until = Date.now() + STEP_WITHIN_MS;
  for (;;) {
    const listed = await client.listTools({}, { cacheMode: "refresh" });
    if (listed.tools.length >= plan.tools || Date.now() > until) return listed;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
const listed = await listAll();
const tools = await page.evaluate((all) => window.describe(all), listed.tools);
const uriOf = (name) => tools.find((tool) => tool.name === name).uri;

async function open(name, tool) {
  const result = await client.callTool({ name: tool, arguments: {} });
  const { contents } = await client.readResource({ uri: uriOf(tool) });
  await page.evaluate((args) => window.show(...args), [name, contents[0].text, result]);
  const frame = await (await page.$(`iframe[name="${name}"]`)).contentFrame();
  return { frame, uri: contents[0].uri, mimeType: contents[0].mimeType };
}

// What an app's page sends to its host, whatever its own code would send.
const forge = (frame, name) =>
  frame.evaluate(
    (tool) =>
      new Promise((resolve) => {
        window.addEventListener("message", ({ data }) => data.id === "forged" && resolve(data.error ?? data.result));
        const params = { name: tool, arguments: {} };
        window.parent.postMessage({ jsonrpc: "2.0", id: "forged", method: "tools/call", params }, "*");
      }),
    name,
  );
const called = async (app, name) => {
  const until = Date.now() + STEP_WITHIN_MS;
  while (!calls.some((each) => each.app === app && each.name === name)) {
    if (Date.now() > until) throw new Error(`${app} has not called ${name}: ${JSON.stringify(calls)}`);
    await page.waitForTimeout(50);
  }
  return calls.find((each) => each.app === app && each.name === name);
};

const { modelVisible } = splitMCPAppTools(listed);
const diary = { revision: client.getNegotiatedProtocolVersion(), tools };
diary.toolsOfModel = modelVisible.tools.map((tool) => tool.name);
const search = await client.callTool({ name: "get_dynamic_tools", arguments: { group: "monitor" } });
diary.found = JSON.parse(search.content[0].text).tools.map((tool) => tool.name);

const home = await open("home", "home__get-time");
diary.home = { uri: home.uri, mimeType: home.mimeType };
await home.frame.waitForFunction(() => document.getElementById("server-time").textContent !== "Loading...");
const before = await home.frame.textContent("#server-time");
await home.frame.click("#get-time-btn");
diary.home.call = await called("home", "get-time");
await home.frame.waitForFunction((text) => document.getElementById("server-time").textContent !== text, before);

diary.stolen = await forge(home.frame, "poll-system-stats");
diary.stolenByListedName = await forge(home.frame, "monitor__poll-system-stats");

const monitor = await open("monitor", "monitor__get-system-info");
diary.monitor = { uri: monitor.uri };
await monitor.frame.click("#poll-toggle-btn").catch(() => {});
diary.monitor.call = await called("monitor", "poll-system-stats");
await monitor.frame.waitForFunction(() => document.getElementById("memory-percent").textContent !== "--%");
diary.monitor.hostname = await monitor.frame.textContent("#info-hostname");

const work = await open("work", "work__get-time");
diary.work = { uri: work.uri };

const one = await connect(plan.one);
diary.one = (await one.listTools()).tools.map((tool) => [tool.name, tool._meta.ui]);
diary.oneRefuses = await one.callTool({ name: "get-time", arguments: {} }).then(
  (result) => result.isError,
  (error) => error.code,
);
await one.close();

if (plan.picture) await page.screenshot({ path: plan.picture, fullPage: true });

await browser.close();
await client.close();
console.log(JSON.stringify(diary));
