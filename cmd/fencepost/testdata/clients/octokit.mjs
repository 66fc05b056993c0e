import { randomUUID } from 'node:crypto';
import { Octokit } from '@octokit/rest';
import { retry } from '@octokit/plugin-retry';
import main from './sdk.mjs';

function client(url, timeout, retries) {
  // docs/clients.md shows this
  const whole = async (url, init) => { // an answer that was cut is an error, and not an empty one
    const res = await fetch(url, { ...init, signal: AbortSignal.timeout(timeout) });
    return new Response(res.body && (await res.arrayBuffer()), res);
  };
  const octokit = new (Octokit.plugin(retry))({
    baseUrl: url,
    retry: { retries, retryAfterBaseValue: 200 }, // pauses of 0.2, 0.8, 1.8 s
    request: { fetch: whole },
  });
  // up to here
  return octokit;
}

async function create(octokit, order, headers) {
  return (await octokit.rest.issues.create({ owner: 'o', repo: 'r', title: order.note, headers })).data.id;
}

async function keyed({ url, timeout, retries, key, order }) {
  const octokit = client(url, timeout, retries);
  const [owner, repo, title] = ['o', 'r', order.note];
  // docs/clients.md shows this
  const { data } = await octokit.rest.issues.create({ owner, repo, title, headers: { 'idempotency-key': key } });
  // up to here
  return data.id;
}

// own: the hook that was added last is the outermost, so it runs once a call.
async function own({ url, timeout, retries, order }) {
  const octokit = client(url, timeout, retries);
  // docs/clients.md shows this
  octokit.hook.before('request', (o) => { o.headers['idempotency-key'] ??= randomUUID(); });
  // up to here
  return create(octokit, order);
}

async function fresh({ url, timeout, retries, order }) {
  const octokit = client(url, timeout, retries);
  octokit.hook.before('request', (o) => {
    const send = o.request.fetch;
    o.request.fetch = (u, i) => send(u, { ...i, headers: { ...i.headers, 'idempotency-key': randomUUID() } });
  });
  return create(octokit, order);
}

// cut has no fetch of its own.
async function cut({ url, order, key }) {
  return create(new (Octokit.plugin(retry))({ baseUrl: url }), order, { 'idempotency-key': key });
}

const keyless = ({ url, timeout, retries, order }) => create(client(url, timeout, retries), order);

main({ keyed, own, fresh, keyless, cut }, (e) => ({ status: e.status, code: e.response && JSON.parse(new TextDecoder().decode(e.response.data)).code }));
