import { randomUUID } from 'node:crypto';
import ky from 'ky';
import main from './sdk.mjs';

function client(url, timeout, retries) {
  // docs/clients.md shows this
  const statuses = [409, 429, 502, 503, 504];
  const api = ky.create({
    prefixUrl: url,
    timeout,
    retry: { limit: retries, methods: ['post'], statusCodes: statuses, afterStatusCodes: statuses, retryOnTimeout: true, backoffLimit: 5_000 },
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

// own: a beforeRequest hook runs once an attempt, on a copy of the last one's request.
async function own({ url, timeout, retries, order }) {
  let api = client(url, timeout, retries);
  // docs/clients.md shows this
  api = api.extend({ hooks: { beforeRequest: [(r) => { r.headers.has('Idempotency-Key') || r.headers.set('Idempotency-Key', randomUUID()); }] } });
  // up to here
  return (await api.post('v1/charges', { json: order }).json()).id;
}

async function fresh({ url, timeout, retries, order }) {
  const api = client(url, timeout, retries).extend({ hooks: { beforeRequest: [(r) => { r.headers.set('Idempotency-Key', randomUUID()); }] } });
  return (await api.post('v1/charges', { json: order }).json()).id;
}

async function keyless({ url, timeout, retries, order }) {
  return (await client(url, timeout, retries).post('v1/charges', { json: order }).json()).id;
}

main({ keyed, own, fresh, keyless }, async (e) => ({ status: e.response?.status, code: e.response ? (await e.response.json()).code : e.code }));
