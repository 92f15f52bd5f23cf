// Logs in with the TypeScript SDK, calls a tool, and refreshes its tokens. Prints what was seen as JSON.
//
//     node typescript_login.mjs URL USER [DOCUMENT]
//
// USER is whom a reverse proxy would name; DOCUMENT the URL of the client's document, without which it registers.
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.DYNAMIC_MCP_TEST_NODE_MODULES, "client.js"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { UnauthorizedError } = require("@modelcontextprotocol/sdk/client/auth.js");

const [url, user, document] = process.argv.slice(2);
const redirectUrl = "http://localhost:3030/callback";
const kept = {};
const seen = { logins: 0, registrations: 0 };

// a browser, and the person who presses the button
async function allow(from) {
  seen.logins += 1;
  const page = await (await fetch(from, { headers: { "x-forwarded-user": user } })).text();
  const fields = [...page.matchAll(/name="(\w+)" value="([^"]*)"/g)].map((found) => [found[1], found[2]]);
  const form = new URLSearchParams([...fields.filter(([name]) => name !== "decision"), ["decision", "allow"]]);
  const action = page.match(/action="([^"]*)"/)[1];
  const headers = { "x-forwarded-user": user, origin: new URL(action).origin };
  const answer = await fetch(action, { method: "POST", body: form, headers, redirect: "manual" });
  return new URL(answer.headers.get("location")).searchParams;
}

let answer;
const authProvider = {
  redirectUrl,
  clientMetadataUrl: document,
  clientMetadata: { redirect_uris: [redirectUrl], client_name: "typescript", token_endpoint_auth_method: "none" },
  state: () => "of-typescript",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => {
    seen.registrations += client.client_id === document ? 0 : 1;
    kept.client = client;
  },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  redirectToAuthorization: async (from) => (answer = await allow(from)),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
};

async function use() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const client = new Client({ name: "typescript", version: "1" });
  await client.connect(transport);
  const result = await client.callTool({ name: "echo", arguments: { text: "hi" } });
  await client.close();
  return result.content[0].text;
}

const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
try {
  await new Client({ name: "typescript", version: "1" }).connect(transport);
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
  seen.state = answer.get("state");
  seen.iss = answer.get("iss");
  await transport.finishAuth(answer.get("code"));
}
seen.called = await use();
const before = kept.tokens;
kept.tokens = { ...before, access_token: "expired" };
seen.called_again = await use();
seen.refreshed = kept.tokens.refresh_token !== before.refresh_token;
console.log(JSON.stringify(seen));
