import { randomUUID } from 'node:crypto';
import { Agent, RetryAgent, interceptors, request } from 'undici';
import main from './sdk.mjs';

function options(timeout, retries) {
  // docs/clients.md shows this
  const agent = new Agent({ headersTimeout: timeout });
  const retry = {
    maxRetries: retries,
    methods: ['POST'],
    statusCodes: [409, 429, 502, 503, 504],
    errorCodes: ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'UND_ERR_SOCKET', 'UND_ERR_HEADERS_TIMEOUT'],
    throwOnError: false, // the last answer is returned: its body says more than an error would
  };
  // up to here
  return { agent, retry };
}

class Refused extends Error {
  constructor(status, body) {
    super(body.detail);
    Object.assign(this, { status, code: body.code });
  }
}

async function post(dispatcher, { url, order }, headers) {
  const { statusCode, body } = await request(`${url}/v1/charges`, { dispatcher, method: 'POST', body: JSON.stringify(order), headers: { 'Content-Type': 'application/json', ...headers } });
  const answer = await body.json();
  if (statusCode >= 300) throw new Refused(statusCode, answer);
  return answer.id;
}

async function keyed({ url, timeout, retries, key, order }) {
  const { agent, retry } = options(timeout, retries);
  // docs/clients.md shows this
  const dispatcher = new RetryAgent(agent, retry); // or agent.compose(interceptors.retry(retry))
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key };
  const { statusCode, body } = await request(`${url}/v1/charges`, { dispatcher, method: 'POST', headers, body: JSON.stringify(order) });
  // up to here
  const answer = await body.json();
  if (statusCode >= 300) throw new Refused(statusCode, answer);
  return answer.id;
}

async function composed(call) {
  const { agent, retry } = options(call.timeout, call.retries);
  return post(agent.compose(interceptors.retry(retry)), call, { 'Idempotency-Key': call.key });
}

// fresh: an interceptor below the retries runs once an attempt.
async function fresh(call) {
  const { agent, retry } = options(call.timeout, call.retries);
  const renew = (dispatch) => (opts, handler) => dispatch({ ...opts, headers: { ...opts.headers, 'Idempotency-Key': randomUUID() } }, handler);
  return post(new RetryAgent(agent.compose(renew), retry), call, {});
}

async function keyless(call) {
  const { agent, retry } = options(call.timeout, call.retries);
  return post(new RetryAgent(agent, retry), call, {});
}

main({ keyed, composed, fresh, keyless }, (e) => ({ status: e.status ?? e.statusCode, code: e.code }));
