// An issuer by oidc-provider, which exchanges its access tokens as RFC 8693 says.
//
// node oidc_provider.mjs MODULES PORT AUDIENCE TARGET JWK
//
// MODULES is a folder of npm. A token of a person for AUDIENCE is at /token-of/NAME; for TARGET there are only exchanged
// ones. One client has a secret, and the other the key whose public half is JWK.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const [modules, port, audience, target, jwk] = process.argv.slice(2);
const resolve = createRequire(path.join(modules, 'here.js')).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const { Provider, errors } = await load('oidc-provider');
const { createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify } = await load('jose');

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const issuer = `http://127.0.0.1:${port}`;

const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true });
const own = { kid: 'own', alg: 'RS256', use: 'sig' };
const keys = createLocalJWKSet({ keys: [{ ...(await exportJWK(publicKey)), ...own }] });

const resourceServer = (resource) => ({
  scope: 'read write',
  audience: resource,
  accessTokenFormat: 'jwt',
  accessTokenTTL: resource === target ? 120 : 600,
  jwt: { sign: { alg: 'RS256' } },
});

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...(await exportJWK(privateKey)), ...own }] },
  clients: [
    {
      client_id: 'dynamic-mcp',
      client_secret: 'secret-of-dynamic-mcp',
      grant_types: [EXCHANGE],
      redirect_uris: [],
      response_types: [],
    },
    {
      client_id: 'dynamic-mcp-with-key',
      token_endpoint_auth_method: 'private_key_jwt',
      jwks: { keys: [JSON.parse(jwk)] },
      grant_types: [EXCHANGE],
      redirect_uris: [],
      response_types: [],
    },
    { client_id: 'tool', client_secret: 'tool', redirect_uris: ['http://127.0.0.1/callback'] },
  ],
  scopes: ['openid', 'read', 'write'],
  extraTokenClaims: (ctx, token) => token.extra,
  features: {
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, resource) => {
        if (resource !== target) throw new errors.InvalidTarget();
        return resourceServer(resource);
      },
    },
  },
});

async function issue(client, accountId, resource, scope, extra) {
  const token = new provider.AccessToken({ client, accountId, scope, extra, gty: EXCHANGE });
  token.resourceServer = new provider.ResourceServer(resource, resourceServer(resource));
  return { value: await token.save(), expiration: token.expiration };
}

const parameters = ['audience', 'resource', 'scope', 'subject_token', 'subject_token_type', 'requested_token_type'];
provider.registerGrantType(EXCHANGE, async (ctx) => {
  const { client, params } = ctx.oidc;
  if (params.subject_token_type !== ACCESS_TOKEN) throw new errors.InvalidRequest('unknown type of the subject token');
  let subject;
  try {
    ({ payload: subject } = await jwtVerify(params.subject_token, keys, { issuer, audience }));
  } catch {
    throw new errors.InvalidGrant('the subject token is not accepted');
  }
  if (params.resource !== target) throw new errors.InvalidTarget();
  const token = await issue(client, subject.sub, target, params.scope, { act: { sub: client.clientId } });
  ctx.body = {
    access_token: token.value,
    issued_token_type: ACCESS_TOKEN,
    token_type: 'Bearer',
    expires_in: token.expiration,
    scope: params.scope,
  };
}, parameters);

provider.use(async (ctx, next) => {
  const [, name] = /^\/token-of\/(\w+)$/.exec(ctx.path) ?? [];
  if (name === undefined) return next();
  ctx.body = (await issue(await provider.Client.find('tool'), name, audience, 'read', undefined)).value;
});

provider.on('server_error', (ctx, error) => console.error(error));

provider.listen(Number(port), '127.0.0.1');
