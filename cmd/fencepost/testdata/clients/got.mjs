import { randomUUID } from 'node:crypto';
import got from 'got';
import main from './sdk.mjs';

function client(url, timeout, retries) {
  // docs/clients.md shows this
  const api = got.extend({
    prefixUrl: url,
    timeout: { request: timeout },
    retry: { limit: retries, methods: ['POST'], statusCodes: [409, 429, 502, 503, 504], maxRetryAfter: 60_000, backoffLimit: 5_000 },
  });
  // up to here
  return api;
}

async function keyed({ url, timeout, retries, key, order }) {
  const api = client(url, timeout, retries);
  // docs/clients.md shows this
  const { id } = await api.post('v1/charges', { json: order, headers: { 'Idempotency-Key': key } }).json();
  // up to here
  return id;
}

// own: an init hook runs once a call, a beforeRequest hook once an attempt.
async function own({ url, timeout, retries, order }) {
  let api = client(url, timeout, retries);
  // docs/clients.md shows this
  api = api.extend({ hooks: { init: [(_, o) => { o.headers['idempotency-key'] ??= randomUUID(); }] } });
  // up to here
  return (await api.post('v1/charges', { json: order }).json()).id;
}

async function fresh({ url, timeout, retries, order }) {
  const api = client(url, timeout, retries).extend({ hooks: { beforeRequest: [(o) => { o.headers['idempotency-key'] = randomUUID(); }] } });
  return (await api.post('v1/charges', { json: order }).json()).id;
}

async function keyless({ url, timeout, retries, order }) {
  return (await client(url, timeout, retries).post('v1/charges', { json: order }).json()).id;
}

main({ keyed, own, fresh, keyless }, (e) => ({ status: e.response?.statusCode, code: e.response?.body ? JSON.parse(e.response.body).code : e.code }));
