import { randomUUID } from 'node:crypto';
import axios from 'axios';
import axiosRetry from 'axios-retry';
import main from './sdk.mjs';

function client(url, timeout, retries) {
  // docs/clients.md shows this
  const api = axios.create({ baseURL: url, timeout });
  axiosRetry(api, {
    retries,
    shouldResetTimeout: true, // else all attempts share one timeout
    retryDelay: axiosRetry.exponentialDelay, // waits out Retry-After
    retryCondition: (e) => !e.response || [409, 429, 502, 503, 504].includes(e.response.status),
  });
  // up to here
  return api;
}

async function keyed({ url, timeout, retries, key, order }) {
  const api = client(url, timeout, retries);
  // docs/clients.md shows this
  const { data } = await api.post('/v1/charges', order, { headers: { 'Idempotency-Key': key } });
  // up to here
  return data.id;
}

// own: an interceptor runs once an attempt.
async function own({ url, timeout, retries, order }) {
  const api = client(url, timeout, retries);
  // docs/clients.md shows this
  api.interceptors.request.use((c) => (c.headers['Idempotency-Key'] ??= randomUUID(), c));
  // up to here
  return (await api.post('/v1/charges', order)).data.id;
}

async function fresh({ url, timeout, retries, order }) {
  const api = client(url, timeout, retries);
  api.interceptors.request.use((c) => ((c.headers['Idempotency-Key'] = randomUUID()), c));
  return (await api.post('/v1/charges', order)).data.id;
}

async function keyless({ url, timeout, retries, order }) {
  return (await client(url, timeout, retries).post('/v1/charges', order)).data.id;
}

main({ keyed, own, fresh, keyless }, (e) => ({ status: e.response?.status, code: e.response?.data?.code ?? e.code }));
